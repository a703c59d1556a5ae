// CellModel: the fake model of tests/fake_model.h, made so cheap that a step of many sequences takes a microsecond. A
// slot of the cache holds a cell: its position and the hash of the tenant's scope and of all tokens up to it. A
// witness, which knows every sequence and its answer in advance, gives the expected cells of each sequence, so each
// attention read is compared with the truth: a slot of another sequence, of another tenant, of another position, freed
// (poisoned) or never written is a fault in the step that reads it.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "worker/forward_pass.h"

namespace ibid::sim {

inline constexpr int32_t kVocabSize = 16;
inline constexpr TokenId kEnd{0};

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return x ^ (x >> 32);
}
inline uint64_t mix(uint64_t prefix, TokenId token) { return mix(prefix, static_cast<uint64_t>(raw(token)) + 1); }

// The row after a prefix: 16 logits in [0, 8), and now and then a likely end.
inline void logits_after(uint64_t prefix, std::span<float> out) {
  uint64_t bits = 0;
  for (size_t v = 0; v < out.size(); ++v) {
    if (v % 4 == 0) bits = mix(prefix, v);
    out[v] = static_cast<float>(bits >> (v % 4 * 16) & 4095) / 512.0f;
  }
  out[0] = prefix % 23 == 0 ? 12.0f : -4.0f;
}

// A sequence of the batch as it must be.
struct Truth {
  std::span<const uint64_t> prefixes;  // of its prompt and all of its answer, by position
  std::span<const TokenId> tokens;
  int32_t text_len = 0;  // of these, how many it has by now; what lies after are drafts
  uint64_t scope = 0;    // the prefix before its first token
};

class Witness {
 public:
  virtual ~Witness() = default;
  virtual Truth truth_of(int32_t sequence_in_batch) = 0;
  virtual void see(const ForwardBatch& batch) = 0;  // before it is computed
  virtual void accuse(std::string what) = 0;
};

class CellModel final : public ForwardPass {
 public:
  CellModel(int32_t context_len, int32_t window, Witness& witness) : witness_(witness) {
    facts_ = {.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8, .window = window}},
              .vocab_size = kVocabSize,
              .window = window,
              .context_len = context_len,
              .digest = "cells",
              .rope = "none",
              .end_of_generation = {kEnd}};
  }
  const ModelFacts& facts() const override { return facts_; }

  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits, const HiddenStates&) override {
    witness_.see(b);
    kv_ = &kv[0];
    value_at_ = kv_element_offset(*kv_, KvPart::kValue, 0, 0, 0);
    ++step_;
    written_.resize(static_cast<size_t>(kv_->n_blocks * kv_->block_len));
    truths_.clear();
    for (int32_t s = 0; s < b.n_sequences; ++s) truths_.push_back(witness_.truth_of(s));
    // In order of the arrays, as keys and values would be stored, then read.
    for (int32_t s = 0; s < b.n_sequences; ++s) write(b, s);
    for (int32_t s = 0; s < b.n_sequences; ++s) read(b, s);
    for (int32_t row = 0; row < b.n_rows; ++row) {
      if (row > 0 && b.logit_rows[row] <= b.logit_rows[row - 1]) witness_.accuse("rows do not ascend");
      logits_after(cell(b.slots[b.logit_rows[row]]).prefix, {logits.row_as<float>(row), kVocabSize});
    }
  }

 private:
  struct Cell {
    uint64_t prefix;
    int32_t position;
    uint32_t magic;
  };
  static constexpr uint32_t kMagic = 0x1b1d1b1d;

  // A slot's value is one run of bytes (kernels/paged_kv.h).
  std::byte* bytes(int32_t slot) const {
    return kv_->blocks + slot / kv_->block_len * kv_->block_bytes + value_at_ + slot % kv_->block_len * 8 * 4;
  }
  Cell cell(int32_t slot) const {
    Cell c;
    std::memcpy(&c, bytes(slot), sizeof c);
    return c;
  }
  void accuse(const char* what, int32_t s, int32_t position) {
    witness_.accuse(std::string(what) + " (sequence " + std::to_string(s) + " of the batch, position " +
                    std::to_string(position) + ")");
  }

  void write(const ForwardBatch& b, int32_t s) {
    const Truth& truth = truths_[static_cast<size_t>(s)];
    int32_t next = b.positions[b.query_start[s]], longest = 0;
    for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
      const int32_t p = b.positions[i];
      longest = std::max(longest, p + 1);
      if (p < truth.text_len) {
        if (p != next++) accuse("positions do not follow each other", s, p);
        if (b.tokens[i] != truth.tokens[static_cast<size_t>(p)]) accuse("another token is computed", s, p);
        if (!b.path(i).empty()) accuse("a token of the text has a path", s, p);
      }
      if (b.slots[i] != b.slot_read(s, i, p)) accuse("a token does not see itself", s, p);
      int64_t& written = written_[static_cast<size_t>(b.slots[i])];
      if (std::exchange(written, step_) == step_) accuse("two tokens are written to one slot", s, p);
      const uint64_t before = p == 0 ? truth.scope : cell(b.slot_read(s, i, p - 1)).prefix;
      const Cell c = {mix(before, b.tokens[i]), p, kMagic};
      std::memcpy(bytes(b.slots[i]), &c, sizeof c);
    }
    if (b.kv_len[s] != longest) accuse("kv_len is not the largest position and one", s, longest);
  }

  void read(const ForwardBatch& b, int32_t s) {
    const Truth& truth = truths_[static_cast<size_t>(s)];
    const int32_t first = b.query_start[s], end = b.query_start[s + 1];
    const int32_t begin = facts_.window == 0 ? 0 : std::max(0, b.positions[first] - facts_.window + 1);
    // Positions read by the sequence's tokens: from the start of the first one's window.
    const int32_t text_end = std::min(truth.text_len, b.kv_len[s]);
    for (int32_t p = begin; p < text_end; ++p) {
      const BlockId block = b.blocks(s)[static_cast<size_t>(p / b.block_len)];
      if (block == BlockId::kNone) return accuse("attention wants a block that was released", s, p);
      const Cell c = cell(raw(block) * b.block_len + p % b.block_len);
      if (c.magic != kMagic) return accuse("attention read a slot that was freed or never written", s, p);
      if (c.position != p) return accuse("attention read a slot of another position", s, p);
      if (c.prefix != truth.prefixes[static_cast<size_t>(p)])
        return accuse("attention read a slot of other tokens or of another tenant", s, p);
    }
    for (int32_t i = first; i < end; ++i) {
      if (b.positions[i] >= truth.text_len) read_draft(b, s, i, truth);
    }
  }

  // From the sequence's end to the draft: a chain of prefixes that ends with the draft's own token.
  void read_draft(const ForwardBatch& b, int32_t s, int32_t i, const Truth& truth) {
    uint64_t prefix = truth.prefixes[static_cast<size_t>(truth.text_len) - 1];
    for (int32_t p = truth.text_len; p <= b.positions[i]; ++p) {
      const int32_t slot = b.slot_read(s, i, p);
      const auto t = std::find(b.slots + b.query_start[s], b.slots + b.query_start[s + 1], slot) - b.slots;
      if (t == b.query_start[s + 1]) return accuse("a draft reads a slot that is none of its step", s, p);
      prefix = mix(prefix, b.tokens[t]);
      const Cell c = cell(slot);
      if (c.prefix != prefix || c.position != p) return accuse("a draft reads what is no ancestor of it", s, p);
    }
  }

  ModelFacts facts_;
  Witness& witness_;
  const PagedKv* kv_ = nullptr;
  int64_t value_at_ = 0;  // bytes from a block's start to its first value
  int64_t step_ = 0;
  std::vector<int64_t> written_;  // [slots] the step that last wrote it
  std::vector<Truth> truths_;     // of this step
};

// Overwrites, once, each block that is neither referenced nor findable.
class FreedBlocks {
 public:
  void poison(const BlockPool& pool, const PagedKv& kv) {
    is_poisoned_.resize(static_cast<size_t>(pool.n_total()));
    for (int32_t b = 0; b < pool.n_total(); ++b) {
      const bool is_free = pool.n_references(BlockId{b}) == 0 && pool.node_of(BlockId{b}) == NodeId::kNone;
      if (is_free && is_poisoned_[static_cast<size_t>(b)] == 0)
        std::memset(kv.blocks + b * kv.block_bytes, 0xee, static_cast<size_t>(kv.block_bytes));
      is_poisoned_[static_cast<size_t>(b)] = is_free;
    }
  }

 private:
  std::vector<uint8_t> is_poisoned_;
};

}  // namespace ibid::sim
