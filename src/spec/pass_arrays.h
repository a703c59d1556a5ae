// PassArrays: the flat batch of a drafter's pass over several texts (kernels/forward_batch.h), made text by text. All
// memory is reserved at once. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/planted.h"
#include "cache/block_cache.h"
#include "kernels/forward_batch.h"

namespace ibid {

struct BlockPart {  // of a text's blocks, [first, end)
  int32_t first = 0, end = 0;
};

class PassArrays {
 public:
  // Of n_texts with n_tokens and n_blocks together at most; of trees also that many rows, and slots on their paths.
  PassArrays(int32_t block_len, size_t n_texts, size_t n_tokens, size_t n_blocks, size_t n_rows = 0, size_t n_slots = 0)
      : block_len_(block_len) {
    tokens.reserve(n_tokens), positions_.reserve(n_tokens), slots_.reserve(n_tokens), places_.reserve(n_tokens);
    query_start_.reserve(n_texts + 1), kv_len_.reserve(n_texts), block_start_.reserve(n_texts + 1);
    logit_rows_.reserve(std::max(n_texts, n_rows)), block_table_.reserve(n_blocks);
    path_start_.reserve(n_tokens + 1), path_slots_.reserve(n_slots);
  }

  void clear() {
    tokens.clear(), positions_.clear(), slots_.clear(), kv_len_.clear(), logit_rows_.clear(), block_table_.clear();
    path_slots_.clear(), places_.clear();
    query_start_.assign(1, 0);
    block_start_.assign(1, 0);
    path_start_.assign(1, 0);
  }
  // Of the next text a draft with its row: its position, and where it and those before it lie in the text's table, in
  // their order, its own place last. end_drafts() is behind a text's last one.
  void add_draft(const BlockTable& blocks, int32_t position, std::span<const int32_t> path) {
    positions_.push_back(position);
    for (const int32_t at : path) path_slots_.push_back(slot_of(blocks, at));
    slots_.push_back(path_slots_.back());
    path_start_.push_back(static_cast<int32_t>(path_slots_.size()));
    logit_rows_.push_back(static_cast<int32_t>(positions_.size()) - 1);
  }
  void end_drafts(const BlockTable& blocks, int32_t n_blocks) {
    if (query_start_.back() == static_cast<int32_t>(positions_.size())) return;  // add() did
    const auto first = positions_.begin() + query_start_.back();
    kv_len_.push_back(*std::max_element(first, positions_.end()) + 1);
    end_text(blocks, n_blocks);
  }
  // The next text's positions [begin, end), over the first n_blocks of its table. Its row of logits where the last
  // one's is wanted, else -1.
  int32_t add(const BlockTable& blocks, int32_t begin, int32_t end, int32_t n_blocks, bool is_wanted) {
    for (int32_t i = begin; i < end; ++i) {
      positions_.push_back(i);
      slots_.push_back(slot_of(blocks, i));
      path_start_.push_back(path_start_.back());
    }
    kv_len_.push_back(end);
    end_text(blocks, n_blocks);
    if (!is_wanted) return -1;
    logit_rows_.push_back(query_start_.back() - 1);
    return static_cast<int32_t>(logit_rows_.size()) - 1;
  }
  // The next text's tokens at the positions [begin, end), each with its row, over a view of the text's blocks: those of
  // `parts`, ascending pairs of [first, end), the last of which holds these positions. The first one's row. Then all of
  // this pass are of views.
  int32_t add_viewed(const BlockTable& blocks, int32_t begin, int32_t end, std::span<const BlockPart> parts) {
    int32_t n_left_out = 0, next = 0;
    for (const BlockPart& part : parts) {
      n_left_out += part.first - next, next = part.end;
      block_table_.insert(block_table_.end(), blocks.begin() + part.first, blocks.begin() + part.end);
    }
    const auto first_row = static_cast<int32_t>(logit_rows_.size());
    for (int32_t i = begin; i < end; ++i) {
      places_.push_back(i - n_left_out * block_len_);
      positions_.push_back(PLANTED("a_view_counts_its_own_positions") ? places_.back() : i);
      slots_.push_back(slot_of(blocks, i));
      path_start_.push_back(path_start_.back());
      logit_rows_.push_back(static_cast<int32_t>(positions_.size()) - 1);
    }
    kv_len_.push_back(places_.back() + 1);
    block_start_.push_back(static_cast<int32_t>(block_table_.size()));
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
    return first_row;
  }
  // Valid until the next change.
  ForwardBatch batch() const {
    return {.n_tokens = static_cast<int32_t>(tokens.size()),
            .n_sequences = static_cast<int32_t>(kv_len_.size()),
            .n_rows = static_cast<int32_t>(logit_rows_.size()),
            .block_len = block_len_,
            .tokens = tokens.data(),
            .positions = positions_.data(),
            .places = places_.empty() ? nullptr : places_.data(),
            .slots = slots_.data(),
            .query_start = query_start_.data(),
            .kv_len = kv_len_.data(),
            .block_start = block_start_.data(),
            .block_table = block_table_.data(),
            .logit_rows = logit_rows_.data(),
            .path_start = path_slots_.empty() ? nullptr : path_start_.data(),
            .path_slots = path_slots_.empty() ? nullptr : path_slots_.data()};
  }

  std::vector<TokenId> tokens;  // of all texts in their order; the caller's to fill

 private:
  int32_t slot_of(const BlockTable& blocks, int32_t i) const {
    return raw(blocks[static_cast<size_t>(i / block_len_)]) * block_len_ + i % block_len_;
  }
  void end_text(const BlockTable& blocks, int32_t n_blocks) {
    block_table_.insert(block_table_.end(), blocks.begin(), blocks.begin() + n_blocks);
    block_start_.push_back(static_cast<int32_t>(block_table_.size()));
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
  }
  int32_t block_len_;
  std::vector<int32_t> positions_, places_, slots_, query_start_, kv_len_, block_start_, logit_rows_, path_start_,
      path_slots_;
  std::vector<BlockId> block_table_;
};

}  // namespace ibid
