#include "model/vision/tower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/weights.h"

namespace ibid {
namespace {

constexpr uint8_t kRowAxis = 0, kColumnAxis = 1;  // of a patch's place

Status load_norm(WeightLoader& w, const std::string& name, int64_t layer, int64_t len, TensorView& weight,
                 TensorView& bias) {
  TRY(w.vector(weight, name + ".weight", layer, len));
  return w.vector(bias, name + ".bias", layer, len);
}

Status load_linear(WeightLoader& w, std::string_view name, int64_t layer, int64_t n_outputs, int64_t n_inputs,
                   Linear& out) {
  return w.linear(out, {.name = name, .n_outputs = n_outputs, .n_inputs = n_inputs, .has_bias = true}, layer);
}

}  // namespace

Result<std::unique_ptr<Tower>> Tower::load(std::shared_ptr<const ModelFile> file, std::string digest,
                                           int64_t max_patches, Stream& stream) {
  ASSIGN_OR_RETURN(TowerConfig config, read_tower(*file));
  const int64_t cell = config.merge * config.merge;
  if (config.kind == TowerKind::kGemma3) max_patches = config.grid_side * config.grid_side;
  if (config.kind == TowerKind::kGemma4) max_patches = std::min(max_patches, kMostGemma4Cells * cell);
  std::unique_ptr<Tower> tower(
      new Tower(std::move(file), std::move(config), std::move(digest), (max_patches + cell - 1) / cell * cell));
  TRY(tower->load_weights(stream));
  const TowerConfig& c = tower->config_;
  const int64_t widest = std::max({c.patch_len(), c.ffn_len, c.width * cell});
  TRY(stream.reserve_workspace(
      std::max(ops::linear_workspace_bytes(kMostTowerRows, widest),
               ops::paged_attention_workspace_bytes(static_cast<int32_t>(kMostTowerRows),
                                                    static_cast<int32_t>(c.n_heads), static_cast<int32_t>(c.head_len()),
                                                    static_cast<int32_t>(tower->max_patches_)))));
  return tower;
}

void Tower::set_rope(uint8_t first, uint8_t second) {
  const auto n_pairs = static_cast<size_t>(config_.head_len() / 2), half = n_pairs / 2;
  for (size_t i = 0; i < n_pairs; ++i) {
    frequency_.push_back(math::pow(config_.rope_base, -static_cast<double>(i % half) / static_cast<double>(half)));
    axes_.push_back(i < half ? first : second);
  }
}

Status Tower::load_layer(WeightLoader& w, int64_t l) {
  const TowerConfig& c = config_;
  Layer& layer = layers_[static_cast<size_t>(l)];
  TRY(load_norm(w, "v.blk.{}.ln1", l, c.width, layer.before_attention.weight, layer.before_attention.bias));
  TRY(load_norm(w, "v.blk.{}.ln2", l, c.width, layer.before_ffn.weight, layer.before_ffn.bias));
  if (c.kind == TowerKind::kQwen) {
    TRY(load_linear(w, "v.blk.{}.attn_qkv", l, 3 * c.width, c.width, layer.qkv.emplace_back()));
  } else {
    for (const char* name : {"v.blk.{}.attn_q", "v.blk.{}.attn_k", "v.blk.{}.attn_v"})
      TRY(load_linear(w, name, l, c.width, c.width, layer.qkv.emplace_back()));
  }
  TRY(load_linear(w, "v.blk.{}.attn_out", l, c.width, c.width, layer.out));
  TRY(load_linear(w, "v.blk.{}.ffn_up", l, c.ffn_len, c.width, layer.up));
  return load_linear(w, "v.blk.{}.ffn_down", l, c.width, c.ffn_len, layer.down);
}

Status Tower::load_gemma4_layer(WeightLoader& w, int64_t l) {
  const TowerConfig& c = config_;
  Layer& layer = layers_[static_cast<size_t>(l)];
  TRY(w.vector(layer.before_attention.weight, "v.blk.{}.ln1.weight", l, c.width));
  TRY(w.vector(layer.after_attention, "v.blk.{}.attn_post_norm.weight", l, c.width));
  TRY(w.vector(layer.before_ffn.weight, "v.blk.{}.ln2.weight", l, c.width));
  TRY(w.vector(layer.after_ffn, "v.blk.{}.ffn_post_norm.weight", l, c.width));
  TRY(w.vector(layer.q_norm, "v.blk.{}.attn_q_norm.weight", l, c.head_len()));
  TRY(w.vector(layer.k_norm, "v.blk.{}.attn_k_norm.weight", l, c.head_len()));
  layer.qkv.resize(3);
  const struct {
    const char* name;
    Linear* out;
    int64_t n_outputs, n_inputs;
  } products[kProducts] = {
      {"v.blk.{}.attn_q", &layer.qkv[0], c.width, c.width},   {"v.blk.{}.attn_k", &layer.qkv[1], c.width, c.width},
      {"v.blk.{}.attn_v", &layer.qkv[2], c.width, c.width},   {"v.blk.{}.attn_out", &layer.out, c.width, c.width},
      {"v.blk.{}.ffn_gate", &layer.gate, c.ffn_len, c.width}, {"v.blk.{}.ffn_up", &layer.up, c.ffn_len, c.width},
      {"v.blk.{}.ffn_down", &layer.down, c.width, c.ffn_len}};
  auto clips = std::make_unique<std::array<Clip, kProducts>>();
  for (size_t i = 0; i < kProducts; ++i) {
    const auto& p = products[i];
    TRY(w.linear(*p.out, {.name = p.name, .n_outputs = p.n_outputs, .n_inputs = p.n_inputs}, l));
    Clip& clip = (*clips)[i];
    const std::pair<const char*, float*> limits[] = {{".input_min", &clip.low_in},
                                                     {".input_max", &clip.high_in},
                                                     {".output_min", &clip.low_out},
                                                     {".output_max", &clip.high_out}};
    for (const auto& [end, limit] : limits) {
      TensorView number;
      if (c.clips) TRY(w.vector(number, std::string(p.name) + end, l, 1));
      if (c.clips) *limit = number.row_as<const float>(0)[0];
    }
    if (c.clips && !(clip.low_in <= clip.high_in && clip.low_out <= clip.high_out))
      return invalid(file_->path() + ": the vision tower's " + layer_name(p.name, l) + " has a range that is none");
  }
  if (c.clips) layer.clip = std::move(clips);
  return {};
}

Status Tower::load_qwen_end(WeightLoader& w) {
  const TowerConfig& c = config_;
  const bool is_gguf = file_->container() == Container::kGguf;
  const int64_t cell_len = c.width * c.merge * c.merge;
  TRY(load_norm(w, "v.post_ln", 0, c.width, merger_.norm.weight, merger_.norm.bias));
  TRY(load_linear(w, "mm.0", 0, cell_len, cell_len, merger_.up));
  TRY(load_linear(w, "mm.2", 0, c.out_width, cell_len, merger_.down));
  deep_.resize(c.deep_layers.size());
  for (size_t i = 0; i < deep_.size(); ++i) {
    const int64_t at = is_gguf ? c.deep_layers[i] : static_cast<int64_t>(i);
    TRY(load_norm(w, "v.deepstack.{}.norm", at, cell_len, deep_[i].norm.weight, deep_[i].norm.bias));
    TRY(load_linear(w, "v.deepstack.{}.fc1", at, cell_len, cell_len, deep_[i].up));
    TRY(load_linear(w, "v.deepstack.{}.fc2", at, c.out_width, cell_len, deep_[i].down));
  }
  set_rope(kRowAxis, kColumnAxis);
  return {};
}

Status Tower::load_gemma3_end(WeightLoader& w) {
  const TowerConfig& c = config_;
  const bool is_gguf = file_->container() == Container::kGguf;
  TRY(load_norm(w, "v.post_ln", 0, c.width, last_norm_.weight, last_norm_.bias));
  TRY(w.vector(soft_norm_, "mm.soft_emb_norm.weight", 0, c.width, is_gguf ? 0.0f : 1.0f));
  return w.transposed(projection_, "mm.input_projection.weight", c.out_width, c.width);
}

Status Tower::load_gemma4_end(WeightLoader& w) {
  const TowerConfig& c = config_;
  if (c.standardises) {
    TRY(w.vector(std_bias_, "v.std_bias", 0, c.width));
    TRY(w.vector(std_scale_, "v.std_scale", 0, c.width));
  }
  const std::vector<float> ones(static_cast<size_t>(c.width), 1.0f);
  w.constant(soft_norm_, ones);
  w.constant(ones_, std::span(ones).first(static_cast<size_t>(c.head_len())));
  set_rope(kColumnAxis, kRowAxis);
  return w.linear(projection_, {.name = "mm.input_projection", .n_outputs = c.out_width, .n_inputs = c.width}, 0);
}

Status Tower::load_weights(Stream& stream) {
  const TowerConfig& c = config_;
  const Architecture architecture = {.names = tower_names(c.kind, *file_)};
  ModelConfig named;  // for the loader's sentences
  named.architecture = c.architecture;
  WeightLoader w(*file_, architecture, named, stream, {});
  const bool is_gemma4 = c.kind == TowerKind::kGemma4;
  if (is_gemma4) {
    TRY(w.patches_by_pixel(patches_, "v.patch_embd", c.width, c.patch_side));
  } else {
    TRY(w.patches(patches_, "v.patch_embd", c.width, c.n_frames, c.patch_side));
  }
  TRY(w.flat(positions_, "v.position_embd.weight", 0, (is_gemma4 ? 2 : c.grid_side) * c.grid_side, c.width));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) TRY(is_gemma4 ? load_gemma4_layer(w, l) : load_layer(w, l));
  switch (c.kind) {
    case TowerKind::kQwen:
      TRY(load_qwen_end(w));
      break;
    case TowerKind::kGemma3:
      TRY(load_gemma3_end(w));
      break;
    case TowerKind::kGemma4:
      TRY(load_gemma4_end(w));
      break;
  }
  if (file_->container() == Container::kGguf) TRY(w.expect_all_read());
  weight_bytes_ = w.mapped_bytes() + w.repacked_bytes();
  copies_ = w.take_copies();
  return {};
}

int64_t run_bytes(const TowerConfig& c, int64_t n) {
  const int64_t n_cells = n / (c.merge * c.merge);
  const int64_t of_gemma4 = c.kind == TowerKind::kGemma4 ? c.ffn_len + std::max(c.width, c.ffn_len) : 0;
  return 4 * (n * (c.patch_len() + 4 * c.width + c.head_len()) + n_cells * c.row_len() +
              kMostTowerRows * (6 * c.width + c.ffn_len + 2 * c.merge * c.merge * c.width + of_gemma4));
}

int64_t tower_bytes(const ModelFile& file) {
  const bool is_alone = file.container() == Container::kGguf;
  int64_t bytes = 0;
  for (const TensorInfo& t : file.tensors()) {
    const bool is_of_tower =
        t.name.find("visual.") != std::string::npos || t.name.find("vision_tower.") != std::string::npos ||
        t.name.find("multi_modal_projector.") != std::string::npos || t.name.find("embed_vision.") != std::string::npos;
    if (is_alone || is_of_tower) bytes += static_cast<int64_t>(t.bytes());
  }
  return bytes;
}

Result<PictureRows> Tower::rows_of(int32_t grid_rows, int32_t grid_columns, const Sha256Digest& digest) const {
  const int64_t n = int64_t{grid_rows} * grid_columns;
  const bool is_cut =
      grid_rows < 1 || grid_columns < 1 || grid_rows % config_.merge != 0 || grid_columns % config_.merge != 0;
  const int64_t side = config_.grid_side;
  const bool has_other_size = (config_.kind == TowerKind::kGemma3 && (grid_rows != side || grid_columns != side)) ||
                              (config_.kind == TowerKind::kGemma4 && std::max(grid_rows, grid_columns) > side);
  if (is_cut || has_other_size || n > max_patches_) {
    return invalid("A picture of " + std::to_string(grid_rows) + " x " + std::to_string(grid_columns) +
                   " patches is none that the vision tower reads; it takes up to " + std::to_string(max_patches_) +
                   ", in cells of " + std::to_string(config_.merge) + " x " + std::to_string(config_.merge));
  }
  return PictureRows{.digest = digest,
                     .rows = static_cast<int32_t>(grid_rows / config_.merge),
                     .columns = static_cast<int32_t>(grid_columns / config_.merge),
                     .row_len = static_cast<int32_t>(config_.row_len())};
}

Result<std::unique_ptr<TowerRun>> Tower::begin(const TowerInput& in) const {
  TRY(rows_of(in.grid_rows, in.grid_columns, {}));
  CHECK(static_cast<int64_t>(in.patches.size()) == int64_t{in.grid_rows} * in.grid_columns * config_.patch_len(),
        "as many values as the grid has");
  std::unique_ptr<TowerRun> out(new TowerRun(*this));
  TRY(out->allocate(in));
  return out;
}

}  // namespace ibid
