// Rows that outlive an eviction: scores by the law of kernels/kept_rows.h, then copies. It runs once a prompt, on a
// task for each KV head, and is compiled for every machine alike: sums over dimensions have 16 places side by side.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/kept_rows.h"
#include "kernels/kv_codes.h"
#include "kernels/math.h"
#include "kernels/row_math.h"
#include "tensor/half.h"

namespace ibid::cpu {
namespace {

constexpr int32_t kTile = 64, kLanes = 16;

// Of one thread.
struct Room {
  float* keys;     // [Dk, kTile] of a tile, widened
  float* query;    // [Dk]
  float* scores;   // [kTile]
  float* most;     // [rows]
  float* sum;      // [rows]
  float* read;     // [places] sum[j] of the law
  float* pooled;   // [places]
  int32_t* order;  // [places]
  int32_t* list;   // [places]
};

size_t padded(int64_t n) { return static_cast<size_t>((n + kLanes - 1) / kLanes * kLanes); }

size_t room_floats(int64_t n_rows, int64_t key_len, int64_t n_places) {
  return padded(key_len * kTile) + padded(key_len) + kTile + 2 * padded(n_rows) + 4 * padded(n_places);
}

Room room_in(float* memory, int64_t n_rows, int64_t key_len, int64_t n_places) {
  const auto take = [&memory](size_t n) { return std::exchange(memory, memory + n); };
  Room r;
  r.keys = take(padded(key_len * kTile));
  r.query = take(padded(key_len));
  r.scores = take(kTile);
  r.most = take(padded(n_rows));
  r.sum = take(padded(n_rows));
  r.read = take(padded(n_places));
  r.pooled = take(padded(n_places));
  r.order = reinterpret_cast<int32_t*>(take(padded(n_places)));
  r.list = reinterpret_cast<int32_t*>(take(padded(n_places)));
  return r;
}

class Head {
 public:
  Head(const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, const KeptRows& kept, int32_t head,
       float scale, const Room& room)
      : q_(q),
        kv_(kv),
        batch_(batch),
        kept_(kept),
        head_(head),
        scale_(scale),
        room_(room),
        n_all_(batch.kv_len[kept.sequence]),
        first_(kept.n_first),
        end_(n_all_ - kept.n_last) {}

  void run() {
    const int32_t n_best = kept_.n - kept_.n_first - kept_.n_last;
    int32_t* at = room_.list;
    for (int32_t place = 0; place < kept_.n_first; ++place) *at++ = place;
    if (n_best > 0) {
      score();
      const auto n = static_cast<size_t>(end_ - first_);
      choose_rows({room_.pooled, n}, first_, {room_.order, n}, {at, static_cast<size_t>(n_best)});
      at += n_best;
    }
    for (int32_t place = end_; place < n_all_; ++place) *at++ = place;
    for (int32_t i = 0; i < kept_.n; ++i) copy(room_.list[i], i);
  }

 private:
  int32_t slot_of(int32_t place) const {
    const BlockId block = batch_.blocks(kept_.sequence)[static_cast<size_t>(place / kv_.block_len)];
    return raw(block) * kv_.block_len + place % kv_.block_len;
  }

  void copy(int32_t place, int32_t to) const {
    const BlockId block = batch_.kept_blocks[kept_.block_start + to / kv_.block_len];
    const int32_t slot = raw(block) * kv_.block_len + to % kv_.block_len;
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) kv_copy_row(kv_, part, slot_of(place), slot, head_);
  }

  void score() {
    const int32_t group = static_cast<int32_t>(q_.row_len() / kv_.key_len) / kv_.n_kv_heads;
    const int32_t end_token = batch_.query_start[kept_.sequence + 1], first_token = end_token - kept_.n_queries;
    const int32_t n_rows = group * kept_.n_queries;
    std::fill_n(room_.most, n_rows, -std::numeric_limits<float>::infinity());
    std::fill_n(room_.sum, n_rows, 0.0f);
    std::fill_n(room_.read, end_ - first_, 0.0f);
    const auto each_row = [&](int32_t tile, auto visit) {
      widen(tile);
      for (int32_t row = 0; row < n_rows; ++row) {
        const int32_t token = first_token + row % kept_.n_queries;
        const int32_t n = std::min(kTile, batch_.end_read(token) - tile);
        if (n <= 0) continue;
        dot(token, head_ * group + row / kept_.n_queries);
        visit(row, n);
      }
    };
    for (int32_t tile = 0; tile < n_all_; tile += kTile)
      each_row(tile, [&](int32_t row, int32_t n) { add_to_sum(row, n); });
    for (int32_t tile = first_ / kTile * kTile; tile < end_; tile += kTile)
      each_row(tile, [&](int32_t row, int32_t n) { add_to_read(tile, row, n); });
    pool();
  }

  // The keys of a tile, as attention reads them, transposed. Places past the last one are zeros.
  void widen(int32_t tile) {
    const int32_t B = kv_.block_len;
    for (int32_t i = 0; i < kTile; i += B) {
      float* to = room_.keys + i;
      if (tile + i >= n_all_) {
        for (int32_t d = 0; d < kv_.key_len; ++d) std::fill_n(to + int64_t{d} * kTile, B, 0.0f);
        continue;
      }
      const int32_t n = std::min(B, n_all_ - tile - i), slot = slot_of(tile + i);
      for (int32_t d = 0; d < kv_.key_len; ++d, to += kTile) {
        widen_run(slot, d, n, to);
        std::fill(to + n, to + B, 0.0f);
      }
    }
  }

  // Element d of the n keys from `slot` on, which are neighbours in their block.
  void widen_run(int32_t slot, int32_t d, int32_t n, float* to) const {
    const KvType type = kv_.dtype.key;
    if (type != KvType::kF16 && type != KvType::kBF16) {
      for (int32_t i = 0; i < n; ++i) to[i] = kv_read(kv_, KvPart::kKey, slot + i, head_, d);
      return;
    }
    const std::byte* from = kv_.blocks + int64_t{slot / kv_.block_len} * kv_.block_bytes +
                            kv_element_offset(kv_, KvPart::kKey, slot % kv_.block_len, head_, d);
    const auto* bits = reinterpret_cast<const uint16_t*>(from);
    for (int32_t i = 0; i < n; ++i) to[i] = type == KvType::kF16 ? half_to_float(bits[i]) : bf16_to_float(bits[i]);
  }

  // The scores of a row for all places of the tile.
  void dot(int32_t token, int32_t query_head) {
    const float* q = q_.row_as<const float>(token) + int64_t{query_head} * kv_.key_len;
    for (int32_t d = 0; d < kv_.key_len; ++d) room_.query[d] = q[d] * scale_;
    if (kv_.dtype.key == KvType::kI4) turn_out(room_.query, kv_.key_len);
    for (int32_t i = 0; i < kTile; i += kLanes) {
      float lanes[kLanes] = {};
      const float* keys = room_.keys + i;
      for (int32_t d = 0; d < kv_.key_len; ++d, keys += kTile) {
        const float x = room_.query[d];
        for (int32_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x * keys[lane];
      }
      std::copy_n(lanes, kLanes, room_.scores + i);
    }
  }

  void add_to_sum(int32_t row, int32_t n) {
    float most = room_.most[row];
    for (int32_t i = 0; i < n; ++i) most = std::max(most, room_.scores[i]);
    float sum = room_.sum[row] * math::exp(room_.most[row] - most);
    const std::span<float> scores(room_.scores, static_cast<size_t>(n));
    row_exp_below(scores, scores, most);
    for (const float p : scores) sum += p;
    room_.most[row] = most;
    room_.sum[row] = sum;
  }

  void add_to_read(int32_t tile, int32_t row, int32_t n) {
    const std::span<float> scores(room_.scores, static_cast<size_t>(n));
    row_exp_below(scores, scores, room_.most[row]);
    const int32_t begin = std::max(first_, tile), end = std::min(end_, tile + n);
    for (int32_t place = begin; place < end; ++place)
      room_.read[place - first_] += room_.scores[place - tile] / room_.sum[row];
  }

  void pool() {
    const int32_t n = end_ - first_, reach = kept_.pool / 2;
    for (int32_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int32_t i = std::max(0, j - reach); i <= std::min(n - 1, j + reach); ++i) sum += room_.read[i];
      room_.pooled[j] = sum;
    }
  }

  const TensorView& q_;
  const PagedKv& kv_;
  const ForwardBatch& batch_;
  const KeptRows& kept_;
  const int32_t head_;
  const float scale_;
  const Room& room_;
  const int32_t n_all_, first_, end_;  // places: all, and those that are scored
};

}  // namespace

size_t keep_rows_workspace_bytes(const Stream& s, int32_t group, int32_t key_len, int32_t max_positions) {
  return static_cast<size_t>(s.team().n_threads()) *
         room_floats(int64_t{kMaxScoringQueries} * group, key_len, max_positions) * sizeof(float);
}

void keep_rows(Stream& s, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale) {
  int32_t n_places = 0, n_queries = 0;
  for (int32_t i = 0; i < batch.n_kept; ++i) {
    n_places = std::max(n_places, batch.kv_len[batch.kept[i].sequence]);
    n_queries = std::max(n_queries, batch.kept[i].n_queries);
  }
  const int64_t group = q.rank == 0 ? 1 : q.row_len() / kv.key_len / kv.n_kv_heads;
  const size_t n_floats = room_floats(group * n_queries, kv.key_len, n_places);
  auto* memory =
      reinterpret_cast<float*>(s.workspace(static_cast<size_t>(s.team().n_threads()) * n_floats * sizeof(float)));
  s.team().parallel_for(int64_t{batch.n_kept} * kv.n_kv_heads, [&](int64_t task, int thread) {
    const Room room = room_in(memory + static_cast<size_t>(thread) * n_floats, group * n_queries, kv.key_len, n_places);
    Head(q, kv, batch, batch.kept[task / kv.n_kv_heads], static_cast<int32_t>(task % kv.n_kv_heads), scale, room).run();
  });
}

}  // namespace ibid::cpu
