#include <cmath>
#include <vector>

#include "kernels/kept_rows.h"
#include "kernels/kv_codes.h"
#include "kernels/paged_kv.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"

namespace ibid::reference {

void store_kv(const PagedKv& kv, const TensorView& k, const TensorView& v, const ForwardBatch& batch) {
  for (int32_t t = 0; t < batch.n_tokens; ++t) {
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      kv_write_row(kv, KvPart::kKey, batch.slots[t], head, k.row_as<const float>(t) + int64_t{head} * kv.key_len);
      kv_write_row(kv, KvPart::kValue, batch.slots[t], head, v.row_as<const float>(t) + int64_t{head} * kv.value_len);
    }
  }
}

void store_latent(const PagedKv& kv, const TensorView& rows, const ForwardBatch& batch) {
  for (int32_t t = 0; t < batch.n_tokens; ++t) {
    for (int32_t d = 0; d < kv.key_len; ++d)
      kv_write(kv, KvPart::kKey, batch.slots[t], 0, d, static_cast<float>(get(rows, t, d)));
  }
}

void copy_slots(const PagedKv& kv, std::span<const int32_t> from, std::span<const int32_t> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
      for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
        kv_copy_row(kv, part, from[i], to[i], head);
      }
    }
  }
}

namespace {

// The scores of kernels/kept_rows.h for places [first, end) of a KV head.
std::vector<float> kept_scores(const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, const KeptRows& rows,
                               int32_t head, float scale) {
  const int32_t s = rows.sequence, n_all = batch.kv_len[s], first = rows.n_first, end = n_all - rows.n_last;
  const int64_t group = q.row_len() / kv.key_len / kv.n_kv_heads;
  std::vector<double> sum(static_cast<size_t>(end - first), 0.0), weight;
  std::vector<double> query(static_cast<size_t>(kv.key_len));
  for (int64_t h = head * group; h < (head + 1) * group; ++h) {
    for (int32_t t = batch.query_start[s + 1] - rows.n_queries; t < batch.query_start[s + 1]; ++t) {
      for (size_t d = 0; d < query.size(); ++d) query[d] = get(q, t, h * kv.key_len + static_cast<int64_t>(d));
      if (kv.dtype.key == KvType::kI4) turn_out(query.data(), kv.key_len);
      weight.assign(static_cast<size_t>(batch.end_read(t)), 0.0);
      double most = -INFINITY, all = 0.0;
      for (int32_t j = 0; j < batch.end_read(t); ++j) {
        double& score = weight[static_cast<size_t>(j)];
        for (int32_t d = 0; d < kv.key_len; ++d)
          score += query[static_cast<size_t>(d)] * kv_read(kv, KvPart::kKey, batch.slot_read(s, t, j), head, d);
        score *= scale;
        most = std::max(most, score);
      }
      for (double& w : weight) all += w = std::exp(w - most);
      for (int32_t j = first; j < std::min(end, batch.end_read(t)); ++j)
        sum[static_cast<size_t>(j - first)] += weight[static_cast<size_t>(j)] / all;
    }
  }
  std::vector<float> out;
  for (int32_t j = 0; j < end - first; ++j) {
    double pooled = 0.0;
    for (int32_t i = j - rows.pool / 2; i <= j + rows.pool / 2; ++i)
      if (i >= 0 && i < end - first) pooled += sum[static_cast<size_t>(i)];
    out.push_back(static_cast<float>(pooled));
  }
  return out;
}

}  // namespace

void keep_rows(const TensorView& q, const PagedKv& kv, const ForwardBatch& batch, float scale) {
  for (int32_t i = 0; i < batch.n_kept; ++i) {
    const KeptRows& rows = batch.kept[i];
    const int32_t n_all = batch.kv_len[rows.sequence];
    const int32_t last = batch.query_start[rows.sequence + 1] - 1;
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      std::vector<int32_t> places, order, best(static_cast<size_t>(rows.n - rows.n_first - rows.n_last));
      for (int32_t place = 0; place < rows.n_first; ++place) places.push_back(place);
      if (!best.empty()) {
        const std::vector<float> scores = kept_scores(q, kv, batch, rows, head, scale);
        order.resize(scores.size());
        choose_rows(scores, rows.n_first, order, best);
        places.insert(places.end(), best.begin(), best.end());
      }
      for (int32_t place = n_all - rows.n_last; place < n_all; ++place) places.push_back(place);
      for (int32_t to = 0; to < rows.n; ++to) {
        const BlockId block = batch.kept_blocks[rows.block_start + to / kv.block_len];
        for (const KvPart part : {KvPart::kKey, KvPart::kValue})
          kv_copy_row(kv, part, batch.slot_read(rows.sequence, last, places[static_cast<size_t>(to)]),
                      raw(block) * kv.block_len + to % kv.block_len, head);
      }
    }
  }
}

void paged_attention(const TensorView& out, const TensorView& q, const PagedKv& kv, const ForwardBatch& batch,
                     const ops::AttentionParams& params) {
  const int64_t n_heads = q.row_len() / kv.key_len;
  const int64_t group = n_heads / kv.n_kv_heads;
  std::vector<double> weight, query(static_cast<size_t>(kv.key_len)), value(static_cast<size_t>(kv.value_len));
  std::vector<int32_t> slot;
  for (int32_t s = 0; s < batch.n_sequences; ++s) {
    for (int32_t t = batch.query_start[s]; t < batch.query_start[s + 1]; ++t) {
      const int32_t position = batch.read_by()[t];
      const int32_t first = batch.first_read(t, params.window);
      slot.clear();
      for (int32_t p = first; p < batch.end_read(t); ++p) slot.push_back(batch.slot_read(s, t, p));
      for (int64_t h = 0; h < n_heads; ++h) {
        const auto kv_head = static_cast<int32_t>(h / group);
        for (size_t d = 0; d < query.size(); ++d) query[d] = get(q, t, h * kv.key_len + static_cast<int64_t>(d));
        if (kv.dtype.key == KvType::kI4) turn_out(query.data(), kv.key_len);
        weight.assign(slot.size(), 0.0);
        double most = -INFINITY;
        for (size_t i = 0; i < slot.size(); ++i) {
          double score = 0.0;
          for (int32_t d = 0; d < kv.key_len; ++d) {
            score += query[static_cast<size_t>(d)] * kv_read(kv, KvPart::kKey, slot[i], kv_head, d);
          }
          score *= params.scale;
          if (params.soft_cap > 0.0f) score = params.soft_cap * std::tanh(score / params.soft_cap);
          if (params.slopes != nullptr) score += params.slopes[h] * (first + static_cast<double>(i) - position);
          weight[i] = score;
          most = std::max(most, score);
        }
        const double sink = params.sinks == nullptr ? -INFINITY : params.sinks[h];
        most = std::max(most, sink);
        double sum = std::exp(sink - most);
        for (double& w : weight) sum += w = std::exp(w - most);
        for (int32_t d = 0; d < kv.value_len; ++d) {
          double& of = value[static_cast<size_t>(d)];
          of = 0.0;
          for (size_t i = 0; i < slot.size(); ++i) of += weight[i] * kv_read(kv, KvPart::kValue, slot[i], kv_head, d);
          of /= sum;
        }
        if (kv.dtype.value == KvType::kI4) turn_out(value.data(), kv.value_len);
        for (int32_t d = 0; d < kv.value_len; ++d) set(out, t, h * kv.value_len + d, value[static_cast<size_t>(d)]);
      }
    }
  }
}

}  // namespace ibid::reference
