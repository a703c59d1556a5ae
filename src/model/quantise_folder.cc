#include "model/quantise_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/quoted.h"
#include "format/quant_recipe.h"
#include "format/safetensors_writer.h"
#include "model/activation_sums.h"
#include "model/gguf_form.h"
#include "model/input_moments.h"
#include "tensor/dequantise.h"
#include "tensor/half.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

// What is copied beside the weights where it is there.
constexpr const char* kBeside[] = {"tokenizer.json",
                                   "tokenizer_config.json",
                                   "tokenizer.model",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "vocab.json",
                                   "merges.txt",
                                   "chat_template.jinja",
                                   "chat_template.json",
                                   "generation_config.json",
                                   "preprocessor_config.json"};

// One matrix of a layer that becomes codes.
struct Matrix {
  std::string tensor;   // of the folder: "model.layers.0.self_attn.q_proj.weight"
  std::string product;  // "attn_q"
  std::string input;    // the intermediate that it reads
  int layer = 0;
  int64_t n_outputs = 0, n_inputs = 0;

  std::string module() const { return tensor.substr(0, tensor.size() - std::string_view(".weight").size()); }
};

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.n_elements()));
  dequantise(view, values.data());
  return values;
}

float rounded(DType dtype, double value) {
  const auto x = static_cast<float>(value);
  if (dtype == DType::kF16) return half_to_float(float_to_half(x));
  return dtype == DType::kBF16 ? bf16_to_float(float_to_bf16(x)) : x;
}

std::vector<std::byte> bytes_of(DType dtype, std::span<const float> values) {
  std::vector<std::byte> out(values.size() * static_cast<size_t>(traits(dtype).block_bytes));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = dtype == DType::kF16 ? float_to_half(values[i]) : float_to_bf16(values[i]);
    if (dtype == DType::kF32) std::memcpy(out.data() + 4 * i, &values[i], 4);
    if (dtype != DType::kF32) std::memcpy(out.data() + 2 * i, &half, 2);
  }
  return out;
}

// Codes as words of 32 / bits each, low bits first, with 2^(bits - 1) added.
std::vector<std::byte> packed(const GroupCodes& codes, int bits) {
  const size_t per_word = static_cast<size_t>(32 / bits);
  std::vector<std::byte> out(codes.codes.size() / per_word * 4);
  for (size_t w = 0; w < out.size() / 4; ++w) {
    uint32_t word = 0;
    for (size_t i = 0; i < per_word; ++i) {
      const auto code = static_cast<uint32_t>(codes.codes[w * per_word + i] + (1 << (bits - 1)));
      word |= code << (i * static_cast<size_t>(bits));
    }
    std::memcpy(out.data() + 4 * w, &word, 4);
  }
  return out;
}

class Work {
 public:
  Work(const ModelFile& folder, Model* model, Stream& s, const QuantiseFolderOptions& options,
       const std::function<void(uint64_t, uint64_t)>& progress)
      : folder_(folder), model_(model), stream_(s), team_(s.team()), options_(options), progress_(progress) {}

  Result<QuantisedFolder> run(const std::string& to);

 private:
  Status check();
  Status find_matrices();
  void plan_tensors();
  Status write_beside(const std::string& work) const;
  Result<std::string> config_json() const;
  Status copy_others();
  Status quantise_layers();
  Status quantise_layer(int layer, MomentsOf& moments);
  Status fold(int layer, const MomentsOf& moments);
  Status fold_into_norm(const std::string& norm, std::span<Matrix* const> readers, const InputMoments& moments);
  Status fold_into_up(Matrix& down, const InputMoments& moments);
  Result<std::vector<float>> weights_of(const Matrix& matrix);
  Status put(const Matrix& matrix, const GroupCodes& codes);
  Matrix* matrix_of(int layer, std::string_view product);
  GroupFormat format_of(const Matrix& matrix) const {
    const int64_t group_len = options_.quantises_inputs ? matrix.n_inputs : options_.group_len;
    return {options_.bits, group_len, folder_.find(matrix.tensor)->view.dtype};
  }
  std::vector<double> factors(const InputMoments& moments, std::span<const std::span<const float>> matrices,
                              const GroupFormat& format) {
    if (options_.search == GroupSearch::kSmooth) return smooth_factors(moments, matrices, options_.smoothing);
    return awq_factors(team_, moments, matrices, format);
  }

  const ModelFile& folder_;
  Model* model_;
  Stream& stream_;
  ThreadTeam& team_;
  const QuantiseFolderOptions& options_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  ModelConfig config_;
  const Architecture* architecture_ = nullptr;
  std::vector<Matrix> matrices_;
  SafetensorsWriter writer_;
  QuantisedFolder out_;
  // Of AWQ and SmoothQuant: what inputs and outputs of a matrix are multiplied by, and floats that changed.
  std::map<std::string, std::vector<double>> input_factors_, output_divisors_;
  std::map<std::string, std::vector<float>> changed_;
};

Status Work::check() {
  if (folder_.container() != Container::kSafetensors) {
    return unsupported(folder_.path() + " is a GGUF file; a folder of safetensors is made of a folder of safetensors");
  }
  if (!folder_.quant_recipe_json().empty()) {
    return unsupported(folder_.path() +
                       " is quantised already (quantization_config), and what it lost stays lost; quantise the model "
                       "that it was made of");
  }
  if (options_.bits != 4 && options_.bits != 8)
    return invalid("codes have 4 or 8 bits, not " + std::to_string(options_.bits), "bits");
  if (options_.group_len < 32 || options_.group_len % 32 != 0) {
    return invalid("a group has a multiple of 32 inputs, not " + std::to_string(options_.group_len), "group_size");
  }
  const bool smooths = options_.search == GroupSearch::kSmooth, is_awq = options_.search == GroupSearch::kAwq;
  if (options_.quantises_inputs && options_.bits != 8)
    return invalid("activations of 8 bits are for codes of 8 bits, not of " + std::to_string(options_.bits), "bits");
  if (options_.quantises_inputs ? is_awq : smooths) {
    return unsupported(is_awq ? "AWQ's factors are for scales of groups, and this recipe has a scale for each output"
                              : "SmoothQuant is for a recipe whose activations are quantised too");
  }
  if (!(options_.smoothing >= 0 && options_.smoothing <= 1))
    return invalid("smoothing is a number from 0 to 1", "smoothing");
  if (!(options_.damp >= 0) || !std::isfinite(options_.damp)) return invalid("damp is no number from 0 on", "damp");
  ASSIGN_OR_RETURN(config_, read_config(folder_));
  ASSIGN_OR_RETURN(architecture_, find_architecture(folder_));
  if (config_.is_encoder())
    return unsupported(folder_.path() + " is an encoder; matrices of decoders are quantised into folders");
  if (options_.search == GroupSearch::kNone) return {};
  if (config_.first_with_experts() != nullptr) {
    return unsupported(folder_.path() +
                       " has experts, which searches are not done for here; without --search they are " +
                       "left in floats and all else is rounded");
  }
  const bool is_plain = (config_.shape == Shape::kLlama || config_.shape == Shape::kGemma) &&
                        !config_.one_part_layers && config_.first_recurrent() == nullptr &&
                        config_.first_with(Mixer::kLatent) == nullptr;
  if ((is_awq || smooths) && !is_plain) {
    return unsupported(folder_.path() + (is_awq ? ": AWQ" : ": SmoothQuant") +
                       " divides in the norm before a product, and " + config_.architecture +
                       " has not the one norm before each that this is done for here; --search gptq is for all");
  }
  return {};
}

Status Work::find_matrices() {
  for (const TensorSpec& spec : tensors_of(config_)) {
    if (spec.kind != TensorSpec::Kind::kMatrix || spec.dims.size() != 2 || !spec.name.starts_with("blk.")) continue;
    const size_t dot = spec.name.find('.', 4);
    if (dot == std::string::npos || !spec.name.ends_with(".weight")) continue;
    const std::string product = spec.name.substr(dot + 1, spec.name.size() - dot - 8);
    const std::string_view input = input_of(product);
    const std::string tensor = folder_tensor_of(folder_, {}, *architecture_, config_, spec.name);
    const TensorInfo* info = folder_.find(tensor);
    if (input.empty() || info == nullptr || !tensor.ends_with(".weight")) continue;
    const TensorView& v = info->view;
    const bool is_float = v.dtype == DType::kF32 || v.dtype == DType::kF16 || v.dtype == DType::kBF16;
    if (!is_float || v.rank != 2 || v.dim[0] != spec.dims[0] || v.dim[1] != spec.dims[1]) continue;
    if (v.dim[1] % (options_.quantises_inputs ? 32 : options_.group_len) != 0) {
      ++out_.n_left;
      continue;
    }
    matrices_.push_back({.tensor = tensor,
                         .product = product,
                         .input = std::string(input),
                         .layer = static_cast<int>(std::stoll(spec.name.substr(4, dot - 4))),
                         .n_outputs = v.dim[0],
                         .n_inputs = v.dim[1]});
  }
  if (!matrices_.empty()) return {};
  if (options_.quantises_inputs)
    return invalid(folder_.path() + " has no matrix of a layer with a multiple of 32 inputs");
  return invalid(folder_.path() + " has no matrix of a layer whose inputs are whole groups of " +
                     std::to_string(options_.group_len) + "; a smaller group may fit",
                 "group_size");
}

Matrix* Work::matrix_of(int layer, std::string_view product) {
  for (Matrix& m : matrices_) {
    if (m.layer == layer && m.product == product) return &m;
  }
  return nullptr;
}

void Work::plan_tensors() {
  for (const TensorInfo& t : folder_.tensors()) {
    out_.bytes_before += t.bytes();
    const auto m = std::ranges::find(matrices_, t.name, &Matrix::tensor);
    if (m == matrices_.end()) {
      writer_.add(t.name, t.view.dtype, {t.view.dim.begin(), t.view.dim.begin() + t.view.rank});
      continue;
    }
    const std::string base = m->module();
    if (options_.quantises_inputs) {
      writer_.add(m->tensor, DType::kI8, {m->n_outputs, m->n_inputs});
      writer_.add(base + ".weight_scale", t.view.dtype, {m->n_outputs, 1});
      continue;
    }
    writer_.add(base + ".weight_packed", DType::kI32, {m->n_outputs, m->n_inputs * options_.bits / 32});
    writer_.add(base + ".weight_scale", t.view.dtype, {m->n_outputs, m->n_inputs / options_.group_len});
    writer_.add(base + ".weight_shape", DType::kI64, {2});
  }
  out_.bytes = writer_.tensor_bytes();
}

// config.json with the recipe in the place of none.
Result<std::string> Work::config_json() const {
  const std::string path = folder_.path() + "/config.json";
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return unavailable("cannot read " + path, path);
  ASSIGN_OR_RETURN(const Json config, parse_json(text.str(), path, {.max_bytes = 4 << 20}));
  if (config.object() == nullptr) return invalid(path + " is " + config.kind() + ", not an object", path);
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  for (const auto& [key, value] : *config.object()) {
    if (key != "quantization_config" && key != "compression_config") json.key(key).value(value);
  }
  json.key("quantization_config").begin_object();
  const bool quantises_inputs = options_.quantises_inputs;
  json.field("quant_method", "compressed-tensors");
  json.field("format", quantises_inputs ? "int-quantized" : "pack-quantized");
  json.field("quantization_status", "compressed").key("ignore").begin_array();
  bool has_head = false;
  for (const TensorInfo& t : folder_.tensors()) {
    const bool is_linear = t.view.rank == 2 && t.name.ends_with(".weight") && t.name.find("embed") == std::string::npos;
    if (!is_linear || std::ranges::find(matrices_, t.name, &Matrix::tensor) != matrices_.end()) continue;
    has_head |= t.name == "lm_head.weight";
    json.string(t.name.substr(0, t.name.size() - 7));
  }
  if (!has_head) json.string("lm_head");
  json.end_array().key("kv_cache_scheme").null().key("config_groups").begin_object().key("group_0").begin_object();
  json.key("targets").begin_array().string("Linear").end_array().key("weights").begin_object();
  json.field("num_bits", options_.bits).field("type", "int").key("symmetric").boolean(true);
  if (quantises_inputs) {
    json.field("strategy", "channel").key("group_size").null();
  } else {
    json.field("strategy", "group").field("group_size", options_.group_len);
  }
  json.key("dynamic").boolean(false).key("actorder").null().end_object().key("input_activations");
  if (quantises_inputs) {
    json.begin_object().field("num_bits", 8).field("type", "int").key("symmetric").boolean(true);
    json.field("strategy", "token").key("dynamic").boolean(true).end_object();
  } else {
    json.null();
  }
  json.key("output_activations").null().end_object().end_object();
  json.end_object().end_object();
  return out + "\n";
}

Status Work::write_beside(const std::string& work) const {
  ASSIGN_OR_RETURN(const std::string config, config_json());
  std::ofstream file(work + "/config.json", std::ios::binary);
  file << config;
  file.close();
  if (!file) return unavailable("cannot write " + work + "/config.json", work);
  for (const char* name : kBeside) {
    std::error_code error;
    const std::string from = folder_.path() + "/" + name;
    if (!fs::exists(from, error)) continue;
    fs::copy_file(from, work + "/" + name, error);
    if (error) return unavailable("cannot copy " + from + ": " + error.message(), from);
  }
  return {};
}

Result<std::vector<float>> Work::weights_of(const Matrix& matrix) {
  const TensorView& v = folder_.find(matrix.tensor)->view;
  std::vector<float> w = floats_of(v);
  folder_.forget(v);
  const auto by_input = input_factors_.find(matrix.tensor), by_output = output_divisors_.find(matrix.tensor);
  const int64_t K = matrix.n_inputs;
  for (int64_t i = 0; i < std::ssize(w); ++i) {
    float& x = w[static_cast<size_t>(i)];
    if (by_input != input_factors_.end())
      x = static_cast<float>(static_cast<double>(x) * by_input->second[static_cast<size_t>(i % K)]);
    if (by_output != output_divisors_.end())
      x = static_cast<float>(static_cast<double>(x) / by_output->second[static_cast<size_t>(i / K)]);
    if (!std::isfinite(x))
      return invalid(in_quotes(matrix.tensor) + " holds a number that is not finite", matrix.tensor);
  }
  return w;
}

Status Work::put(const Matrix& matrix, const GroupCodes& codes) {
  const int64_t shape[2] = {matrix.n_outputs, matrix.n_inputs};
  if (options_.quantises_inputs) {
    TRY(writer_.put(matrix.tensor, std::as_bytes(std::span(codes.codes))));
  } else {
    TRY(writer_.put(matrix.module() + ".weight_packed", packed(codes, options_.bits)));
  }
  TRY(writer_.put(matrix.module() + ".weight_scale", bytes_of(format_of(matrix).scales, codes.scales)));
  if (!options_.quantises_inputs) TRY(writer_.put(matrix.module() + ".weight_shape", std::as_bytes(std::span(shape))));
  ++out_.n_quantised;
  if (progress_) progress_(static_cast<uint64_t>(out_.n_quantised), matrices_.size());
  return {};
}

// The norm divides by what its readers multiply. Its weights are rounded to their type first, and the readers then
// multiply by what it divides by in fact.
Status Work::fold_into_norm(const std::string& norm, std::span<Matrix* const> readers, const InputMoments& moments) {
  const std::string tensor = folder_tensor_of(folder_, {}, *architecture_, config_, norm);
  const TensorInfo* info = folder_.find(tensor);
  if (info == nullptr || info->view.n_elements() != moments.n_inputs()) return {};
  std::vector<std::vector<float>> w;
  std::vector<std::span<const float>> all;
  for (const Matrix* m : readers) {
    ASSIGN_OR_RETURN(std::vector<float> own, weights_of(*m));
    w.push_back(std::move(own));
  }
  for (const std::vector<float>& own : w) all.emplace_back(own);
  std::vector<double> s = factors(moments, all, format_of(*readers[0]));
  std::vector<float> values = floats_of(info->view);
  const auto offset = static_cast<double>(config_.norm_offset);
  for (size_t k = 0; k < values.size(); ++k) {
    const double was = static_cast<double>(values[k]) + offset;
    const float made = rounded(info->view.dtype, was / s[k] - offset);
    const double is = static_cast<double>(made) + offset, factor = was / is;
    const bool fits = std::isfinite(factor) && factor > 0.5 * s[k] && factor < 2 * s[k];
    s[k] = fits ? factor : 1.0;
    if (fits) values[k] = made;
  }
  changed_[tensor] = std::move(values);
  for (const Matrix* m : readers) input_factors_[m->tensor] = s;
  ++out_.n_folded;
  return {};
}

// The up-projection's outputs are factors of the down-projection's inputs: its rows divide.
Status Work::fold_into_up(Matrix& down, const InputMoments& moments) {
  Matrix* const up = matrix_of(down.layer, "ffn_up");
  const int64_t F = down.n_inputs;
  if (up == nullptr || (up->n_outputs != F && up->n_outputs != 2 * F)) return {};
  ASSIGN_OR_RETURN(const std::vector<float> w, weights_of(down));
  const std::span<const float> all[] = {w};
  std::vector<double> s = awq_factors(team_, moments, all, format_of(down));
  std::vector<double>& divisors = output_divisors_[up->tensor];
  divisors.assign(static_cast<size_t>(up->n_outputs), 1.0);  // of gate and up in one: up is below
  std::ranges::copy(s, divisors.end() - F);
  input_factors_[down.tensor] = std::move(s);
  ++out_.n_folded;
  return {};
}

Status Work::fold(int layer, const MomentsOf& moments) {
  for (const auto& [norm, input] : {std::pair("attn_norm", "attn_norm"), {"ffn_norm", "ffn_norm"}}) {
    std::vector<Matrix*> readers;
    for (Matrix& m : matrices_) {
      if (m.layer == layer && m.input == input) readers.push_back(&m);
    }
    // All products that read the norm, or none: what stays in floats does not multiply.
    size_t n_readers = 0;
    for (const TensorSpec& spec : tensors_of(config_)) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      if (!spec.name.starts_with(prefix) || !spec.name.ends_with(".weight") || spec.dims.size() < 2) continue;
      n_readers += input_of(spec.name.substr(prefix.size(), spec.name.size() - prefix.size() - 7)) == input;
    }
    const auto found = moments.find({layer, input});
    if (readers.empty() || readers.size() != n_readers || found == moments.end()) continue;
    TRY(fold_into_norm("blk." + std::to_string(layer) + "." + norm + ".weight", readers, found->second));
  }
  if (options_.search == GroupSearch::kSmooth) return {};  // as in the paper: what norms make is smoothed alone
  Matrix* const down = matrix_of(layer, "ffn_down");
  const auto found = moments.find({layer, "gated"});
  const bool is_gated = config_.ffn_has_gate() && !config_.ffn_bias;
  if (down == nullptr || !is_gated || found == moments.end()) return {};
  return fold_into_up(*down, found->second);
}

Status Work::quantise_layer(int layer, MomentsOf& moments) {
  const bool folds = options_.search == GroupSearch::kAwq || options_.search == GroupSearch::kSmooth;
  if (folds) TRY(fold(layer, moments));
  std::map<std::string, GptqFactor> factors;
  for (const Matrix& m : matrices_) {
    if (m.layer != layer) continue;
    ASSIGN_OR_RETURN(const std::vector<float> w, weights_of(m));
    const GroupFormat format = format_of(m);
    const auto found = moments.find({layer, m.input});
    if (options_.search == GroupSearch::kNone || options_.search == GroupSearch::kSmooth) {
      TRY(put(m, round_to_groups(team_, w, m.n_inputs, format)));
      continue;
    }
    if (found == moments.end() || found->second.n_inputs() != m.n_inputs)
      return unsupported(in_quotes(m.tensor) +
                         " has inputs that the forward pass does not show; it is rounded without --search");
    if (options_.search == GroupSearch::kGptq) {
      if (!factors.contains(m.input)) {
        ASSIGN_OR_RETURN(factors[m.input], gptq_factor(team_, found->second, options_.damp, options_.act_order));
      }
      TRY(put(m, gptq(team_, w, factors[m.input], format)));
      continue;
    }
    // Queries and keys are not cut: their products are compared with each other, and a cut shifts all of a head's.
    const bool is_cut = m.product != "attn_q" && m.product != "attn_k" && m.product != "attn_qkv";
    const auto by = input_factors_.find(m.tensor);
    const std::vector<double> s =
        by != input_factors_.end() ? by->second : std::vector<double>(static_cast<size_t>(m.n_inputs), 1.0);
    const std::vector<float> clips = is_cut ? awq_clips(team_, found->second, s, w, format) : std::vector<float>();
    TRY(put(m, round_to_groups(team_, w, m.n_inputs, format, clips)));
  }
  return {};
}

Status Work::quantise_layers() {
  const auto L = static_cast<int>(config_.n_layers);
  for (int layer = 0; layer < L;) {
    int end = layer + 1;
    MomentsOf moments;
    if (options_.search != GroupSearch::kNone) {
      std::vector<std::string> names;
      int64_t bytes = 0;
      for (end = layer; end < L; ++end) {
        std::map<std::string, int64_t> inputs;
        for (const Matrix& m : matrices_) {
          const bool is_read = options_.search != GroupSearch::kSmooth || m.input.ends_with("_norm");
          if (m.layer == end && is_read) inputs[m.input] = 8 * m.n_inputs * m.n_inputs;
        }
        for (const auto& [name, n] : inputs) bytes += n;
        if (end > layer && bytes > options_.moments_bytes) break;
        for (const auto& [name, n] : inputs) names.push_back(name);
      }
      ASSIGN_OR_RETURN(moments, input_moments(*model_, stream_, options_.tokens, options_.chunk_len, options_.begin,
                                              layer, end, names));
    }
    for (; layer < end; ++layer) {
      TRY(quantise_layer(layer, moments));
      std::erase_if(moments, [layer](const auto& m) { return m.first.first == layer; });
    }
  }
  return {};
}

Status Work::copy_others() {
  for (const TensorInfo& t : folder_.tensors()) {
    if (std::ranges::find(matrices_, t.name, &Matrix::tensor) != matrices_.end()) continue;
    if (const auto changed = changed_.find(t.name); changed != changed_.end()) {
      TRY(writer_.put(t.name, bytes_of(t.view.dtype, changed->second)));
    } else {
      TRY(writer_.put(t.name, {t.view.data, t.bytes()}));
    }
    folder_.forget(t.view);
  }
  return {};
}

Result<QuantisedFolder> Work::run(const std::string& to) {
  TRY(check());
  std::error_code error;
  if (fs::exists(to, error))
    return invalid(in_quotes(to) + " is there already; a new folder is made, and none written over", to);
  for (const TensorInfo& t : folder_.tensors()) {
    if (t.view.dtype != DType::kI8) continue;
    return unsupported(folder_.path() + ": tensor " + in_quotes(t.name) + " is of bytes, which are not copied", t.name);
  }
  TRY(find_matrices());
  plan_tensors();
  const std::string work = to + ".partial";
  if (fs::exists(work, error))
    return invalid(in_quotes(work) + " is there already, left by a run that was cut short; remove it first", work);
  fs::create_directories(work, error);
  if (error) return unavailable("cannot make the folder " + work + ": " + error.message(), work);
  const auto write = [&]() -> Status {
    TRY(write_beside(work));
    TRY(writer_.open(work, options_.max_file_bytes));
    TRY(quantise_layers());
    TRY(copy_others());
    TRY(writer_.finish());
    std::error_code failed;
    fs::rename(work, to, failed);
    if (failed) return unavailable("cannot make the folder " + to + ": " + failed.message(), to);
    return {};
  };
  if (const Status written = write(); !written.ok()) {
    fs::remove_all(work, error);
    return written.error();
  }
  return out_;
}

}  // namespace

Result<QuantisedFolder> quantise_folder(const ModelFile& folder, Model* model, Stream& s, const std::string& to,
                                        const QuantiseFolderOptions& options,
                                        const std::function<void(uint64_t, uint64_t)>& progress) {
  CHECK(model != nullptr || options.search == GroupSearch::kNone, "a search runs the model");
  return Work(folder, model, s, options, progress).run(to);
}

}  // namespace ibid
