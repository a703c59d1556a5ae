#include <cmath>
#include <vector>

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
