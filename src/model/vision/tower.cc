#include "model/vision/tower.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kv_layout.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/scratch.h"
#include "model/weights.h"

namespace ibid {
namespace {

constexpr int32_t kBlockLen = 32;
// Multiply-adds of a piece: some milliseconds on two cores.
constexpr int64_t kPieceMacs = int64_t{200} << 20;
constexpr int64_t kLeastRows = 16, kMostRows = 256;
constexpr double kRopeBase = 10000.0;

void run(Stream& s, const Linear& w, const TensorView& out, const TensorView& x) {
  const Linear* one = &w;
  linear(s, {}, {&out, 1}, x, {&one, 1});
}

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
  std::unique_ptr<Tower> tower(
      new Tower(std::move(file), std::move(config), std::move(digest), (max_patches + cell - 1) / cell * cell));
  TRY(tower->load_weights(stream));
  const TowerConfig& c = tower->config_;
  const int64_t widest = std::max({c.patch_len(), c.ffn_len, c.width * cell});
  TRY(stream.reserve_workspace(
      std::max(ops::linear_workspace_bytes(kMostRows, widest),
               ops::paged_attention_workspace_bytes(static_cast<int32_t>(kMostRows), static_cast<int32_t>(c.n_heads),
                                                    static_cast<int32_t>(c.head_len()),
                                                    static_cast<int32_t>(tower->max_patches_)))));
  return tower;
}

Status Tower::load_weights(Stream& stream) {
  const TowerConfig& c = config_;
  const Architecture architecture = {.names = tower_names(c.kind, *file_)};
  ModelConfig named;  // for the loader's sentences
  named.architecture = c.architecture;
  WeightLoader w(*file_, architecture, named, stream, {});
  const bool is_gguf = file_->container() == Container::kGguf, is_qwen = c.kind == TowerKind::kQwen;
  TRY(w.patches(patches_, "v.patch_embd", c.width, c.n_frames, c.patch_side));
  TRY(w.flat(positions_, "v.position_embd.weight", 0, c.grid_side * c.grid_side, c.width));
  layers_.resize(static_cast<size_t>(c.n_layers));
  for (int64_t l = 0; l < c.n_layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    TRY(load_norm(w, "v.blk.{}.ln1", l, c.width, layer.before_attention.weight, layer.before_attention.bias));
    TRY(load_norm(w, "v.blk.{}.ln2", l, c.width, layer.before_ffn.weight, layer.before_ffn.bias));
    if (is_qwen) {
      TRY(load_linear(w, "v.blk.{}.attn_qkv", l, 3 * c.width, c.width, layer.qkv.emplace_back()));
    } else {
      for (const char* name : {"v.blk.{}.attn_q", "v.blk.{}.attn_k", "v.blk.{}.attn_v"})
        TRY(load_linear(w, name, l, c.width, c.width, layer.qkv.emplace_back()));
    }
    TRY(load_linear(w, "v.blk.{}.attn_out", l, c.width, c.width, layer.out));
    TRY(load_linear(w, "v.blk.{}.ffn_up", l, c.ffn_len, c.width, layer.up));
    TRY(load_linear(w, "v.blk.{}.ffn_down", l, c.width, c.ffn_len, layer.down));
  }
  const int64_t cell_len = c.width * c.merge * c.merge;
  if (is_qwen) {
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
    const auto n_pairs = static_cast<size_t>(c.head_len() / 2);
    for (size_t i = 0; i < n_pairs; ++i) {
      const size_t of_axis = i % (n_pairs / 2);
      frequency_.push_back(math::pow(kRopeBase, -static_cast<double>(of_axis) / static_cast<double>(n_pairs / 2)));
      axes_.push_back(static_cast<uint8_t>(i / (n_pairs / 2)));
    }
  } else {
    TRY(load_norm(w, "v.post_ln", 0, c.width, last_norm_.weight, last_norm_.bias));
    TRY(w.vector(soft_norm_, "mm.soft_emb_norm.weight", 0, c.width, is_gguf ? 0.0f : 1.0f));
    TRY(w.transposed(projection_, "mm.input_projection.weight", c.out_width, c.width));
  }
  if (is_gguf) TRY(w.expect_all_read());
  weight_bytes_ = w.mapped_bytes() + w.repacked_bytes();
  copies_ = w.take_copies();
  return {};
}

int64_t run_bytes(const TowerConfig& c, int64_t n) {
  const int64_t n_cells = n / (c.merge * c.merge);
  return 4 * (n * (c.patch_len() + 4 * c.width + c.head_len()) + n_cells * c.row_len() +
              kMostRows * (6 * c.width + c.ffn_len + 2 * c.merge * c.merge * c.width));
}

int64_t tower_bytes(const ModelFile& file) {
  const bool is_alone = file.container() == Container::kGguf;
  int64_t bytes = 0;
  for (const TensorInfo& t : file.tensors()) {
    const bool is_of_tower = t.name.find("visual.") != std::string::npos ||
                             t.name.find("vision_tower.") != std::string::npos ||
                             t.name.find("multi_modal_projector.") != std::string::npos;
    if (is_alone || is_of_tower) bytes += static_cast<int64_t>(t.bytes());
  }
  return bytes;
}

Result<PictureRows> Tower::rows_of(int32_t grid_rows, int32_t grid_columns, const Sha256Digest& digest) const {
  const int64_t n = int64_t{grid_rows} * grid_columns;
  const bool is_cut =
      grid_rows < 1 || grid_columns < 1 || grid_rows % config_.merge != 0 || grid_columns % config_.merge != 0;
  const bool has_other_size =
      config_.kind == TowerKind::kGemma3 && (grid_rows != config_.grid_side || grid_columns != config_.grid_side);
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

// ---- one picture ---------------------------------------------------------------------------------------------------

namespace {

int64_t rows_of_piece(int64_t macs_of_row) { return std::clamp(kPieceMacs / macs_of_row, kLeastRows, kMostRows); }

}  // namespace

Status TowerRun::allocate(const TowerInput& in) {
  const TowerConfig& c = tower_.config_;
  const int64_t cell = c.merge * c.merge;
  grid_rows_ = in.grid_rows;
  grid_columns_ = in.grid_columns;
  n_patches_ = grid_rows_ * grid_columns_;
  n_cells_ = n_patches_ / cell;
  const std::vector<KvLayout> layout =
      kv_layouts(std::vector{KvGeometry{.n_kv_heads = static_cast<int32_t>(c.n_heads),
                                        .key_len = static_cast<int32_t>(c.head_len()),
                                        .value_len = static_cast<int32_t>(c.head_len())}},
                 DType::kF32, kBlockLen);
  const auto n_blocks = static_cast<int32_t>((n_patches_ + kBlockLen - 1) / kBlockLen);
  const int64_t kv_bytes = kv_pool_bytes(layout, n_blocks);
  TensorView kv;
  const auto place = [&](ScratchLayout& to) {
    input_ = to.take(n_patches_, c.patch_len());
    x_ = to.take(n_patches_, c.width);
    q_ = to.take(n_patches_, c.width);
    cos_sin_ = to.take(n_patches_, c.head_len());
    kv = to.take(1, kv_bytes / 4);
    h_ = to.take(kMostRows, c.width);
    qkv_ = to.take(kMostRows, 3 * c.width);
    attended_ = to.take(kMostRows, c.width);
    out_ = to.take(kMostRows, std::max(c.width, c.out_width));
    up_ = to.take(kMostRows, c.ffn_len);
    cells_ = to.take(kMostRows / cell, c.width * cell);
    cell_up_ = to.take(kMostRows / cell, c.width * cell);
  };
  ASSIGN_OR_RETURN(memory_,
                   allocate_scratch(cpu_memory(), place, "a picture of " + std::to_string(n_patches_) + " patches"));
  kv_ = kv_pool(layout, n_blocks, kv.data).front();
  for (int32_t i = 0; i < n_blocks; ++i) blocks_.push_back(BlockId{i});
  arrays_ = BatchArrays(
      kBlockLen,
      {.n_tokens = static_cast<size_t>(kMostRows), .n_sequences = 1, .n_blocks = static_cast<size_t>(n_blocks)});
  std::ranges::copy(in.patches, input_.row_as<float>(0));
  result_.resize(static_cast<size_t>(n_cells_ * c.row_len()));
  list_stages();
  return {};
}

void TowerRun::list_stages() {
  const TowerConfig& c = tower_.config_;
  const int64_t W = c.width, cell = c.merge * c.merge, of_attention = 2 * n_patches_ * W;
  const auto add = [this](StageKind kind, int64_t index, int64_t n_rows, int64_t macs_of_row) {
    const int64_t piece = rows_of_piece(macs_of_row);
    stages_.push_back({kind, index, n_rows, piece});
    n_steps_ += (n_rows + piece - 1) / piece;
  };
  const auto add_merge = [&](StageKind kind, int64_t index) {
    const int64_t macs_of_cell = cell * W * (cell * W + c.out_width);
    const int64_t piece = std::max<int64_t>(1, rows_of_piece(macs_of_cell / cell) / cell);
    stages_.push_back({kind, index, n_cells_, piece});
    n_steps_ += (n_cells_ + piece - 1) / piece;
  };
  add(StageKind::kEmbed, 0, n_patches_, c.patch_len() * W);
  for (int64_t l = 0; l < c.n_layers; ++l) {
    add(StageKind::kKeys, l, n_patches_, 3 * W * W);
    add(StageKind::kAttend, l, n_patches_, of_attention + W * W + 2 * W * c.ffn_len);
    const auto deep = std::ranges::find(c.deep_layers, l);
    if (deep != c.deep_layers.end()) add_merge(StageKind::kDeep, deep - c.deep_layers.begin());
  }
  add_merge(c.kind == TowerKind::kQwen ? StageKind::kMerge : StageKind::kAverage, 0);
}

bool TowerRun::step(Stream& s) {
  CHECK(n_done_ < n_steps_, "a picture that is done");
  const Stage& stage = stages_[stage_];
  const int64_t from = at_, n = std::min(stage.piece, stage.n_rows - from);
  const auto index = static_cast<size_t>(stage.index);
  switch (stage.kind) {
    case StageKind::kEmbed:
      embed(s, from, n);
      break;
    case StageKind::kKeys:
      keys(s, tower_.layers_[index], from, n);
      break;
    case StageKind::kAttend:
      attend(s, tower_.layers_[index], from, n);
      break;
    case StageKind::kDeep:
      merge(s, tower_.deep_[index], /*norms_cells=*/true, 1 + stage.index, from, n);
      break;
    case StageKind::kMerge:
      merge(s, tower_.merger_, /*norms_cells=*/false, 0, from, n);
      break;
    case StageKind::kAverage:
      average(s, from, n);
      break;
  }
  at_ += n;
  if (at_ == stage.n_rows) ++stage_, at_ = 0;
  return ++n_done_ == n_steps_;
}

std::vector<float> TowerRun::take() {
  CHECK(n_done_ == n_steps_, "a picture that is not done");
  return std::move(result_);
}

TensorView TowerRun::rows(const TensorView& of, int64_t from, int64_t n) {
  CHECK(from + n <= of.dim[0], "rows that a picture has");
  return TensorView(of.row(from), DType::kF32, {n, of.dim[1]});
}

TowerRun::Place TowerRun::place_of(int64_t patch) const {
  const int64_t m = tower_.config_.kind == TowerKind::kQwen ? tower_.config_.merge : 1;
  const int64_t cell = patch / (m * m), within = patch % (m * m), columns = grid_columns_ / m;
  return {cell / columns * m + within / m, cell % columns * m + within % m};
}

// The learned position of a place: that of the tower's own grid, stretched over the picture's so that the corners meet,
// between four of which is interpolated.
void TowerRun::add_position(const Place& at, float* x) const {
  const int64_t side = tower_.config_.grid_side, W = tower_.config_.width;
  const auto* table = tower_.positions_.row_as<const float>(0);
  struct Between {
    int64_t low, high;
    float part;
  };
  const auto between = [side](int64_t i, int64_t n) -> Between {
    if (n == 1) return {0, std::min<int64_t>(1, side - 1), 0.0f};
    const int64_t scaled = i * (side - 1), low = scaled / (n - 1);
    return {low, std::min(low + 1, side - 1),
            static_cast<float>(static_cast<double>(scaled % (n - 1)) / static_cast<double>(n - 1))};
  };
  const Between y = between(at.row, grid_rows_), z = between(at.column, grid_columns_);
  const float weights[4] = {(1 - y.part) * (1 - z.part), (1 - y.part) * z.part, y.part * (1 - z.part), y.part * z.part};
  const float* corners[4] = {table + (y.low * side + z.low) * W, table + (y.low * side + z.high) * W,
                             table + (y.high * side + z.low) * W, table + (y.high * side + z.high) * W};
  for (int64_t i = 0; i < W; ++i) {
    float sum = corners[0][i] * weights[0];
    for (int k = 1; k < 4; ++k) sum += corners[k][i] * weights[k];
    x[i] += sum;
  }
}

void TowerRun::embed(Stream& s, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const TensorView x = rows(x_, from, n);
  run(s, tower_.patches_, x, rows(input_, from, n));
  turned_by_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const Place at = place_of(from + i);
    add_position(at, x.row_as<float>(i));
    turned_by_.insert(turned_by_.end(), {static_cast<int32_t>(at.row), static_cast<int32_t>(at.column), 0});
  }
  if (c.kind == TowerKind::kQwen) ops::rope_angles(s, rows(cos_sin_, from, n), tower_.rope(), turned_by_);
}

// Patches see all patches: as tokens they stand at the last one's position.
ForwardBatch TowerRun::batch_of(int64_t from, int64_t n) {
  arrays_.clear();
  for (int64_t i = from; i < from + n; ++i)
    arrays_.add(TokenId{0}, static_cast<int32_t>(n_patches_ - 1), static_cast<int32_t>(i));
  arrays_.add_blocks(blocks_);
  arrays_.end_sequence();
  return arrays_.batch();
}

void TowerRun::keys(Stream& s, const Tower::Layer& w, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const TensorView h = rows(h_, 0, n), qkv = rows(qkv_, 0, n), q = rows(q_, from, n);
  ops::layer_norm(s, h, rows(x_, from, n), w.before_attention.weight, w.before_attention.bias, c.norm_eps);
  const TensorView parts[3] = {qkv.columns(0, c.width), qkv.columns(c.width, c.width),
                               qkv.columns(2 * c.width, c.width)};
  if (w.qkv.size() == 1) {
    run(s, w.qkv.front(), qkv, h);
  } else {
    const Linear* const all[3] = {&w.qkv[0], &w.qkv[1], &w.qkv[2]};
    linear(s, {}, parts, h, all);
  }
  if (c.kind == TowerKind::kQwen) {
    const TensorView angles = rows(cos_sin_, from, n);
    const auto head_len = static_cast<int>(c.head_len());
    for (const TensorView& part : {parts[0], parts[1]}) ops::rope(s, part, head_len, tower_.rope(), angles);
  }
  for (int64_t i = 0; i < n; ++i) std::copy_n(parts[0].row_as<float>(i), c.width, q.row_as<float>(i));
  ops::store_kv(s, kv_, parts[1], parts[2], batch_of(from, n));
}

void TowerRun::attend(Stream& s, const Tower::Layer& w, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const TensorView x = rows(x_, from, n), h = rows(h_, 0, n), attended = rows(attended_, 0, n), up = rows(up_, 0, n);
  const TensorView out(out_.data, DType::kF32, {n, c.width});
  ops::paged_attention(s, attended, rows(q_, from, n), kv_, batch_of(from, n),
                       {.scale = 1.0f / std::sqrt(static_cast<float>(c.head_len()))});
  run(s, w.out, out, attended);
  ops::add(s, x, out);
  ops::layer_norm(s, h, x, w.before_ffn.weight, w.before_ffn.bias, c.norm_eps);
  run(s, w.up, up, h);
  ops::gelu_tanh(s, up, up);
  run(s, w.down, out, up);
  ops::add(s, x, out);
}

// Cells [from, from + n), each of merge^2 patches that lie one after the other.
void TowerRun::merge(Stream& s, const Tower::Merger& w, bool norms_cells, int64_t part, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const int64_t cell = c.merge * c.merge;
  const TensorView in(x_.row(from * cell), DType::kF32, {n, cell * c.width});
  const TensorView normed = rows(cells_, 0, n), up = rows(cell_up_, 0, n);
  const TensorView out(out_.data, DType::kF32, {n, c.out_width});
  const auto as_patches = [&](const TensorView& of) { return TensorView(of.data, DType::kF32, {n * cell, c.width}); };
  if (norms_cells) {
    ops::layer_norm(s, normed, in, w.norm.weight, w.norm.bias, c.norm_eps);
  } else {
    ops::layer_norm(s, as_patches(normed), as_patches(in), w.norm.weight, w.norm.bias, c.norm_eps);
  }
  run(s, w.up, up, normed);
  ops::gelu(s, up, up);
  run(s, w.down, out, up);
  put(out, part, from);
}

void TowerRun::average(Stream& s, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const int64_t m = c.merge, columns = grid_columns_ / m;
  const TensorView of_cells(cells_.data, DType::kF32, {n, c.width}), h = rows(h_, 0, m * m);
  const TensorView out(out_.data, DType::kF32, {n, c.out_width});
  for (int64_t i = 0; i < n; ++i) {
    const int64_t top = (from + i) / columns * m, left = (from + i) % columns * m;
    auto* sum = of_cells.row_as<float>(i);
    std::fill_n(sum, c.width, 0.0f);
    for (int64_t y = 0; y < m; ++y) {
      const TensorView normed = rows(h, y * m, m);
      ops::layer_norm(s, normed, rows(x_, (top + y) * grid_columns_ + left, m), tower_.last_norm_.weight,
                      tower_.last_norm_.bias, c.norm_eps);
      for (int64_t z = 0; z < m; ++z) {
        for (int64_t j = 0; j < c.width; ++j) sum[j] += normed.row_as<float>(z)[j];
      }
    }
    for (int64_t j = 0; j < c.width; ++j) sum[j] /= static_cast<float>(m * m);
  }
  ops::rms_norm(s, of_cells, of_cells, tower_.soft_norm_, c.norm_eps);
  run(s, tower_.projection_, out, of_cells);
  put(out, 0, from);
}

void TowerRun::put(const TensorView& out, int64_t part, int64_t from) {
  const TowerConfig& c = tower_.config_;
  for (int64_t i = 0; i < out.dim[0]; ++i) {
    std::copy_n(out.row_as<float>(i), c.out_width, result_.data() + (from + i) * c.row_len() + part * c.out_width);
  }
}

}  // namespace ibid
