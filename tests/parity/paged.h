// A small paged cache and the batches that fill and read it: keys, values and queries are functions of (sequence,
// position), so that any schedule of the same sequences must give the same rows.
#pragma once

#include <algorithm>
#include <map>

#include "base/thread_team.h"
#include "kernels/ops.h"
#include "parity/harness.h"

namespace ibid::parity {

struct Shape {
  int32_t heads = 3;
  int32_t kv_heads = 1;
  int32_t head_len = 64;
  DType dtype = DType::kF32;
  int32_t block_len = 16;
  float soft_cap = 0.0f;
  int32_t window = 0;
};

// Query tokens [begin, end) of a sequence; the batch ends there.
struct Part {
  int32_t sequence, begin, end;
};

class Paged {
 public:
  // Room for `n_sequences` of `max_len` tokens; physical blocks are dealt in an order drawn from `seed`. Every cell of
  // every block is NaN until it is written.
  Paged(const Shape& shape, int32_t n_sequences, int32_t max_len, uint64_t seed = 1)
      : shape_(shape), max_blocks_((max_len + shape.block_len - 1) / shape.block_len) {
    kv_.dtype = shape.dtype;
    kv_.block_len = shape.block_len;
    kv_.n_kv_heads = shape.kv_heads;
    kv_.head_len = shape.head_len;
    kv_.n_blocks = n_sequences * max_blocks_;
    kv_.block_bytes = kv_block_bytes(shape.dtype, shape.block_len, shape.kv_heads, shape.head_len);
    cells_.assign(static_cast<size_t>(kv_.n_blocks * kv_.block_bytes) + 64,
                  std::byte{0xff});  // all ones: NaN in each dtype
    const auto address = reinterpret_cast<uintptr_t>(cells_.data());
    kv_.blocks = cells_.data() + (64 - address % 64) % 64;
    for (int32_t b = 0; b < kv_.n_blocks; ++b) table_.push_back(BlockId{b});
    std::mt19937_64 random(seed);
    std::shuffle(table_.begin(), table_.end(), random);
  }
  const PagedKv& kv() const { return kv_; }
  BlockId& block(int32_t sequence, int32_t index) {
    return table_[static_cast<size_t>(sequence * max_blocks_ + index)];
  }

  // One step: stores keys and values of the parts' tokens, then attends (or not). Rows are kept by (sequence,
  // position).
  void step(Stream& s, const std::vector<Part>& parts, bool attend = true) {
    std::vector<int32_t> positions, slots, query_start = {0}, kv_len;
    std::vector<BlockId> table;
    for (const Part& part : parts) {
      for (int32_t p = part.begin; p < part.end; ++p) {
        positions.push_back(p);
        slots.push_back(raw(block(part.sequence, p / shape_.block_len)) * shape_.block_len + p % shape_.block_len);
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
      kv_len.push_back(part.end);
      for (int32_t b = 0; b < max_blocks_; ++b) table.push_back(block(part.sequence, b));
      // Behind every query's window nothing is read: the table says so.
      if (shape_.window > 0) {
        const int32_t first_seen = std::max(0, part.begin - shape_.window + 1);
        for (int32_t b = 0; b < first_seen / shape_.block_len; ++b) {
          table[table.size() - static_cast<size_t>(max_blocks_ - b)] = BlockId::kNone;
        }
      }
    }
    const auto n = static_cast<int64_t>(positions.size());
    Guarded q(n, shape_.heads * shape_.head_len), k(n, shape_.kv_heads * shape_.head_len);
    Guarded v(n, shape_.kv_heads * shape_.head_len, 3), out(n, shape_.heads * shape_.head_len, 1);
    out.fill_nan();
    int64_t row = 0;
    for (const Part& part : parts) {
      for (int32_t p = part.begin; p < part.end; ++p, ++row) {
        const uint64_t seed = static_cast<uint64_t>(part.sequence) << 32 | static_cast<uint64_t>(p);
        draw(q.row(row), shape_.heads * shape_.head_len, 3 * seed);
        draw(k.row(row), shape_.kv_heads * shape_.head_len, 3 * seed + 1);
        draw(v.row(row), shape_.kv_heads * shape_.head_len, 3 * seed + 2);
        if (p >= not_finite_from) {
          std::fill_n(k.row(row), shape_.kv_heads * shape_.head_len, std::nanf(""));
          std::fill_n(v.row(row), shape_.kv_heads * shape_.head_len, INFINITY);
        }
      }
    }
    ForwardBatch batch;
    batch.n_tokens = static_cast<int32_t>(n);
    batch.n_sequences = static_cast<int32_t>(parts.size());
    batch.max_blocks = max_blocks_;
    batch.block_len = shape_.block_len;
    batch.positions = positions.data();
    batch.slots = slots.data();
    batch.query_start = query_start.data();
    batch.kv_len = kv_len.data();
    batch.block_table = table.data();
    CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(batch.n_tokens, shape_.heads, shape_.head_len,
                                                                   max_blocks_ * shape_.block_len))
              .ok());
    ops::store_kv(s, kv_, k.view(), v.view(), batch);
    if (!attend) return;
    const ops::AttentionParams params = {1.0f / std::sqrt(static_cast<float>(shape_.head_len)), shape_.soft_cap,
                                         shape_.window};
    ops::paged_attention(s, out.view(), q.view(), kv_, batch, params);
    ASSERT_TRUE(q.untouched_around() && k.untouched_around() && v.untouched_around() && out.untouched_around());
    row = 0;
    for (const Part& part : parts) {
      for (int32_t p = part.begin; p < part.end; ++p, ++row) {
        rows_[{part.sequence, p}].assign(out.row(row), out.row(row) + shape_.heads * shape_.head_len);
      }
    }
  }

  // From this position on keys are NaN and values infinite.
  int32_t not_finite_from = 1 << 30;

  using Rows = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;
  const Rows& rows() const { return rows_; }

 private:
  static void draw(float* row, int32_t n, uint64_t seed) {
    uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 0x1234567;
    for (int32_t i = 0; i < n; ++i) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
      row[i] = static_cast<float>(static_cast<int64_t>(x >> 40)) * (4.0f / (1 << 23)) - 4.0f;
    }
  }

  Shape shape_;
  int32_t max_blocks_;
  PagedKv kv_;
  std::vector<std::byte> cells_;
  std::vector<BlockId> table_;
  Rows rows_;
};

// Empty where both are the same to the bit, else where they first differ.
inline std::string difference(const Paged::Rows& a, const Paged::Rows& b) {
  if (a.size() != b.size()) return "other rows";
  for (const auto& [key, row] : a) {
    const auto other = b.find(key);
    if (other == b.end()) return "a row is missing";
    if (std::memcmp(row.data(), other->second.data(), row.size() * sizeof(float)) != 0) {
      size_t i = 0;
      while (std::bit_cast<uint32_t>(row[i]) == std::bit_cast<uint32_t>(other->second[i])) ++i;
      return "sequence " + std::to_string(key.first) + ", position " + std::to_string(key.second) + ", column " +
             std::to_string(i) + ": " + std::to_string(row[i]) + " and " + std::to_string(other->second[i]);
    }
  }
  return {};
}

}  // namespace ibid::parity
