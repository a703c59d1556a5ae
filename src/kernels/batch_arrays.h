// BatchArrays: owns the arrays of a ForwardBatch (kernels/forward_batch.h) and fills them token by token, sequence by
// sequence, in the order in which the batch has them:
//     arrays.clear();
//     for each sequence:
//       for each of its tokens of the step: arrays.add(token, position, slot), before it add_path() where it has a path
//       arrays.add_blocks(...); arrays.end_sequence();
//     model.forward(..., arrays.batch(), ...)
//
// All memory is reserved at once: a batch within the sizes allocates nothing. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/forward_batch.h"

namespace ibid {

struct BatchSizes {  // of the largest batch
  size_t n_tokens = 0;
  size_t n_sequences = 0;
  size_t n_rows = 0;
  size_t n_blocks = 0;      // of the tables of all sequences
  size_t n_path_slots = 0;  // of the paths of all tokens
};

// The slot of the i-th token of a sequence that lies in these blocks.
inline int32_t slot_in(std::span<const BlockId> blocks, int32_t block_len, int32_t i) {
  return raw(blocks[static_cast<size_t>(i / block_len)]) * block_len + i % block_len;
}

class BatchArrays {
 public:
  BatchArrays(int32_t block_len, const BatchSizes& sizes);

  // Empties the batch.
  void clear();

  // The next token of the sequence that is being filled.
  void add(TokenId token, int32_t position, int32_t slot) {
    tokens_.push_back(token);
    positions_.push_back(position);
    slots_.push_back(slot);
    path_start_.push_back(static_cast<int32_t>(path_slots_.size()));
    kv_len_.back() = std::max(kv_len_.back(), position + 1);
  }
  // The same of a view: its place in the sequence's table is not its position. The places of other tokens are their
  // positions.
  void add_viewed(TokenId token, int32_t position, int32_t place, int32_t slot);
  // Of the token that was added last: what stands in the place of its embedding (ForwardBatch::inputs).
  void set_input(const float* row) {
    inputs_.resize(tokens_.size(), nullptr);
    inputs_.back() = row;
  }
  // And what RoPE turns it by; others turn by their position on all axes.
  void set_axes(const std::array<int32_t, 3>& at);
  // Of the token that was added last: the place after the last one that it reads, which is past its own.
  void set_end(int32_t end);
  // Of an encoder that reads pairs, for each token after it was added: which of the two texts it is of.
  void add_type(uint8_t type) { types_.push_back(type); }
  // The path of the token that is added next: n slots, ascending by position, its own the last. To be written before
  // anything else is added.
  std::span<int32_t> add_path(int32_t n) {
    path_slots_.resize(path_slots_.size() + static_cast<size_t>(n));
    return std::span(path_slots_).last(static_cast<size_t>(n));
  }
  // Tokens at the positions [position, position + n) of a sequence that lies in these blocks from its first position
  // on.
  void add_run(std::span<const TokenId> tokens, int32_t position, std::span<const BlockId> blocks);

  // Of a model with recurrent layers, for each token after it was added: where the state after it goes, -1: nowhere;
  // and for each sequence before it is ended: where the state lies that it goes on from.
  void add_state_out(int32_t slot) { state_out_.push_back(slot); }
  void add_state_in(int32_t slot) { state_in_.push_back(slot); }

  // The adapter of the sequence that is being filled; without one where this is not called.
  void set_adapter(int32_t slot) {
    adapters_.resize(query_start_.size(), -1);
    adapters_.back() = slot;
  }

  // Of the sequence that is being filled: what it keeps after the step (its `sequence` and `block_start` are set here),
  // and where.
  void keep(const KeptRows& rows, std::span<const BlockId> blocks);

  // Requests the logits of a token of the batch, in ascending order. Returns the number of its row.
  int32_t want(int32_t token) {
    logit_rows_.push_back(token);
    return static_cast<int32_t>(logit_rows_.size()) - 1;
  }
  int32_t want_last() { return want(n_tokens() - 1); }

  // The next blocks of the table of the sequence that is being filled.
  void add_blocks(std::span<const BlockId> blocks) {
    block_table_.insert(block_table_.end(), blocks.begin(), blocks.end());
  }
  // The sequence has all its tokens and blocks; the next token is the next one's.
  void end_sequence();

  int32_t block_len() const { return block_len_; }
  int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }
  int32_t n_rows() const { return static_cast<int32_t>(logit_rows_.size()); }
  int32_t n_sequences() const { return static_cast<int32_t>(query_start_.size()) - 1; }
  // The first token of sequence s.
  int32_t first_token(int32_t s) const { return query_start_[static_cast<size_t>(s)]; }

  // Views into the arrays, valid until the next change. The last sequence was ended.
  ForwardBatch batch();

 private:
  void fill_places(size_t n);
  void fill_axes(size_t n);
  void fill_ends(size_t n);

  int32_t block_len_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, places_ /* of the first tokens, as inputs_ */, slots_, query_start_, block_start_,
      logit_rows_, path_start_, path_slots_;
  std::vector<int32_t> kv_len_;  // the last one is of the sequence that is being filled, 0 as long as it has no token
  std::vector<BlockId> block_table_;
  std::vector<uint8_t> types_;
  std::vector<int32_t> state_in_, state_out_;
  std::vector<const float*> inputs_;  // of the first tokens; later ones have none. Empty: no one has one
  std::vector<int32_t> axes_, ends_;  // likewise, the first three of each token
  std::vector<KeptRows> kept_;
  std::vector<BlockId> kept_blocks_;
  std::vector<int32_t> adapters_;  // of the first sequences; later ones have none. Empty: no one has one
};

}  // namespace ibid
