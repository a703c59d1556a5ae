#include "model/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "format/quantised_matrix.h"
#include "kernels/math.h"
#include "kernels/reference.h"
#include "tensor/block_formats.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

// Where a folder's text model begins: alone, or beside a vision tower (two generations of names); of an encoder, under
// a head. What stands outside of it, the heads themselves, has no prefix.
constexpr std::array<std::string_view, 6> kFolderPrefixes = {"model.", "language_model.model.", "model.language_model.",
                                                             "bert.",  "transformer.",          "backbone."};
constexpr std::array<std::string_view, 2> kOutside = {"lm_head.", "classifier."};

// Tensors that a forward pass over text has no use for.
constexpr std::array<std::string_view, 14> kUnused = {"rope_freqs.weight",  // read with the configuration
                                                      "rope_factors_short.weight",
                                                      "rope_factors_long.weight",
                                                      "vision_tower.",
                                                      "multi_modal_projector.",
                                                      "mm_projector.",
                                                      "model.vision_tower.",
                                                      "model.embed_vision.",
                                                      "model.vision_adapter.",
                                                      "model.vision_projection.",
                                                      "model.audio_tower.",
                                                      "model.embed_audio.",
                                                      "visual.",
                                                      "model.visual."};

// One of a layer that drafts further tokens: beside the layers, or numbered after the last of them.
bool is_of_mtp_layer(std::string_view name, const ModelConfig& config) {
  if (config.n_mtp_layers == 0 || config.shape != Shape::kLlama) return false;
  if (name.starts_with("model.mtp_") || name.starts_with("mtp.") || name.starts_with("model.mtp.")) return true;
  for (const std::string_view layers : {"blk.", "model.layers."}) {
    for (int64_t l = config.n_layers; name.starts_with(layers) && l < config.n_layers + config.n_mtp_layers; ++l) {
      if (name.substr(layers.size()).starts_with(std::to_string(l) + ".")) return true;
    }
  }
  return false;
}

// Weights of keys and values of a layer that reads another's, which some files have all the same.
bool is_of_read_cache(std::string_view name, const ModelConfig& config) {
  if (config.shape != Shape::kGemma4) return false;
  constexpr std::array<std::string_view, 7> kOfCache = {".attn_k.weight", ".attn_v.weight", ".attn_k_norm.weight",
                                                        ".k_proj.weight", ".v_proj.weight", ".k_norm.weight",
                                                        ".v_norm.weight"};
  if (std::ranges::none_of(kOfCache, [&](std::string_view end) { return name.ends_with(end); })) return false;
  for (size_t l = 0; l < config.layers.size(); ++l) {
    const std::string number = std::to_string(l) + ".";
    const bool is_of_layer = name.starts_with("blk." + number) || name.find("model.layers." + number) != name.npos ||
                             name.find("language_model.layers." + number) != name.npos;
    if (is_of_layer) return config.layers[l].kv_owner != kOwnCache;
  }
  return false;
}

bool may_stay_unread(std::string_view name, const ModelConfig& config) {
  if (is_of_read_cache(name, config)) return true;
  if (is_of_mtp_layer(name, config)) return true;
  for (std::string_view prefix : kUnused) {
    if (name.starts_with(prefix)) return true;
  }
  // gpt-2's masks.
  if (config.shape == Shape::kGpt && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"))) return true;
  // The part of a file of towers that listens (gemma 4).
  if (config.architecture == "gemma4v" && (name.starts_with("a.") || name.starts_with("mm.a."))) return true;
  if (name.ends_with(".rotary_emb.inv_freq")) return true;  // old folders keep a copy of the frequencies
  if (name.starts_with("model.multi_modal_projector.")) return true;
  // What an encoder was trained with, and its texts' vectors are not made of.
  constexpr std::array<std::string_view, 5> kTraining = {"pooler.", "bert.pooler.", "cls.predictions.",
                                                         "cls.seq_relationship.", "embeddings.position_ids"};
  for (std::string_view prefix : kTraining) {
    if (config.is_encoder() && name.starts_with(prefix)) return true;
  }
  if (config.is_encoder() && name == "bert.embeddings.position_ids") return true;
  return config.tied_embedding && name.ends_with("lm_head.weight");
}

std::string shape_text(const int64_t* dims, int rank) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i != 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "]";
}

}  // namespace

std::string layer_name(std::string_view pattern, int64_t layer) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return std::string(pattern);
  return std::string(pattern.substr(0, at)) + std::to_string(layer) + std::string(pattern.substr(at + 2));
}

WeightLoader::WeightLoader(const ModelFile& file, const Architecture& architecture, const ModelConfig& config,
                           Stream& stream, Progress progress, bool sized_only, const PackedFile* packed)
    : file_(file),
      architecture_(architecture),
      config_(config),
      stream_(stream),
      progress_(std::move(progress)),
      sized_only_(sized_only),
      packed_(packed) {
  read_.resize(file.tensors().size());
  total_bytes_ = std::max<int64_t>(1, static_cast<int64_t>(file.tensor_bytes()));
  if (file.container() == Container::kGguf) return;
  recipe_ = read_quant_recipe(file).value();  // as read_config found it
  if (!config.is_encoder()) prefix_ = kFolderPrefixes[0];
  const std::string_view embedding = architecture.names.front().folder;
  for (std::string_view prefix : kFolderPrefixes) {
    if (is_there(std::string(prefix) + std::string(embedding))) prefix_ = prefix;
  }
  if (is_there(std::string(embedding))) prefix_.clear();  // some files of gpt-2
}

std::string WeightLoader::name_in_file(std::string_view canonical, int64_t layer) const {
  if (file_.container() == Container::kGguf) {
    std::string name = layer_name(canonical, layer);
    // Names that some architectures write instead: glm-4.5 calls the norm after attention so, hunyuan 3 has no ending,
    // lfm2's last norm has an encoder's first one's name; llama.cpp saves falcon-h1's norm without one.
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
        {"blk.{}.ffn_norm.weight", "blk.{}.post_attention_norm.weight"},
        {"blk.{}.ffn_norm.weight", "blk.{}.ffn_norm"},
        {"blk.{}.exp_probs_b.bias", "blk.{}.exp_probs_b"},
        {"output_norm.weight", "token_embd_norm.weight"}};
    for (const auto& [known, other] : kOthers) {
      if (canonical != known || file_.find(name) != nullptr) continue;
      std::string of_layer = layer_name(other, layer);
      if (file_.find(of_layer) != nullptr) return of_layer;
    }
    // Files of before 2024 have a tensor for each expert.
    if (const size_t at = name.find("_exps."); at != std::string::npos && file_.find(name) == nullptr) {
      std::string apart = name.substr(0, at) + ".{}." + name.substr(at + 6);
      if (file_.find(layer_name(apart, 0)) != nullptr) return apart;
    }
    return name;
  }
  std::string first;
  for (const WeightName& n : architecture_.names) {
    if (n.canonical != canonical) continue;
    const auto holds = [&n](std::string_view prefix) { return n.folder.starts_with(prefix); };
    const bool outside = std::ranges::any_of(kOutside, holds);
    std::string name = (outside ? "" : prefix_) + layer_name(n.folder, layer);
    if (outside && !is_there(name) && is_there("language_model." + name))
      return "language_model." + name;               // beside a vision tower, in the older of two generations
    if (is_there(layer_name(name, 0))) return name;  // of an expert its first
    if (first.empty()) first = std::move(name);
  }
  return first;
}

bool WeightLoader::has(std::string_view name, int64_t layer) const {
  const std::string in_file = name_in_file(name, layer);
  return !in_file.empty() && is_there(in_file);
}

bool WeightLoader::is_there(const std::string& in_file) const {
  return file_.find(in_file) != nullptr || QuantisedMatrix::is_in(file_, recipe_, in_file);
}

void WeightLoader::claim(const TensorInfo& info) {
  const auto i = static_cast<size_t>(&info - file_.tensors().data());
  if (read_[i]) return;
  read_[i] = true;
  done_bytes_ += static_cast<int64_t>(info.bytes());
}

Result<TensorView> WeightLoader::find(const std::string& in_file, std::initializer_list<int64_t> shape) {
  CHECK(!in_file.empty(), "a name of the table");
  const TensorInfo* info = file_.find(in_file);
  if (info == nullptr) {
    return invalid(file_.path() + " has no tensor " + in_quotes(in_file) + ", which " + config_.architecture +
                       " needs; the file is incomplete or its architecture is wrong",
                   in_file);
  }
  const TensorView& view = info->view;
  if (view.rank != static_cast<int>(shape.size()) || !std::equal(shape.begin(), shape.end(), view.dim.begin())) {
    return invalid(file_.path() + ": tensor " + in_quotes(in_file) + " has the shape " +
                       shape_text(view.dim.data(), view.rank) + "; the model's sizes ask for " +
                       shape_text(shape.begin(), static_cast<int>(shape.size())),
                   in_file);
  }
  claim(*info);
  return view;
}

namespace {

std::unique_ptr<float[]> memory_for(const TensorView& view) {
  return std::make_unique<float[]>(static_cast<size_t>((view.n_rows() * view.row_stride_bytes + 3) / 4));
}

}  // namespace

Result<TensorView> WeightLoader::convert(const std::string& in_file, std::initializer_list<int64_t> shape) {
  copy_.reset();
  const std::vector<int64_t> dims(shape);
  if (dims.size() != 2) {
    return unsupported(file_.path() + ": " + in_quotes(in_file) +
                           " is quantised, which ibid does not read of tensors with more than two dimensions",
                       in_file);
  }
  const int64_t N = dims[0], K = dims[1];
  ASSIGN_OR_RETURN(const QuantisedMatrix matrix, QuantisedMatrix::find(file_, recipe_, in_file, N, K));
  for (const TensorInfo* info : matrix.tensors()) claim(*info);
  is_copy_ = true;
  TensorView view(nullptr, matrix.dtype(), {N, K});
  if (sized_only_) return view;
  copy_ = memory_for(view);
  view.data = reinterpret_cast<std::byte*>(copy_.get());
  constexpr int64_t kRows = 16;  // of a part: a cache line of GPTQ's columns
  stream_.team().parallel_for((N + kRows - 1) / kRows, [&](int64_t part, int) {
    matrix.rows(part * kRows, std::min(N, (part + 1) * kRows), view.row(part * kRows));
  });
  for (const TensorInfo* info : matrix.tensors()) file_.forget(info->view);
  return view;
}

Result<TensorView> WeightLoader::find_matrix(const std::string& in_file, std::initializer_list<int64_t> shape) {
  is_copy_ = false;
  if (QuantisedMatrix::is_in(file_, recipe_, in_file)) return convert(in_file, shape);
  ASSIGN_OR_RETURN(TensorView view, find(in_file, shape));
  if (!is_weight_type(view.dtype)) {
    return invalid(file_.path() + ": tensor " + in_quotes(in_file) + " is of type " +
                       std::string(traits(view.dtype).name) + ", which a weight cannot be",
                   in_file);
  }
  return view;
}

void WeightLoader::count(const Weight& weight, bool reads_raw) {
  repacked_bytes_ += weight.packed_bytes;
  if (reads_raw || weight.packed_bytes == 0) mapped_bytes_ += weight.n_outputs * weight.raw.row_stride_bytes;
  if (progress_) progress_(static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
}

Status WeightLoader::expect_floats(const TensorView& view, const std::string& in_file, std::string_view what) const {
  if (view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16) return {};
  return invalid(file_.path() + ": tensor " + in_quotes(in_file) + " is of type " +
                     std::string(traits(view.dtype).name) + "; expected F32, F16 or BF16 for " + std::string(what),
                 in_file);
}

Status WeightLoader::check_supported(const TensorView& view, const std::string& in_file) const {
  const Status supported = weight_supported(stream_, view.dtype);
  if (supported.ok()) return {};
  return unsupported(file_.path() + ": tensor " + in_quotes(in_file) + ": " + supported.error().message, in_file);
}

Status WeightLoader::prepare(Weight& out, const TensorView& view, const KPieces& pieces, const std::string& in_file,
                             bool keeps_copy) {
  TRY(check_supported(view, in_file));
  if (sized_only_) {
    out = {.dtype = view.dtype, .n_outputs = view.dim[0], .n_inputs = view.dim[1], .pieces = pieces, .raw = view};
    out.packed_bytes = prepared_bytes(stream_, view);
    return {};
  }
  if (!is_copy_) {
    out = pack(view, pieces, in_file);
    return {};
  }
  out = prepare_weight(stream_, view, pieces);  // at each load
  if (keeps_copy || reference::selected() || out.packed_bytes == 0) {
    copies_.push_back(std::move(copy_));
  } else {
    out.raw.data = nullptr;
    copy_.reset();
  }
  return {};
}

Weight WeightLoader::pack(const TensorView& view, const KPieces& pieces, const std::string& in_file) {
  const int64_t tensor = file_.find(in_file) - file_.tensors().data(), n_bytes = prepared_bytes(stream_, view);
  Weight out;
  if (const auto kept = packed_ != nullptr ? packed_->find(tensor, view, n_bytes) : std::span<const std::byte>{};
      !kept.empty()) {
    out = weight_of_packed(stream_, view, pieces, kept);
  } else {
    out = prepare_weight(stream_, view, pieces);
    ++n_packed_again_;
    if (out.packed_bytes > 0) file_.forget(view);  // read for the last time, or row by row by embed()
  }
  if (out.packed_bytes > 0) prepared_.add(tensor, out);
  return out;
}

std::vector<Weight> WeightLoader::pack_all(const TensorView& view, const KPieces& pieces, const std::string& in_file) {
  const int64_t tensor = file_.find(in_file) - file_.tensors().data(), n_bytes = prepared_bytes(stream_, view);
  std::vector<Weight> out;
  if (const auto kept = packed_ != nullptr ? packed_->find(tensor, view, n_bytes) : std::span<const std::byte>{};
      !kept.empty()) {
    out = weights_of_packed(stream_, view, pieces, kept);
  } else {
    out = prepare_weights(stream_, view, pieces);
    ++n_packed_again_;
    if (n_bytes > 0) file_.forget(view);
  }
  if (n_bytes > 0) {
    Weight whole = out.front();
    whole.n_outputs = view.n_rows();
    whole.packed_bytes = n_bytes;
    prepared_.add(tensor, whole);
  }
  return out;
}

AdapterSeat& WeightLoader::add_seat(std::string_view name, int64_t layer, const Weight& weight) {
  AdapterSeat& seat = seats_.emplace_back();
  seat.name = layer_name(name, layer);
  seat.pattern = std::string(name) + ".weight";
  seat.layer = layer;
  seat.n_outputs = weight.n_outputs;
  seat.n_inputs = weight.n_inputs;
  seat.pieces = weight.pieces;
  return seat;
}

void WeightLoader::give_seat(Linear& out, std::string_view name, int64_t layer) {
  out.seat = static_cast<int32_t>(seats_.size());
  add_seat(name, layer, out.weight);
}

Status WeightLoader::experts(std::vector<Weight>& out, int32_t& seat, const LinearSpec& spec, int64_t layer,
                             int64_t n_experts) {
  TRY(load_experts(out, spec, layer, n_experts));
  seat = static_cast<int32_t>(seats_.size());
  add_seat(spec.name, layer, out.front()).n_experts = n_experts;
  return {};
}

Status WeightLoader::load_experts(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_experts) {
  const std::string in_file = name_in_file(std::string(spec.name) + ".weight", layer);
  const auto pieces = [&](DType dtype) {
    return spec.cut == Cut::kInputs ? pieces_of(dtype, spec.n_inputs, spec.group_len) : one_piece(spec.n_inputs);
  };
  if (in_file.find("{}") != std::string::npos) {
    out.resize(static_cast<size_t>(n_experts));
    for (int64_t e = 0; e < n_experts; ++e) {
      const std::string of_expert = layer_name(in_file, e);
      ASSIGN_OR_RETURN(TensorView view, find_matrix(of_expert, {spec.n_outputs, spec.n_inputs}));
      TRY(prepare(out[static_cast<size_t>(e)], view, pieces(view.dtype), of_expert));
      count(out[static_cast<size_t>(e)], false);
    }
    return read_out_scales(out, spec.name, layer);
  }
  ASSIGN_OR_RETURN(TensorView view, find_matrix(in_file, {n_experts, spec.n_outputs, spec.n_inputs}));
  TRY(check_supported(view, in_file));
  if (sized_only_) {
    out.clear();
    for (int64_t e = 0; e < n_experts; ++e)
      TRY(prepare(out.emplace_back(), view.matrix(e), pieces(view.dtype), in_file));
  } else {
    out = pack_all(view, pieces(view.dtype), in_file);
  }
  for (const Weight& weight : out) count(weight, false);
  return read_out_scales(out, spec.name, layer);
}

Status WeightLoader::read_out_scales(std::span<Weight> weights, std::string_view name, int64_t layer) {
  if (file_.container() != Container::kGguf) return {};
  const std::string canonical = std::string(name) + ".scale";
  // A scale that the architecture itself names is another thing: gemma 4's of each expert's weight.
  if (std::ranges::any_of(architecture_.names, [&](const WeightName& n) { return n.canonical == canonical; }))
    return {};
  const std::string in_file = layer_name(canonical, layer);
  if (file_.find(in_file) == nullptr) return {};
  ASSIGN_OR_RETURN(const TensorView view, find(in_file, {static_cast<int64_t>(weights.size())}));
  if (view.dtype != DType::kF32) {
    return invalid(file_.path() + ": tensor " + in_quotes(in_file) + " is of type " +
                       std::string(traits(view.dtype).name) + "; expected F32 for scales of products",
                   in_file);
  }
  for (size_t e = 0; e < weights.size(); ++e) {
    weights[e].out_scale = view.row_as<float>(0)[e];
    if (std::isfinite(weights[e].out_scale)) continue;
    return invalid(file_.path() + ": tensor " + in_quotes(in_file) + " has a scale that is not finite", in_file);
  }
  return {};
}

namespace {

// Row r of a product [N, K] in the order that its matrices have one above the other.
int64_t row_in_order(int64_t r, int64_t n_rows, RowOrder order) {
  return order == RowOrder::kPairs ? r / 2 + r % 2 * (n_rows / 2) : r;
}

// [E, K, N] -> [E, N, K], of elements of one size.
template <typename Element>
void turn(ThreadTeam& team, const TensorView& from, RowOrder order, Element* to) {
  constexpr int64_t kRows = 16;  // of a part
  const int64_t K = from.dim[1], N = from.dim[2], n_parts = (N + kRows - 1) / kRows;
  const auto* x = reinterpret_cast<const Element*>(from.data);
  team.parallel_for(from.dim[0] * n_parts, [&](int64_t part, int) {
    const int64_t e = part / n_parts, begin = part % n_parts * kRows, end = std::min(N, begin + kRows);
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t n = begin; n < end; ++n) to[(e * N + row_in_order(n, N, order)) * K + k] = x[(e * K + k) * N + n];
    }
  });
}

// blocks[E, N, K / 32, 16] and exponents[E, N, K / 32] -> [E, N, K] of MXFP4, of which a block's low halves are its
// first 16 values.
void join_mxfp4(ThreadTeam& team, const TensorView& blocks, const TensorView& exponents, RowOrder order,
                BlockMXFP4* to) {
  const int64_t N = blocks.dim[1], n_blocks = blocks.dim[2];
  team.parallel_for(blocks.dim[0] * N, [&](int64_t r, int) {
    const auto* codes = reinterpret_cast<const uint8_t*>(blocks.data) + r * n_blocks * 16;
    const auto* exponent = reinterpret_cast<const uint8_t*>(exponents.data) + r * n_blocks;
    const auto code = [&codes](int i) { return codes[i / 2] >> (i % 2 * 4) & 15; };
    BlockMXFP4* const row = to + (r / N * N + row_in_order(r % N, N, order)) * n_blocks;
    for (int64_t b = 0; b < n_blocks; ++b, codes += 16) {
      row[b].exponent = exponent[b];
      for (int i = 0; i < 16; ++i) row[b].codes[i] = static_cast<uint8_t>(code(i) | code(i + 16) << 4);
    }
  });
}

}  // namespace

void WeightLoader::take_copy(std::vector<Weight>& out, const TensorView& view, const KPieces& pieces,
                             std::unique_ptr<float[]> copy) {
  if (sized_only_) {
    out.clear();
    for (int64_t e = 0; e < view.dim[0]; ++e) {
      Weight& w = out.emplace_back();
      w = {.dtype = view.dtype, .n_outputs = view.dim[1], .n_inputs = view.dim[2], .pieces = pieces};
      w.raw = TensorView(nullptr, view.dtype, {view.dim[1], view.dim[2]});
      w.packed_bytes = prepared_bytes(stream_, w.raw);
    }
  } else {
    out = prepare_weights(stream_, view, pieces);
  }
  for (const Weight& weight : out) count(weight, false);
  // Kernels read the packed form, and the copy is as long.
  const bool is_read = reference::selected() || out.front().packed_bytes == 0;
  if (copy == nullptr) return;
  if (is_read) return copies_.push_back(std::move(copy));
  for (Weight& weight : out) weight.raw.data = nullptr;
}

bool WeightLoader::has_turned_experts(const LinearSpec& spec, int64_t layer) const {
  const std::string name(spec.name);
  return has(name + ".turned", layer) || has(name + ".blocks", layer);
}

Status WeightLoader::turned_experts(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_experts,
                                    RowOrder order) {
  const std::string name(spec.name);
  const int64_t N = spec.n_outputs, K = spec.n_inputs;
  const bool in_blocks = has(name + ".blocks", layer);
  const std::string in_file = name_in_file(name + (in_blocks ? ".blocks" : ".turned"), layer);
  TensorView from, exponents, view;
  if (in_blocks) {
    if (K % 32 != 0) {
      return invalid(
          file_.path() + ": tensor " + in_quotes(in_file) + " has blocks of 32 values in rows of " + std::to_string(K),
          in_file);
    }
    const std::string of_exponents = name_in_file(name + ".exponents", layer);
    ASSIGN_OR_RETURN(from, find(in_file, {n_experts, N, K / 32, 16}));
    ASSIGN_OR_RETURN(exponents, find(of_exponents, {n_experts, N, K / 32}));
    for (const auto& [bytes, of] : {std::pair(&from, &in_file), std::pair(&exponents, &of_exponents)}) {
      if (bytes->dtype == DType::kI8) continue;
      return invalid(file_.path() + ": tensor " + in_quotes(*of) + " is of type " +
                         std::string(traits(bytes->dtype).name) + "; expected U8 for blocks of MXFP4",
                     *of);
    }
    view = TensorView(nullptr, DType::kMXFP4, {n_experts, N, K});
  } else {
    ASSIGN_OR_RETURN(from, find(in_file, {n_experts, K, N}));
    TRY(expect_floats(from, in_file, "columns of experts"));
    view = TensorView(nullptr, from.dtype, {n_experts, N, K});
  }
  TRY(check_supported(view, in_file));
  std::unique_ptr<float[]> copy;
  if (!sized_only_) {
    copy = memory_for(view);
    view.data = reinterpret_cast<std::byte*>(copy.get());
    if (in_blocks) {
      join_mxfp4(stream_.team(), from, exponents, order, reinterpret_cast<BlockMXFP4*>(copy.get()));
    } else if (from.dtype == DType::kF32) {
      turn(stream_.team(), from, order, copy.get());
    } else {
      turn(stream_.team(), from, order, reinterpret_cast<uint16_t*>(copy.get()));
    }
  }
  const KPieces pieces = spec.cut == Cut::kInputs ? pieces_of(view.dtype, K, spec.group_len) : one_piece(K);
  take_copy(out, view, pieces, std::move(copy));
  return {};
}

Status WeightLoader::heads(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_heads) {
  const std::string in_file = name_in_file(std::string(spec.name) + ".weight", layer);
  const int64_t N = spec.n_outputs, K = spec.n_inputs;
  const TensorInfo* info = in_file.empty() ? nullptr : file_.find(in_file);
  const bool is_flat = (info != nullptr && info->view.rank == 2) ||
                       (!in_file.empty() && QuantisedMatrix::is_in(file_, recipe_, in_file));
  ASSIGN_OR_RETURN(TensorView view,
                   is_flat ? find_matrix(in_file, {n_heads * N, K}) : find_matrix(in_file, {n_heads, N, K}));
  TRY(check_supported(view, in_file));
  view = TensorView(view.data, view.dtype, {n_heads, N, K});
  if (is_copy_) {
    take_copy(out, view, one_piece(K), std::move(copy_));
    return {};
  }
  out = sized_only_ ? std::vector<Weight>() : pack_all(view, one_piece(K), in_file);
  for (int64_t h = 0; sized_only_ && h < n_heads; ++h)
    TRY(prepare(out.emplace_back(), view.matrix(h), one_piece(K), in_file));
  for (const Weight& weight : out) count(weight, false);
  return {};
}

Status WeightLoader::split_heads(std::vector<Weight>& k_b, std::vector<Weight>& v_b, std::string_view name,
                                 const LinearSpec& of_keys, const LinearSpec& of_values, int64_t layer,
                                 int64_t n_heads) {
  const std::string in_file = name_in_file(name, layer);
  const int64_t R = of_keys.n_outputs, plain = of_keys.n_inputs, V = of_values.n_outputs;
  ASSIGN_OR_RETURN(const TensorView from, find_matrix(in_file, {n_heads * (plain + V), R}));
  TRY(check_supported(from, in_file));
  TensorView keys(nullptr, is_quantised(from.dtype) ? DType::kF32 : from.dtype, {n_heads, R, plain});
  TensorView values(nullptr, from.dtype, {n_heads, V, R});
  std::unique_ptr<float[]> of_k, of_v;
  if (!sized_only_) {
    of_k = memory_for(keys);
    of_v = memory_for(values);
    keys.data = reinterpret_cast<std::byte*>(of_k.get());
    values.data = reinterpret_cast<std::byte*>(of_v.get());
    stream_.team().parallel_for(n_heads, [&](int64_t h, int) {
      const int64_t first = h * (plain + V), element = traits(keys.dtype).block_bytes;
      std::memcpy(values.row(h * V), from.row(first + plain), static_cast<size_t>(V * from.row_stride_bytes));
      std::vector<float> row(static_cast<size_t>(R));
      for (int64_t i = 0; i < plain; ++i) {
        const std::byte* source = from.row(first + i);
        if (is_quantised(from.dtype)) {
          dequantise_row(from.dtype, source, row.data(), R);
          source = reinterpret_cast<const std::byte*>(row.data());
        }
        for (int64_t r = 0; r < R; ++r)
          std::memcpy(keys.row(h * R + r) + i * element, source + r * element, static_cast<size_t>(element));
      }
    });
  }
  take_copy(k_b, keys, one_piece(plain), std::move(of_k));
  take_copy(v_b, values, one_piece(R), std::move(of_v));
  return {};
}

Status WeightLoader::expert_bias(TensorView& out, const LinearSpec& spec, int64_t layer, int64_t n_experts,
                                 RowOrder order) {
  const int64_t N = spec.n_outputs;
  const std::string in_file = name_in_file(std::string(spec.name) + ".bias", layer);
  ASSIGN_OR_RETURN(TensorView view, find(in_file, {n_experts, N}));
  TRY(expect_floats(view, in_file, "a bias"));
  out = TensorView(nullptr, DType::kF32, {n_experts, N});
  repacked_bytes_ += out.n_elements() * 4;
  if (sized_only_) return {};
  std::vector<float> row(static_cast<size_t>(N));
  auto copy = memory_for(out);
  for (int64_t e = 0; e < n_experts; ++e) {
    dequantise_row(view.dtype, view.row(e), row.data(), N);
    for (int64_t n = 0; n < N; ++n)
      copy[static_cast<size_t>(e * N + row_in_order(n, N, order))] = row[static_cast<size_t>(n)];
  }
  out.data = reinterpret_cast<std::byte*>(copy.get());
  copies_.push_back(std::move(copy));
  return {};
}

Status WeightLoader::float_matrix(Linear& out, std::string_view name, int64_t layer, int64_t n_outputs,
                                  int64_t n_inputs) {
  const std::string in_file = name_in_file(name, layer);
  const TensorInfo* info = file_.find(in_file);
  const bool is_vector = n_outputs == 1 && info != nullptr && info->view.rank == 1;
  ASSIGN_OR_RETURN(TensorView view, is_vector ? find(in_file, {n_inputs}) : find(in_file, {n_outputs, n_inputs}));
  TRY(expect_floats(view, in_file, "a router"));
  if (view.dtype != DType::kF32) repacked_bytes_ += view.n_elements() * 4;
  if (view.dtype != DType::kF32 && !sized_only_) {
    auto copy = std::make_unique<float[]>(static_cast<size_t>(view.n_elements()));
    dequantise(view, copy.get());
    view.data = reinterpret_cast<std::byte*>(copy.get());
    copies_.push_back(std::move(copy));
  }
  view = TensorView(view.data, DType::kF32, {n_outputs, n_inputs});
  const KPieces pieces = one_piece(n_inputs);
  if (sized_only_) {
    out.weight = {.n_outputs = n_outputs, .n_inputs = n_inputs, .pieces = pieces, .raw = view};
    out.weight.packed_bytes = prepared_bytes(stream_, view);
  } else {
    out.weight = prepare_weight(stream_, view, pieces);
  }
  count(out.weight, false);
  give_seat(out, name.substr(0, name.rfind('.')), layer);
  return {};
}

Status WeightLoader::matrix(Weight& out, std::string_view name, int64_t layer, int64_t n_outputs, int64_t n_inputs,
                            bool use_packed) {
  const std::string in_file = name_in_file(name, layer);
  ASSIGN_OR_RETURN(TensorView view, find_matrix(in_file, {n_outputs, n_inputs}));
  if (use_packed) {
    TRY(prepare(out, view, one_piece(n_inputs), in_file, /*keeps_copy=*/true));
    TRY(read_out_scales({&out, 1}, name.substr(0, name.rfind('.')), layer));
  } else {
    if (is_copy_) copies_.push_back(std::move(copy_));
    out = Weight{
        .dtype = view.dtype, .n_outputs = n_outputs, .n_inputs = n_inputs, .pieces = one_piece(n_inputs), .raw = view};
  }
  count(out, true);
  return {};
}

Status WeightLoader::linear(Linear& out, const LinearSpec& spec, int64_t layer) {
  TRY(load(out, spec, layer));
  give_seat(out, spec.name, layer);
  seats_.back().n_rows = spec.n_rows;
  seats_.back().first_row = spec.first_row;
  const WeightName* row = in_table(std::string(spec.name) + ".weight");
  seats_.back().by_head = row != nullptr && row->by_head;
  return {};
}

Status WeightLoader::load(Linear& out, const LinearSpec& spec, int64_t layer) {
  const std::string name(spec.name), in_file = name_in_file(name + ".weight", layer);
  out.slice.cut = spec.cut;
  if (spec.n_rows != 0) return part_of_rows(out, spec, in_file, layer);
  const WeightName* row = in_table(name + ".weight");
  if (row != nullptr && row->by_head) return part_heads(out, spec, in_file, layer);
  if (row != nullptr && row->transposed) {
    TRY(transpose(out.weight, spec, in_file));
    return spec.has_bias ? vector(out.bias, name + ".bias", layer, spec.n_outputs) : Status{};
  }
  ASSIGN_OR_RETURN(TensorView view, find_matrix(in_file, {spec.n_outputs, spec.n_inputs}));
  const bool in_pieces = spec.cut == Cut::kInputs;
  TRY(prepare(out.weight, view,
              in_pieces ? pieces_of(view.dtype, spec.n_inputs, spec.group_len) : one_piece(spec.n_inputs), in_file));
  count(out.weight, false);
  TRY(read_out_scales({&out.weight, 1}, spec.name, layer));
  return spec.has_bias ? vector(out.bias, name + ".bias", layer, spec.n_outputs) : Status{};
}

Status WeightLoader::vector(TensorView& out, std::string_view name, int64_t layer, int64_t len, float offset,
                            float factor) {
  const std::string in_file = name_in_file(name, layer);
  const TensorInfo* info = file_.find(in_file);
  const bool is_row = info != nullptr && info->view.rank == 2 && info->view.dim[0] == 1;
  ASSIGN_OR_RETURN(TensorView view, is_row ? find(in_file, {1, len}) : find(in_file, {len}));
  return take_vector(out, view, in_file, offset, factor);
}

Status WeightLoader::flat(TensorView& out, std::string_view name, int64_t layer, int64_t n_rows, int64_t n_columns) {
  const std::string in_file = name_in_file(name, layer);
  const TensorInfo* info = file_.find(in_file);
  const int rank = info == nullptr ? 1 : info->view.rank;
  const bool are_several = rank == 3 && info->view.dim[0] > 0 && n_rows % info->view.dim[0] == 0;
  const int64_t n = are_several ? info->view.dim[0] : 1;
  ASSIGN_OR_RETURN(const TensorView view, are_several ? find(in_file, {n, n_rows / n, n_columns})
                                          : rank == 2 ? find(in_file, {n_rows, n_columns})
                                                      : find(in_file, {n_rows * n_columns}));
  return take_vector(out, view, in_file, 0, 1);
}

Status WeightLoader::take_vector(TensorView& out, const TensorView& in_shape, const std::string& in_file, float offset,
                                 float factor) {
  TRY(expect_floats(in_shape, in_file, "a norm or a bias"));
  const int64_t len = in_shape.n_elements();
  const TensorView view(in_shape.data, in_shape.dtype, {len});
  if (view.dtype == DType::kF32 && offset == 0 && factor == 1) {
    mapped_bytes_ += view.row_stride_bytes;
    out = view;
    return {};
  }
  auto copy = std::make_unique<float[]>(static_cast<size_t>(len));
  dequantise_row(view.dtype, view.data, copy.get(), len);
  for (int64_t i = 0; i < len; ++i) copy[static_cast<size_t>(i)] = (copy[static_cast<size_t>(i)] + offset) * factor;
  out = TensorView(copy.get(), DType::kF32, {len});
  repacked_bytes_ += len * 4;
  copies_.push_back(std::move(copy));
  return {};
}

Status WeightLoader::patches(Linear& out, std::string_view name, int64_t N, int64_t n_frames, int64_t side) {
  const bool in_parts = file_.container() == Container::kGguf;
  const int64_t n_parts = in_parts ? n_frames : 1, area = side * side, K = 3 * n_frames * area;
  auto copy = std::make_unique<float[]>(static_cast<size_t>(N * K));
  for (int64_t part = 0; part < n_parts; ++part) {
    const std::string in_file =
        name_in_file(std::string(name) + ".weight", 0) + (part > 0 ? "." + std::to_string(part) : "");
    ASSIGN_OR_RETURN(const TensorInfo* info, find_patches(in_file, N * K / n_parts));
    const int64_t n = area * n_frames / n_parts;  // side by side in both
    const std::byte* from = info->view.data;
    for (int64_t i = 0; i < 3 * N && !sized_only_; ++i, from += row_bytes(info->view.dtype, n))
      dequantise_row(info->view.dtype, from, copy.get() + i * n_frames * area + part * area, n);
  }
  take_patches(out, std::move(copy), N, K);
  return vector(out.bias, std::string(name) + ".bias", 0, N);
}

Status WeightLoader::patches_by_pixel(Linear& out, std::string_view name, int64_t N, int64_t side) {
  const bool by_channel = file_.container() == Container::kGguf;
  const int64_t area = side * side, K = 3 * area;
  const std::string in_file = name_in_file(std::string(name) + ".weight", 0);
  ASSIGN_OR_RETURN(const TensorInfo* info, find_patches(in_file, N * K));
  auto copy = std::make_unique<float[]>(static_cast<size_t>(N * K));
  std::vector<float> row(static_cast<size_t>(area));
  const std::byte* from = info->view.data;
  for (int64_t i = 0; i < 3 * N && !sized_only_; ++i, from += row_bytes(info->view.dtype, area)) {
    float* to = copy.get() + i / 3 * K;
    if (!by_channel) {
      dequantise_row(info->view.dtype, from, to + i % 3 * area, area);
      continue;
    }
    dequantise_row(info->view.dtype, from, row.data(), area);
    for (int64_t j = 0; j < area; ++j) to[3 * j + i % 3] = row[static_cast<size_t>(j)];
  }
  take_patches(out, std::move(copy), N, K);
  return {};
}

Result<const TensorInfo*> WeightLoader::find_patches(const std::string& in_file, int64_t n) {
  const TensorInfo* info = file_.find(in_file);
  if (info == nullptr || info->view.n_elements() != n || !info->view.is_contiguous()) {
    return invalid(file_.path() + ": the vision tower needs " + in_quotes(in_file) + " of " + std::to_string(n) +
                       " numbers, which the file has not",
                   in_file);
  }
  TRY(expect_floats(info->view, in_file, "the embedding of patches"));
  claim(*info);
  return info;
}

void WeightLoader::take_patches(Linear& out, std::unique_ptr<float[]> copy, int64_t N, int64_t K) {
  out.weight = prepare_weight(stream_, TensorView(copy.get(), DType::kF32, {N, K}), one_piece(K));
  copies_.push_back(std::move(copy));
  count(out.weight, false);
}

Status WeightLoader::transposed(Linear& out, std::string_view name, int64_t N, int64_t K) {
  return transpose(out.weight, {.name = name, .n_outputs = N, .n_inputs = K}, name_in_file(name, 0));
}

Status WeightLoader::taps(TensorView& out, std::string_view name, int64_t layer, int64_t n_taps, int64_t n_channels) {
  const std::string in_file = name_in_file(name, layer);
  const TensorInfo* info = file_.find(in_file);
  const bool is_of_folder = info != nullptr && info->view.rank == 3;
  ASSIGN_OR_RETURN(const TensorView view,
                   is_of_folder ? find(in_file, {n_channels, 1, n_taps}) : find(in_file, {n_channels, n_taps}));
  TRY(expect_floats(view, in_file, "a convolution over time"));
  const auto n = static_cast<size_t>(n_taps * n_channels);
  auto copy = std::make_unique<float[]>(n);
  std::vector<float> values(n);
  dequantise(view, values.data());
  for (size_t i = 0; i < n; ++i) {
    const size_t channel = i / static_cast<size_t>(n_taps), tap = i % static_cast<size_t>(n_taps);
    copy[tap * static_cast<size_t>(n_channels) + channel] = values[i];
  }
  out = TensorView(copy.get(), DType::kF32, {n_taps, n_channels});
  repacked_bytes_ += static_cast<int64_t>(n * sizeof(float));
  copies_.push_back(std::move(copy));
  return {};
}

const WeightName* WeightLoader::in_table(std::string_view canonical) const {
  const auto row = std::ranges::find(architecture_.names, canonical, &WeightName::canonical);
  return file_.container() == Container::kGguf || row == architecture_.names.end() ? nullptr : &*row;
}

Status WeightLoader::part_of_rows(Linear& out, const LinearSpec& spec, const std::string& in_file, int64_t layer) {
  CHECK(spec.cut != Cut::kInputs && spec.first_row + spec.n_outputs <= spec.n_rows);
  ASSIGN_OR_RETURN(const TensorView whole, find_matrix(in_file, {spec.n_rows, spec.n_inputs}));
  TRY(check_supported(whole, in_file));
  std::vector<Weight> one;
  std::byte* first = sized_only_ ? nullptr : whole.row(spec.first_row);
  take_copy(one, TensorView(first, whole.dtype, {1, spec.n_outputs, spec.n_inputs}), one_piece(spec.n_inputs),
            is_copy_ ? std::move(copy_) : nullptr);
  out.weight = one.front();
  if (!spec.has_bias) return {};
  TRY(vector(out.bias, std::string(spec.name) + ".bias", layer, spec.n_rows));
  out.bias =
      TensorView(out.bias.data + spec.first_row * static_cast<int64_t>(sizeof(float)), DType::kF32, {spec.n_outputs});
  return {};
}

Status WeightLoader::part_heads(Linear& out, const LinearSpec& spec, const std::string& in_file, int64_t layer) {
  const int64_t N = spec.n_outputs, H = config_.layers[static_cast<size_t>(layer)].n_heads, D = N / 3 / H;
  CHECK(N == 3 * H * D, "a query, a key and a value for each head");
  const auto place = [&](int64_t r) { return (r / D % 3 * H + r / D / 3) * D + r % D; };
  ASSIGN_OR_RETURN(const TensorView view, find_matrix(in_file, {N, spec.n_inputs}));
  TRY(check_supported(view, in_file));
  auto copy = sized_only_ ? nullptr : memory_for(view);
  TensorView parted(reinterpret_cast<std::byte*>(copy.get()), view.dtype, {1, N, spec.n_inputs});
  for (int64_t r = 0; r < N && !sized_only_; ++r)
    std::memcpy(parted.row(place(r)), view.row(r), static_cast<size_t>(view.row_stride_bytes));
  std::vector<Weight> one;
  take_copy(one, parted, one_piece(spec.n_inputs), std::move(copy));
  out.weight = one.front();
  if (!spec.has_bias) return {};
  TRY(vector(out.bias, std::string(spec.name) + ".bias", layer, N));
  const auto* values = out.bias.row_as<const float>(0);
  std::vector<float> in_parts(static_cast<size_t>(N));
  for (int64_t r = 0; r < N; ++r) in_parts[static_cast<size_t>(place(r))] = values[r];
  constant(out.bias, in_parts);
  return {};
}

Status WeightLoader::transpose(Weight& out, const LinearSpec& spec, const std::string& in_file) {
  const int64_t N = spec.n_outputs, K = spec.n_inputs;
  ASSIGN_OR_RETURN(TensorView view, find(in_file, {K, N}));
  TRY(expect_floats(view, in_file, "a matrix that lies transposed"));
  auto copy = std::make_unique<float[]>(static_cast<size_t>(N * K));
  std::vector<float> row(static_cast<size_t>(N));
  for (int64_t k = 0; k < K && !sized_only_; ++k) {
    dequantise_row(view.dtype, view.row(k), row.data(), N);
    for (int64_t n = 0; n < N; ++n) copy[static_cast<size_t>(n * K + k)] = row[static_cast<size_t>(n)];
  }
  const TensorView turned(copy.get(), DType::kF32, {N, K});
  const KPieces pieces = spec.cut == Cut::kInputs ? pieces_of(DType::kF32, K, spec.group_len) : one_piece(K);
  if (sized_only_) {
    out = {.dtype = DType::kF32, .n_outputs = N, .n_inputs = K, .pieces = pieces, .raw = turned};
    out.packed_bytes = prepared_bytes(stream_, turned);
  } else {
    out = prepare_weight(stream_, turned, pieces);
  }
  copies_.push_back(std::move(copy));
  count(out, false);
  return {};
}

void WeightLoader::constant(TensorView& out, std::span<const float> values) {
  auto copy = std::make_unique<float[]>(values.size());
  std::ranges::copy(values, copy.get());
  out = TensorView(copy.get(), DType::kF32, {std::ssize(values)});
  repacked_bytes_ += static_cast<int64_t>(values.size_bytes());
  copies_.push_back(std::move(copy));
}

Status WeightLoader::decay(TensorView& out, std::string_view name, int64_t layer, int64_t len) {
  TRY(flat(out, name, layer, len, 1));
  if (file_.container() == Container::kGguf) return {};
  std::vector<float> values(out.row_as<const float>(0), out.row_as<const float>(0) + len);
  for (float& a_log : values) a_log = -math::exp(a_log);
  constant(out, values);
  return {};
}

Status WeightLoader::expect_all_read() const {
  for (size_t i = 0; i < read_.size(); ++i) {
    const std::string& name = file_.tensors()[i].name;
    if (read_[i] || may_stay_unread(name, config_)) continue;
    if (file_.container() == Container::kGguf && name.ends_with(".input_scale"))
      continue;  // of activations in four bits
    if (recipe_.method != QuantMethod::kNone && is_beside_quantised(file_.tensors()[i])) continue;
    return unsupported(file_.path() + " has a tensor " + in_quotes(name) + " that ibid's " + config_.architecture +
                           " does not use; leaving it out would change the answers",
                       name);
  }
  return {};
}

}  // namespace ibid
