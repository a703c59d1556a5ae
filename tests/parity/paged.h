// A small paged cache and the batches that fill and read it: keys, values and queries are functions of (sequence,
// position), so that any schedule of the same sequences must give the same rows.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "base/thread_team.h"
#include "kernels/kv_codes.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "parity/harness.h"
#include "tensor/half.h"

namespace ibid::parity {

struct Shape {
  int32_t heads = 3;
  int32_t kv_heads = 1;
  int32_t head_len = 64;  // of a key, and of a value unless value_len is set
  KvTypes dtype = KvType::kF32;
  int32_t block_len = 16;
  float soft_cap = 0.0f;
  int32_t window = 0;
  bool has_sinks = false;          // of each head one, drawn
  bool has_slopes = false;         // likewise, from 1 on, each less than the one before
  int32_t value_len = 0;           // 0: head_len
  bool latent = false;             // one row for keys and values
  bool values_begin_keys = false;  // of heads: a value is the key's first elements, as in a latent row
  // Keys and values are what these types keep of them (kernels/kv_codes.h), and of four bits queries and outputs are
  // turned here, as attention over such a cache turns them.
  std::optional<KvTypes> rounds_to = {};

  KvGeometry geometry() const {
    return {.kind = latent ? KvKind::kLatent : KvKind::kHeads,
            .n_kv_heads = kv_heads,
            .key_len = head_len,
            .value_len = value_len == 0 ? head_len : value_len};
  }
};

// Query tokens [begin, end) of a sequence; the batch ends there.
struct Part {
  int32_t sequence, begin, end;
};

// One token of a step. Its path names the slots of its last positions, its own last; empty: a plain token.
struct Token {
  int32_t position;
  uint64_t content;
  int32_t slot;
  std::vector<int32_t> path;
  int32_t key;
};
struct TokensOf {
  int32_t sequence;
  std::vector<Token> tokens;
  std::vector<int32_t> view =
      {};  // which of its blocks are read, ascending, the tokens' among them; empty: all, no view
};

class Paged {
 public:
  // Room for `n_sequences` of `max_len` tokens; physical blocks are dealt in an order drawn from `seed`. Every cell of
  // every block is NaN until it is written.
  Paged(const Shape& shape, int32_t n_sequences, int32_t max_len, uint64_t seed = 1)
      : shape_(shape), max_blocks_((max_len + shape.block_len - 1) / shape.block_len) {
    kv_.dtype = shape.dtype;
    kv_.block_len = shape.block_len;
    const KvGeometry geometry = shape.geometry();
    kv_.kind = geometry.kind;
    kv_.n_kv_heads = geometry.n_kv_heads;
    kv_.key_len = geometry.key_len;
    kv_.value_len = geometry.value_len;
    kv_.n_blocks = n_sequences * max_blocks_;
    kv_.block_bytes = KvLayout{geometry, shape.dtype, shape.block_len}.block_bytes();
    kv_.layer_bytes = kv_.block_bytes;
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

  int32_t slot(int32_t sequence, int32_t position) {
    return raw(block(sequence, position / shape_.block_len)) * shape_.block_len + position % shape_.block_len;
  }
  // What the query, key and value at a position are drawn from, unless a token has its own.
  static uint64_t content(int32_t sequence, int32_t position) {
    return static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(position);
  }

  // One step: stores keys and values of the parts' tokens, then attends (or not). Rows are kept by (sequence,
  // position).
  void step(Stream& s, const std::vector<Part>& parts, bool attend = true) {
    std::vector<TokensOf> sequences;
    for (const Part& part : parts) {
      TokensOf& of = sequences.emplace_back(TokensOf{part.sequence, {}});
      for (int32_t p = part.begin; p < part.end; ++p) {
        of.tokens.push_back({p, content(part.sequence, p), slot(part.sequence, p), {}, p});
      }
    }
    step(s, sequences, attend);
  }
  // The same for tokens of any kind. Rows are kept by (sequence, key).
  void step(Stream& s, const std::vector<TokensOf>& sequences, bool attend = true) {
    Arrays a;
    for (const TokensOf& of : sequences) add(a, of);
    const auto n = static_cast<int64_t>(a.positions.size());
    const int32_t q_len = shape_.heads * kv_.key_len, out_len = shape_.heads * kv_.value_len;
    const int32_t k_len = shape_.kv_heads * kv_.key_len, v_len = shape_.kv_heads * kv_.value_len;
    Guarded q(n, q_len), k(n, k_len), v(n, v_len, 3), out(n, out_len, 1);
    out.fill_nan();
    for (int64_t row = 0; row < n; ++row) {
      const auto t = static_cast<size_t>(row);
      draw(q.row(row), q_len, 3 * a.contents[t]);
      draw(k.row(row), k_len, 3 * a.contents[t] + 1);
      draw(v.row(row), v_len, 3 * a.contents[t] + 2);
      if (shape_.values_begin_keys) {
        for (int32_t h = 0; h < shape_.kv_heads; ++h)
          std::copy_n(k.row(row) + h * kv_.key_len, kv_.value_len, v.row(row) + h * kv_.value_len);
      }
      if (shape_.rounds_to) {
        for (int32_t h = 0; h < shape_.kv_heads; ++h) {
          round_to(shape_.rounds_to->key, k.row(row) + h * kv_.key_len, kv_.key_len);
          round_to(shape_.rounds_to->value, v.row(row) + h * kv_.value_len, kv_.value_len);
        }
        for (int32_t h = 0; h < shape_.heads && shape_.rounds_to->key == KvType::kI4; ++h)
          turn_out(q.row(row) + h * kv_.key_len, kv_.key_len);
      }
      if (a.positions[t] >= not_finite_from) {
        std::fill_n(k.row(row), k_len, std::nanf(""));
        std::fill_n(v.row(row), v_len, INFINITY);
      }
    }
    ForwardBatch batch;
    batch.n_tokens = static_cast<int32_t>(n);
    batch.n_sequences = static_cast<int32_t>(sequences.size());
    batch.block_len = shape_.block_len;
    batch.positions = a.positions.data();
    if (!a.places.empty()) batch.places = a.places.data();
    batch.slots = a.slots.data();
    batch.query_start = a.query_start.data();
    batch.kv_len = a.kv_len.data();
    batch.block_start = a.block_start.data();
    batch.block_table = a.table.data();
    if (!a.path_slots.empty()) {
      batch.path_start = a.path_start.data();
      batch.path_slots = a.path_slots.data();
    }
    CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(batch.n_tokens, shape_.heads, kv_.value_len,
                                                                   max_blocks_ * shape_.block_len))
              .ok());
    if (shape_.latent) {
      ops::store_latent(s, kv_, k.view(), batch);
    } else {
      ops::store_kv(s, kv_, k.view(), v.view(), batch);
    }
    if (!attend) return;
    std::vector<float> sinks(static_cast<size_t>(shape_.heads));
    draw(sinks.data(), shape_.heads, 77);
    std::vector<float> slopes;
    for (int32_t h = 0; h < shape_.heads; ++h) slopes.push_back(1.0f / static_cast<float>(1 + h * h));
    const ops::AttentionParams params = {.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_len)),
                                         .soft_cap = shape_.soft_cap,
                                         .window = shape_.window,
                                         .sinks = shape_.has_sinks ? sinks.data() : nullptr,
                                         .slopes = shape_.has_slopes ? slopes.data() : nullptr};
    ops::paged_attention(s, out.view(), q.view(), kv_, batch, params);
    ASSERT_TRUE(q.untouched_around() && k.untouched_around() && v.untouched_around() && out.untouched_around());
    int64_t row = 0;
    for (const TokensOf& of : sequences) {
      for (const Token& token : of.tokens) {
        for (int32_t h = 0; h < shape_.heads && shape_.rounds_to && shape_.rounds_to->value == KvType::kI4; ++h)
          turn_out(out.row(row) + h * kv_.value_len, kv_.value_len);
        rows_[{of.sequence, token.key}].assign(out.row(row), out.row(row) + out_len);
        ++row;
      }
    }
  }

  // From this position on keys are NaN and values infinite.
  int32_t not_finite_from = 1 << 30;

  using Rows = std::map<std::pair<int32_t, int32_t>, std::vector<float>>;
  const Rows& rows() const { return rows_; }

 private:
  struct Arrays {
    std::vector<int32_t> positions, places, slots, kv_len, path_slots;
    std::vector<int32_t> query_start = {0}, block_start = {0}, path_start = {0};
    std::vector<uint64_t> contents;
    std::vector<BlockId> table;
  };
  // The table has what is read through it and nothing else: too short or kNone is what the rest is.
  void add(Arrays& a, const TokensOf& of) {
    if (!of.view.empty()) return add_view(a, of);
    int32_t begin = 1 << 30, end = 0, highest = 0;
    for (const Token& token : of.tokens) {
      a.positions.push_back(token.position);
      a.slots.push_back(token.slot);
      a.contents.push_back(token.content);
      a.path_slots.insert(a.path_slots.end(), token.path.begin(), token.path.end());
      a.path_start.push_back(static_cast<int32_t>(a.path_slots.size()));
      highest = std::max(highest, token.position + 1);
      end = std::max(end, token.position + 1 - static_cast<int32_t>(token.path.size()));
      begin = std::min(begin, shape_.window > 0 ? std::max(0, token.position + 1 - shape_.window) : 0);
    }
    for (int32_t b = 0; b * shape_.block_len < end; ++b) {
      a.table.push_back(b < begin / shape_.block_len ? BlockId::kNone : block(of.sequence, b));
    }
    a.query_start.push_back(static_cast<int32_t>(a.positions.size()));
    a.block_start.push_back(static_cast<int32_t>(a.table.size()));
    a.kv_len.push_back(highest);
  }
  // Of a step in which all are views.
  void add_view(Arrays& a, const TokensOf& of) {
    int32_t highest = 0;
    for (const Token& token : of.tokens) {
      const auto at = std::ranges::find(of.view, token.position / shape_.block_len) - of.view.begin();
      a.positions.push_back(token.position);
      a.places.push_back(static_cast<int32_t>(at) * shape_.block_len + token.position % shape_.block_len);
      a.slots.push_back(token.slot);
      a.contents.push_back(token.content);
      a.path_start.push_back(static_cast<int32_t>(a.path_slots.size()));
      highest = std::max(highest, a.places.back() + 1);
    }
    for (const int32_t b : of.view) a.table.push_back(block(of.sequence, b));
    a.query_start.push_back(static_cast<int32_t>(a.positions.size()));
    a.block_start.push_back(static_cast<int32_t>(a.table.size()));
    a.kv_len.push_back(highest);
  }
  static void round_to(KvType type, float* x, int32_t n) {
    uint8_t codes[kMaxHeadLen];
    float scale = 0;
    if (has_one_scale(type)) scale = half_to_float(quantise_head(type, x, n, codes));
    if (type == KvType::kI4) turn_in(x, n);
    for (int32_t i = 0; i < n; ++i) {
      if (type == KvType::kF16) x[i] = half_to_float(float_to_half(x[i]));
      if (type == KvType::kBF16) x[i] = bf16_to_float(float_to_bf16(x[i]));
      if (has_one_scale(type)) x[i] = eight_bit_number(type, codes[i]) * scale;
      if (type != KvType::kI4 || i % kCodeGroup != 0) continue;
      const int32_t of_group = std::min(kCodeGroup, n - i);
      uint8_t four[kCodeGroup];
      const FourBits by = quantise_group(x + i, of_group, four);
      for (int32_t j = 0; j < of_group; ++j) x[i + j] = four_bit_number(four[j], half_to_float(by.step), by.zero);
    }
  }
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

// Empty where both are the same to the bit, else where they first differ. They are pinned.
inline std::string difference(const Paged::Rows& a, const Paged::Rows& b) {
  for (const auto& [key, row] : a) note_bits(row);
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
