// One picture's way through the tower, a piece of rows at a time.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "model/scratch.h"
#include "model/vision/tower.h"

namespace ibid {

namespace {

constexpr int32_t kBlockLen = 32;
// Multiply-adds of a piece: some milliseconds on two cores.
constexpr int64_t kPieceMacs = int64_t{200} << 20;
constexpr int64_t kLeastRows = 16, kMostPieces = 8;

int64_t rows_of_piece(int64_t macs_of_row) { return std::clamp(kPieceMacs / macs_of_row, kLeastRows, kMostTowerRows); }

void run(Stream& s, const Linear& w, const TensorView& out, const TensorView& x) {
  const Linear* one = &w;
  linear(s, {}, {&out, 1}, x, {&one, 1});
}

// NaN stays.
void clip(const TensorView& out, const TensorView& x, float low, float high) {
  for (int64_t i = 0; i < x.dim[0]; ++i) {
    const auto* from = x.row_as<const float>(i);
    auto* to = out.row_as<float>(i);
    for (int64_t j = 0; j < x.dim[1]; ++j) to[j] = from[j] < low ? low : from[j] > high ? high : from[j];
  }
}

// Rows of several heads as a row for each.
TensorView by_head(const TensorView& x, int64_t head_len) {
  return TensorView(x.data, DType::kF32, {x.dim[0] * x.dim[1] / head_len, head_len});
}

// gemma 4 turns each half of a head by itself, its quarters against each other. With the middle quarters exchanged
// these pairs are those of a whole head. What q and k have both changes no sum but for its order.
void exchange_middle_quarters(const TensorView& heads) {
  const int64_t quarter = heads.dim[1] / 4;
  for (int64_t i = 0; i < heads.dim[0]; ++i) {
    auto* x = heads.row_as<float>(i);
    std::swap_ranges(x + quarter, x + 2 * quarter, x + 2 * quarter);
  }
}

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
    h_ = to.take(kMostTowerRows, c.width);
    qkv_ = to.take(kMostTowerRows, 3 * c.width);
    attended_ = to.take(kMostTowerRows, c.width);
    out_ = to.take(kMostTowerRows, std::max(c.width, c.out_width));
    up_ = to.take(kMostTowerRows, c.ffn_len);
    cells_ = to.take(kMostTowerRows / cell, c.width * cell);
    cell_up_ = to.take(kMostTowerRows / cell, c.width * cell);
    if (c.kind == TowerKind::kGemma4) {
      gate_ = to.take(kMostTowerRows, c.ffn_len);
      clipped_ = to.take(kMostTowerRows, std::max(c.width, c.ffn_len));
    }
  };
  ASSIGN_OR_RETURN(memory_,
                   allocate_scratch(cpu_memory(), place, "a picture of " + std::to_string(n_patches_) + " patches"));
  kv_ = kv_pool(layout, n_blocks, kv.data).front();
  for (int32_t i = 0; i < n_blocks; ++i) blocks_.push_back(BlockId{i});
  arrays_ = BatchArrays(
      kBlockLen,
      {.n_tokens = static_cast<size_t>(kMostTowerRows), .n_sequences = 1, .n_blocks = static_cast<size_t>(n_blocks)});
  std::ranges::copy(in.patches, input_.row_as<float>(0));
  if (c.kind == TowerKind::kGemma4) {  // whose pictures have values from 0 to 1
    for (float& value : std::span(input_.row_as<float>(0), in.patches.size())) value = 2 * (value - 0.5f);
  }
  result_.resize(static_cast<size_t>(n_cells_ * c.row_len()));
  list_stages();
  return {};
}

void TowerRun::list_stages() {
  const TowerConfig& c = tower_.config_;
  const int64_t W = c.width, cell = c.merge * c.merge, of_attention = 2 * n_patches_ * W;
  const int64_t n_of_ffn = c.kind == TowerKind::kGemma4 ? 3 : 2;
  const auto add = [this](StageKind kind, int64_t index, int64_t n_rows, int64_t macs_of_row) {
    const int64_t piece = rows_of_piece(macs_of_row);
    stages_.push_back({kind, index, n_rows, piece, kMostTowerRows});
    n_steps_ += (n_rows + piece - 1) / piece;
  };
  const auto add_merge = [&](StageKind kind, int64_t index) {
    const int64_t macs_of_cell = cell * W * (cell * W + c.out_width);
    const int64_t piece = std::max<int64_t>(1, rows_of_piece(macs_of_cell / cell) / cell);
    stages_.push_back({kind, index, n_cells_, piece, kMostTowerRows / cell});
    n_steps_ += (n_cells_ + piece - 1) / piece;
  };
  add(StageKind::kEmbed, 0, n_patches_, c.patch_len() * W);
  for (int64_t l = 0; l < c.n_layers; ++l) {
    add(StageKind::kKeys, l, n_patches_, 3 * W * W);
    add(StageKind::kAttend, l, n_patches_, of_attention + W * W + n_of_ffn * W * c.ffn_len);
    const auto deep = std::ranges::find(c.deep_layers, l);
    if (deep != c.deep_layers.end()) add_merge(StageKind::kDeep, deep - c.deep_layers.begin());
  }
  add_merge(c.kind == TowerKind::kQwen ? StageKind::kMerge : StageKind::kAverage, 0);
}

bool TowerRun::step(Stream& s, TowerPace pace) {
  CHECK(n_done_ < n_steps_, "a picture that is done");
  const Stage stage = stages_[stage_];
  const int64_t n_pieces =
      pace == TowerPace::kAlone ? std::clamp<int64_t>(stage.most / stage.piece, 1, kMostPieces) : 1;
  const int64_t from = at_, n = std::min(n_pieces * stage.piece, stage.n_rows - from);
  const auto index = static_cast<size_t>(stage.index);
  const bool is_gemma4 = tower_.config_.kind == TowerKind::kGemma4;
  switch (stage.kind) {
    case StageKind::kEmbed:
      embed(s, from, n);
      break;
    case StageKind::kKeys:
      is_gemma4 ? gemma4_keys(s, tower_.layers_[index], from, n) : keys(s, tower_.layers_[index], from, n);
      break;
    case StageKind::kAttend:
      is_gemma4 ? gemma4_attend(s, tower_.layers_[index], from, n) : attend(s, tower_.layers_[index], from, n);
      break;
    case StageKind::kDeep:
      merge(s, tower_.deep_[index], /*norms_cells=*/true, 1 + stage.index, from, n);
      break;
    case StageKind::kMerge:
      merge(s, tower_.merger_, /*norms_cells=*/false, 0, from, n);
      break;
    case StageKind::kAverage:
      is_gemma4 ? gemma4_average(s, from, n) : average(s, from, n);
      break;
  }
  at_ += n;
  if (at_ == stage.n_rows) ++stage_, at_ = 0;
  n_done_ += (n + stage.piece - 1) / stage.piece;
  return n_done_ == n_steps_;
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

// The learned position of a place: that of its column and that of its row (gemma 4); else that of the tower's own grid,
// stretched over the picture's so that the corners meet, between four of which is interpolated.
void TowerRun::add_position(const Place& at, float* x) const {
  const int64_t side = tower_.config_.grid_side, W = tower_.config_.width;
  const auto* table = tower_.positions_.row_as<const float>(0);
  if (tower_.config_.kind == TowerKind::kGemma4) {
    const float *column = table + at.column * W, *row = table + (side + at.row) * W;
    for (int64_t i = 0; i < W; ++i) x[i] += column[i] + row[i];
    return;
  }
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
  if (c.kind != TowerKind::kGemma3) ops::rope_angles(s, rows(cos_sin_, from, n), tower_.rope(), turned_by_);
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

void TowerRun::product(Stream& s, const Tower::Layer& w, Tower::Product which, const TensorView& out,
                       const TensorView& x) {
  const Linear* const all[Tower::kProducts] = {&w.qkv[0], &w.qkv[1], &w.qkv[2], &w.out, &w.gate, &w.up, &w.down};
  if (w.clip == nullptr) return run(s, *all[which], out, x);
  const Tower::Clip& limits = (*w.clip)[which];
  const TensorView in(clipped_.data, DType::kF32, {x.dim[0], x.dim[1]});
  clip(in, x, limits.low_in, limits.high_in);
  run(s, *all[which], out, in);
  clip(out, out, limits.low_out, limits.high_out);
}

void TowerRun::gemma4_keys(Stream& s, const Tower::Layer& w, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const TensorView h = rows(h_, 0, n), q = rows(q_, from, n), angles = rows(cos_sin_, from, n);
  auto* place = qkv_.row_as<float>(0);
  const TensorView k(place, DType::kF32, {n, c.width}), v(place + n * c.width, DType::kF32, {n, c.width});
  ops::rms_norm(s, h, rows(x_, from, n), w.before_attention.weight, c.norm_eps);
  product(s, w, Tower::kQ, q, h);
  product(s, w, Tower::kK, k, h);
  product(s, w, Tower::kV, v, h);
  const std::pair<const TensorView*, const TensorView*> turned[] = {{&q, &w.q_norm}, {&k, &w.k_norm}};
  for (const auto& [x, norm] : turned) {
    const TensorView heads = by_head(*x, c.head_len());
    ops::rms_norm(s, heads, heads, *norm, c.norm_eps);
    exchange_middle_quarters(heads);
    ops::rope(s, *x, static_cast<int>(c.head_len()), tower_.rope(), angles);
  }
  ops::rms_norm(s, by_head(v, c.head_len()), by_head(v, c.head_len()), tower_.ones_, c.norm_eps);
  ops::store_kv(s, kv_, k, v, batch_of(from, n));
}

void TowerRun::gemma4_attend(Stream& s, const Tower::Layer& w, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const TensorView x = rows(x_, from, n), h = rows(h_, 0, n), attended = rows(attended_, 0, n);
  const TensorView gate = rows(gate_, 0, n), up = rows(up_, 0, n), out(out_.data, DType::kF32, {n, c.width});
  ops::paged_attention(s, attended, rows(q_, from, n), kv_, batch_of(from, n), {.scale = 1.0f});
  product(s, w, Tower::kOut, out, attended);
  ops::rms_norm(s, out, out, w.after_attention, c.norm_eps);
  ops::add_rms_norm(s, h, x, out, w.before_ffn.weight, c.norm_eps);
  product(s, w, Tower::kGate, gate, h);
  product(s, w, Tower::kUp, up, h);
  ops::gelu_mul(s, up, gate, up);
  product(s, w, Tower::kDown, out, up);
  ops::rms_norm(s, out, out, w.after_ffn, c.norm_eps);
  ops::add(s, x, out);
}

void TowerRun::gemma4_average(Stream& s, int64_t from, int64_t n) {
  const TowerConfig& c = tower_.config_;
  const int64_t m = c.merge, columns = grid_columns_ / m;
  const TensorView of_cells(cells_.data, DType::kF32, {n, c.width}), out(out_.data, DType::kF32, {n, c.out_width});
  const float root = std::sqrt(static_cast<float>(c.width));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t top = (from + i) / columns * m, left = (from + i) % columns * m;
    auto* sum = of_cells.row_as<float>(i);
    std::fill_n(sum, c.width, 0.0f);
    for (int64_t k = 0; k < m * m; ++k) {
      const auto* patch = x_.row_as<const float>((top + k / m) * grid_columns_ + left + k % m);
      for (int64_t j = 0; j < c.width; ++j) sum[j] += patch[j];
    }
    for (int64_t j = 0; j < c.width; ++j) sum[j] = sum[j] / static_cast<float>(m * m) * root;
    if (!c.standardises) continue;
    const auto *bias = tower_.std_bias_.row_as<const float>(0), *scale = tower_.std_scale_.row_as<const float>(0);
    for (int64_t j = 0; j < c.width; ++j) sum[j] = (sum[j] - bias[j]) * scale[j];
  }
  ops::rms_norm(s, of_cells, of_cells, tower_.soft_norm_, c.norm_eps);
  run(s, tower_.projection_, out, of_cells);
  put(out, 0, from);
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
