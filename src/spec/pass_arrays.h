// PassArrays: the flat batch of a drafter's pass over several texts (kernels/forward_batch.h), made text by text. All
// memory is reserved at once. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_cache.h"
#include "kernels/forward_batch.h"

namespace ibid {

class PassArrays {
 public:
  // Of n_texts with n_tokens and n_blocks together at most.
  PassArrays(int32_t block_len, size_t n_texts, size_t n_tokens, size_t n_blocks) : block_len_(block_len) {
    tokens.reserve(n_tokens), positions_.reserve(n_tokens), slots_.reserve(n_tokens);
    query_start_.reserve(n_texts + 1), kv_len_.reserve(n_texts), block_start_.reserve(n_texts + 1);
    logit_rows_.reserve(n_texts), block_table_.reserve(n_blocks);
  }

  void clear() {
    tokens.clear(), positions_.clear(), slots_.clear(), kv_len_.clear(), logit_rows_.clear(), block_table_.clear();
    query_start_.assign(1, 0);
    block_start_.assign(1, 0);
  }
  // The next text's positions [begin, end), over the first n_blocks of its table. Its row of logits where the last
  // one's is wanted, else -1.
  int32_t add(const BlockTable& blocks, int32_t begin, int32_t end, int32_t n_blocks, bool is_wanted) {
    for (int32_t i = begin; i < end; ++i) {
      positions_.push_back(i);
      slots_.push_back(raw(blocks[static_cast<size_t>(i / block_len_)]) * block_len_ + i % block_len_);
    }
    kv_len_.push_back(end);
    block_table_.insert(block_table_.end(), blocks.begin(), blocks.begin() + n_blocks);
    block_start_.push_back(static_cast<int32_t>(block_table_.size()));
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
    if (!is_wanted) return -1;
    logit_rows_.push_back(query_start_.back() - 1);
    return static_cast<int32_t>(logit_rows_.size()) - 1;
  }
  // Valid until the next change.
  ForwardBatch batch() const {
    return {.n_tokens = static_cast<int32_t>(tokens.size()),
            .n_sequences = static_cast<int32_t>(kv_len_.size()),
            .n_rows = static_cast<int32_t>(logit_rows_.size()),
            .block_len = block_len_,
            .tokens = tokens.data(),
            .positions = positions_.data(),
            .slots = slots_.data(),
            .query_start = query_start_.data(),
            .kv_len = kv_len_.data(),
            .block_start = block_start_.data(),
            .block_table = block_table_.data(),
            .logit_rows = logit_rows_.data()};
  }

  std::vector<TokenId> tokens;  // of all texts in their order; the caller's to fill

 private:
  int32_t block_len_;
  std::vector<int32_t> positions_, slots_, query_start_, kv_len_, block_start_, logit_rows_;
  std::vector<BlockId> block_table_;
};

}  // namespace ibid
