#include "model/convert.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "format/gguf_vocabulary.h"
#include "format/gguf_writer.h"
#include "format/quant_recipe.h"
#include "format/quantised_matrix.h"
#include "model/arch/architecture.h"
#include "model/config.h"
#include "model/gguf_form.h"
#include "model/tokenizer_of_model.h"
#include "tensor/dequantise.h"
#include "tensor/quantise.h"
#include "text/tokenizer/json_vocabulary.h"

namespace ibid {
namespace {

constexpr int64_t kChunkOfFloats = int64_t{1} << 21;

// As transformers names them beside the weights, and as llama.cpp does.
constexpr std::pair<const char*, const char*> kSamplingKeys[] = {
    {"generation_config.temperature", "general.sampling.temp"},
    {"generation_config.top_k", "general.sampling.top_k"},
    {"generation_config.top_p", "general.sampling.top_p"},
    {"generation_config.min_p", "general.sampling.min_p"},
    {"generation_config.repetition_penalty", "general.sampling.penalty_repeat"},
};

struct Target {
  TensorSpec spec;
  DType wished, dtype;
  std::vector<float> importance = {};  // [n, inputs] of its n matrices; empty: none
  bool keeps_codes = false;            // of a quantised matrix
  int64_t n_rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < spec.dims.size(); ++i) n *= spec.dims[i];
    return n;
  }
  int64_t row_len() const { return spec.dims.back(); }
};

bool stays_float(const TensorSpec& spec) {
  using Kind = TensorSpec::Kind;
  const bool is_table = spec.name == "position_embd.weight" || spec.name == "token_types.weight";
  return (spec.kind != Kind::kMatrix && spec.kind != Kind::kEmbedding) || is_table || spec.dims.size() == 1;
}

Target target_of(const TensorSpec& spec, const ModelConfig& c, const TypeRules& types, DType own) {
  Target out = {spec, DType::kF32, DType::kF32};
  if (stays_float(spec)) return out;
  const LayerConfig* attention = c.first_with(Mixer::kAttention);
  const bool has_groups = attention != nullptr && attention->n_kv_heads > 0;
  const MixedMatrix matrix = {.name = spec.name,
                              .n_layers = c.n_layers,
                              .heads_per_kv = has_groups ? attention->n_heads / attention->n_kv_heads : 1,
                              .row_len = out.row_len(),
                              .tied_embedding = c.tied_embedding};
  out.wished = is_left(types, spec.name) ? own : wished_dtype(types, matrix);
  out.dtype = is_left(types, spec.name) ? own : fitting_dtype(types, matrix);
  // A matrix of each head, which no mixture has a type for.
  const bool of_heads = spec.dims.size() == 3 && spec.name.find("_exps.") == std::string::npos;
  if (of_heads && is_quantised(out.dtype)) out.wished = out.dtype = DType::kF16;
  return out;
}

// What a reader of the file would take the model for is what the folder has.
Status check_form(const ModelFile& folder, const ModelConfig& config, const Metadata& metadata,
                  const std::vector<TensorSpec>& specs, std::map<std::string, std::vector<float>>& ropes) {
  const auto& name = std::get<std::string>(metadata.find("general.architecture")->second);
  const bool known = std::ranges::any_of(architectures(), [&](const Architecture& a) { return a.gguf_name == name; });
  if (!known) {
    return unsupported(folder.path() + ": there is no GGUF form of the architecture " + in_quotes(config.architecture) +
                       " here; use the folder");
  }
  ModelFile::Parts parts;
  parts.path = folder.path() + " as GGUF";
  parts.metadata = metadata;
  static std::byte nothing[8];  // of weights, which no configuration reads
  for (const TensorSpec& spec : specs) parts.tensors.push_back({spec.name, view_of(nothing, DType::kF32, spec.dims)});
  for (auto& [rope, values] : ropes) {
    parts.tensors.push_back({rope, view_of(values.data(), DType::kF32, {std::ssize(values)})});
  }
  const ModelFile form(std::move(parts));
  ASSIGN_OR_RETURN(const ModelConfig read, read_config(form));
  const Metadata again = metadata_of(read);
  for (const auto& [key, value] : metadata) {
    const auto found = again.find(key);
    if (found != again.end() && found->second == value) continue;
    return unsupported(folder.path() + ": GGUF's " + in_quotes(name) + " cannot express this model: key " +
                       in_quotes(key) + " would be lost; use the folder");
  }
  return {};
}

// The folder's tokens, one for each row of the embedding.
Status put_tokens(const ModelFile& folder, const ModelConfig& config, Metadata& metadata) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, load_tokenizer(folder));
  ASSIGN_OR_RETURN(Vocabulary v, vocabulary_from_json(folder.tokenizer_json(), folder.tokenizer_config_json()));
  v.chat_template = chat_template_of(folder, *tokenizer);
  const std::pair<const char*, TokenId*> ids[] = {
      {"bos_token_id", &v.bos}, {"eos_token_id", &v.eos}, {"pad_token_id", &v.padding}};
  for (const auto& [key, id] : ids) {
    if (*id != TokenId::kNone || !folder.has_meta(key)) continue;
    const Result<std::vector<int64_t>> found = folder.meta_ints(key);
    if (found && !found->empty() && found->front() >= 0 && found->front() < std::ssize(v.tokens)) {
      *id = TokenId{static_cast<int32_t>(found->front())};
    }
  }
  for (auto i = std::ssize(v.tokens); i < config.vocab_size; ++i) {
    v.tokens.push_back("[PAD" + std::to_string(i) + "]");
    v.types.push_back(TokenType::kUnused);
    if (!v.scores.empty()) v.scores.push_back(v.scores.back());
  }
  put_vocabulary(v, metadata);
  // Further ends of answers that no spelling gives away.
  const std::vector<TokenId> ends = end_of_generation_of(folder, *tokenizer);
  for (const TokenId id : ends) {
    if (id == v.eos || std::ranges::find(v.end_of_generation, id) != v.end_of_generation.end()) continue;
    metadata[metadata.contains("tokenizer.ggml.eot_token_id") ? "tokenizer.ggml.eom_token_id"
                                                              : "tokenizer.ggml.eot_token_id"] = int64_t{raw(id)};
  }
  return {};
}

// Rows of floats to `put`, in the target's type.
Status write_rows(const std::vector<float>& values, const Target& target, ThreadTeam& team, const GgufWriter::Put& put,
                  const std::function<void(int64_t)>& written) {
  const int64_t K = target.row_len(), n_rows = target.n_rows(), a_row = row_bytes(target.dtype, K);
  const int64_t chunk = std::max<int64_t>(1, std::min(n_rows, kChunkOfFloats / K));
  std::vector<std::byte> out(static_cast<size_t>(chunk * a_row));
  std::atomic<bool> is_finite = true;
  for (int64_t row = 0; row < n_rows; row += chunk) {
    const int64_t n = std::min(chunk, n_rows - row);
    team.parallel_for(n, [&](int64_t i, int) {
      const float* from = values.data() + (row + i) * K;
      if (!std::all_of(from, from + K, [](float x) { return std::isfinite(x); })) is_finite = false;
      const int64_t n_matrices = std::ssize(target.importance) / K;
      const float* importance =
          n_matrices == 0 ? nullptr : target.importance.data() + (row + i) / (n_rows / n_matrices) * K;
      quantise_row(target.dtype, from, out.data() + i * a_row, K, importance);
    });
    if (!is_finite) return invalid(in_quotes(target.spec.name) + " would hold a number that is not finite");
    TRY(put({out.data(), static_cast<size_t>(n * a_row)}));
    written(n * K);
  }
  return {};
}

// Rows of codes as they are.
Status write_codes(const GgufCodes& codes, const Target& target, ThreadTeam& team, const GgufWriter::Put& put) {
  const int64_t K = target.row_len(), a_row = row_bytes(codes.dtype, K);
  std::atomic<bool> is_finite = true;
  std::vector<std::vector<float>> rows(static_cast<size_t>(team.n_threads()));
  team.parallel_for(target.n_rows(), [&](int64_t i, int thread) {
    std::vector<float>& row = rows[static_cast<size_t>(thread)];
    row.resize(static_cast<size_t>(K));
    dequantise_row(codes.dtype, codes.rows.data() + i * a_row, row.data(), K);
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) is_finite = false;
  });
  if (!is_finite) return invalid(in_quotes(target.spec.name) + " would hold a number that is not finite");
  return put(codes.rows);
}

QuantMix own_mix(const ModelFile& folder, bool is_quantised) {
  const auto is_half = [&](const TensorInfo& t) {
    if (is_quantised && t.view.dtype != DType::kBF16 && t.view.dtype != DType::kF32) return true;
    return t.view.rank < 2 || t.view.dtype == DType::kF16;
  };
  return std::ranges::all_of(folder.tensors(), is_half) ? QuantMix::kF16 : QuantMix::kBF16;
}

// Which matrices of a quantised folder keep their codes: those whose type is the wished one or, where none is wished,
// all. One that would get another quantised type is an error unless `requantises`.
Status choose_codes(const ModelFile& folder, const QuantRecipe& recipe, const ModelConfig& config,
                    const ConvertOptions& options, Target& target) {
  if (stays_float(target.spec)) return {};
  ASSIGN_OR_RETURN(const std::optional<GgufCodes> codes, gguf_codes(folder, recipe, config, target.spec, false));
  if (!codes) return {};
  if (!options.types || is_left(*options.types, target.spec.name)) target.wished = target.dtype = codes->dtype;
  target.keeps_codes = target.dtype == codes->dtype;
  if (target.keeps_codes || !is_quantised(target.dtype) || options.requantises) return {};
  return unsupported(in_quotes(target.spec.name) + " of " + folder.path() +
                     " is quantised already, and what it lost stays lost; --type auto keeps its codes, `ibid quantize "
                     "--allow-requantize` quantises it again, and the model that it was made of gives a better file");
}

// The mixture that has most of a file's parameters.
QuantMix most_of(const std::vector<Target>& targets, QuantMix otherwise) {
  std::map<DType, int64_t> n_of;
  for (const Target& t : targets) n_of[t.dtype] += t.keeps_codes ? t.n_rows() * t.row_len() : 0;
  QuantMix mix = otherwise;
  int64_t most = 0;
  for (const QuantMix m : {QuantMix::kQ4_0, QuantMix::kQ4_1, QuantMix::kQ5_0, QuantMix::kQ5_1, QuantMix::kQ8_0,
                           QuantMix::kMXFP4, QuantMix::kF16, QuantMix::kBF16, QuantMix::kF32}) {
    if (n_of[quant_mix_base(m)] <= most) continue;
    most = n_of[quant_mix_base(m)];
    mix = m;
  }
  return mix;
}

// Parameters of the folder that are in floats and belong to no quantised matrix.
int64_t floats_of(const ModelFile& folder, const QuantRecipe& recipe) {
  int64_t n = 0;
  for (const TensorInfo& t : folder.tensors()) {
    const std::string base = t.name.substr(0, t.name.find(".weight"));
    const std::string stem = t.name.substr(0, t.name.rfind('.'));
    const bool is_part = QuantisedMatrix::is_in(folder, recipe, base + ".weight") ||
                         (!t.name.ends_with(".bias") && QuantisedMatrix::is_in(folder, recipe, stem + ".weight"));
    if (is_weight_type(t.view.dtype) && !is_part && !is_beside_quantised(t)) n += t.view.n_elements();
  }
  return n;
}

// What llama.cpp calls a tensor in files of an architecture, where that is another name than all others have for it.
std::string written_name(const std::string& architecture, const std::string& name) {
  constexpr std::tuple<std::string_view, std::string_view, std::string_view> kOthers[] = {
      {"falcon-h1", ".ffn_norm.weight", ".ffn_norm"},
      {"hy_v3", ".exp_probs_b.bias", ".exp_probs_b"},
      {"glm4moe", ".ffn_norm.weight", ".post_attention_norm.weight"},
      {"gpt-oss", ".ffn_norm.weight", ".post_attention_norm.weight"},
      {"seed_oss", ".ffn_norm.weight", ".post_attention_norm.weight"}};
  for (const auto& [of, end, written] : kOthers) {
    if (architecture == of && name.ends_with(end))
      return name.substr(0, name.size() - end.size()) + std::string(written);
  }
  return name;
}

void count(const Target& target, Requantised& out) {
  const int64_t n_rows = target.n_rows();
  out.n_parameters += n_rows * target.row_len();
  out.bytes += static_cast<uint64_t>(n_rows * row_bytes(target.dtype, target.row_len()));
  const auto n = static_cast<uint64_t>(n_rows * target.row_len());
  const auto bytes = static_cast<uint64_t>(n_rows * row_bytes(target.dtype, target.row_len()));
  out.tensors.push_back({target.spec.name, target.spec.dims, DType::kF32, target.dtype, 4 * n, bytes});
  if (target.spec.dims.size() >= 2) ++out.matrices[target.dtype];
  if (!target.importance.empty()) ++out.n_weighted;
  if (target.dtype != target.wished) ++out.instead[{target.wished, target.dtype, target.row_len()}];
}

}  // namespace

Result<Converted> convert(const ModelFile& folder, const std::string& to, const ConvertOptions& options,
                          ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress) {
  if (folder.container() != Container::kSafetensors) {
    return invalid(folder.path() + " is a GGUF file already; `ibid quantize` gives it other types");
  }
  ASSIGN_OR_RETURN(const ModelConfig own_config, read_config(folder));
  ASSIGN_OR_RETURN(const QuantRecipe recipe, read_quant_recipe(folder));
  const bool is_quantised = recipe.method != QuantMethod::kNone;
  const ModelConfig config = gguf_config_of(own_config);
  const std::vector<TensorSpec> specs = tensors_of(config);
  std::map<std::string, std::vector<float>> ropes = rope_vectors_of(config);
  Metadata metadata = metadata_of(config);
  TRY(check_form(folder, config, metadata, specs, ropes));
  Converted out;
  out.has_vocabulary = !folder.tokenizer_json().empty();
  if (out.has_vocabulary) TRY(put_tokens(folder, config, metadata));

  const QuantMix own = own_mix(folder, is_quantised);
  const TypeRules types = options.types.value_or(TypeRules{.mix = own});
  GgufWriter writer;
  writer.set("general.architecture", metadata.find("general.architecture")->second);
  writer.set("general.type", "model");
  if (!options.name.empty()) writer.set("general.name", options.name.c_str());
  std::vector<Target> targets;
  for (const TensorSpec& spec : specs) {
    targets.push_back(target_of(spec, config, types, quant_mix_base(own)));
    if (is_quantised) TRY(choose_codes(folder, recipe, own_config, options, targets.back()));
    out.n_kept += targets.back().keeps_codes;
  }
  const QuantMix named = options.types || !is_quantised ? types.mix : most_of(targets, own);
  writer.set("general.file_type", MetaValue(quant_mix_file_type(named)));
  writer.set("general.quantization_version", 2);
  for (const auto& [of_folder, of_gguf] : kSamplingKeys) {
    if (const MetaValue* value = folder.meta(of_folder); value != nullptr) writer.set(of_gguf, *value);
  }
  for (const auto& [key, value] : metadata) writer.set(key, value);

  int64_t n_in_floats = 0;
  for (Target& target : targets) {
    const std::vector<int64_t>& dims = target.spec.dims;
    if (options.importance != nullptr && !stays_float(target.spec) && !target.keeps_codes) {
      ASSIGN_OR_RETURN(target.importance,
                       options.importance->weights(target.spec.name, dims.size() == 3 ? dims[0] : 1, target.row_len()));
    }
    if (!target.keeps_codes) TRY(check_importance(target.spec.name, target.dtype, !target.importance.empty()));
    count(target, out.weights);
    if (!is_quantised) continue;
    ASSIGN_OR_RETURN(const std::optional<GgufCodes> codes, gguf_codes(folder, recipe, own_config, target.spec, false));
    n_in_floats += codes ? 0 : target.n_rows() * target.row_len();
  }
  int64_t n_of_folder = 0;
  for (const TensorInfo& t : folder.tensors()) n_of_folder += t.view.n_elements();
  out.n_left_out = std::max<int64_t>(
      0, is_quantised ? floats_of(folder, recipe) - n_in_floats : n_of_folder - out.weights.n_parameters);
  uint64_t done = 0;
  const auto written = [&](int64_t n) {
    done += static_cast<uint64_t>(n);
    if (progress) progress(done, static_cast<uint64_t>(out.weights.n_parameters));
  };
  const auto& architecture = std::get<std::string>(metadata.find("general.architecture")->second);
  for (const Target& target : targets) {
    writer.add_tensor(written_name(architecture, target.spec.name), target.dtype, target.spec.dims,
                      [&, target = &target](const GgufWriter::Put& put) -> Status {
                        if (target->keeps_codes) {
                          ASSIGN_OR_RETURN(const std::optional<GgufCodes> codes,
                                           gguf_codes(folder, recipe, own_config, target->spec, true));
                          folder.forget_all();
                          TRY(write_codes(*codes, *target, team, put));
                          written(target->n_rows() * target->row_len());
                          return {};
                        }
                        ASSIGN_OR_RETURN(const std::vector<float> values,
                                         gguf_values(folder, recipe, own_config, target->spec));
                        folder.forget_all();
                        return write_rows(values, *target, team, put, written);
                      });
  }
  for (const auto& [name, values] : ropes) {
    writer.add_tensor(name, DType::kF32, {std::ssize(values)}, std::as_bytes(std::span(values)));
  }
  if (options.dry_run) return out;
  TRY(write_gguf(writer, to, options.shards, {}));
  return out;
}

}  // namespace ibid
