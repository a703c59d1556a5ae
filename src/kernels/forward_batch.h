// ForwardBatch: one step's work as flat arrays, the only thing a model reads about requests. Views into arrays that the
// engine sized at start-up; nothing here is owned. T tokens, S sequences, R logit rows, B tokens per block.
//
// A sequence's tokens are contiguous: sequence s owns tokens [query_start[s], query_start[s + 1]). store_kv writes the
// step's keys and values before attention reads, so a token sees itself.
//
// What a token reads. A token at position p reads one key and value for each position of [0, p] (of its window's part
// of it). A plain token finds all of them through the block table, so it sees every earlier token of its sequence. A
// token with a path of n slots reads those of positions (p - n, p] from the path, and earlier ones through the table: a
// draft's ancestors are named by slot, tokens of one sequence may have equal positions (siblings), and none sees a
// token that is not on its path. Which slot a key lies in does not show in any bit: it enters the sums at its
// position's place, so a row is the same as if its path were a plain sequence.
//
// States. Of a model with recurrent layers, a sequence's first token of the step goes on from the state in its
// state_in, and the state after a token that has a state_out goes there. A plain token goes on from the one before it,
// a token with a path from the token that stands before it there (before()), which has a state_out where that is a
// draft. A sequence's state_in may be one of its own state_outs, and is read first; several sequences may have one
// state_in. All state_outs of a step are distinct, and none is another sequence's state_in.
//
// A view. A step with places reads only part of its sequences: the table holds some of a sequence's blocks, in order,
// and a token reads what stands at the places [0, its own] of that table as others read positions; kv_len is the view's
// too. Positions stay what rotates queries and keys, and those in the cache have been rotated by theirs. That is how a
// model drafts for itself over less than it knows (spec/model/window_proposer.h), and how a sequence goes on after some
// of its keys and values were evicted: its places are its positions less the number of those. In a step with both kinds
// the places of a sequence that was not evicted from are its positions.
//
// Eviction. After its last token of a step a sequence may keep a part of its keys and values (KeptRows): attention of
// the step still reads all, then each layer copies, for each KV head, the rows that it keeps to other blocks
// (ops::keep_rows), which are the sequence's from the next step on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace ibid {

// What sequence `sequence` of the batch keeps of the n_all places that it has after the step, in each layer and KV
// head: the first n_first and the last n_last places and, of those between, the n - n_first - n_last that the step's
// last n_queries tokens of the sequence read most (kernels/kept_rows.h). Row i of those, in order of places, goes to
// place i of its kept blocks.
struct KeptRows {
  int32_t sequence = 0;
  int32_t n = 0;
  int32_t n_first = 0, n_last = 0;  // n_first + n_last <= n < n_all
  int32_t n_queries = 0;            // >= 1 where any is chosen; they are tokens of the step
  int32_t pool = 1;                 // odd: scores are summed over so many neighbouring places
  int32_t block_start = 0;          // its blocks are kept_blocks[block_start, block_start + ceil(n / B))
};

struct ForwardBatch {
  int32_t n_tokens = 0;     // T
  int32_t n_sequences = 0;  // S
  int32_t n_rows = 0;       // R
  int32_t block_len = 0;    // B

  const TokenId* tokens = nullptr;       // [T]
  const int32_t* positions = nullptr;    // [T] absolute position of the token in its sequence, 0-based
  const int32_t* places = nullptr;       // [T] of a view: place of the token in its sequence's table; null: its
                                         // position
  const int32_t* slots = nullptr;        // [T] block * B + offset: where the token's key and value go; all distinct
  const int32_t* query_start = nullptr;  // [S + 1]
  const int32_t* kv_len = nullptr;       // [S] the largest place among the sequence's tokens of this step, plus one
  const int32_t* block_start = nullptr;  // [S + 1]
  // [block_start[S]] The blocks of sequence s are [block_start[s], block_start[s + 1]), in order of positions, as many
  // as reach every position that a token of this step reads through them. kNone: never read (a window has passed).
  const BlockId* block_table = nullptr;
  const uint8_t* token_types =
      nullptr;  // [T] of an encoder that reads pairs: which of the two texts; null: all the first
  const int32_t* logit_rows = nullptr;  // [R] indices of tokens whose logits are wanted, ascending

  // Null where no token of the step has a path. Else token t's path is path_slots[path_start[t], path_start[t + 1]):
  // the slots of positions (p - n, p], ascending by position, slots[t] the last of them; n = 0 is a plain token.
  const int32_t* path_start = nullptr;  // [T + 1]
  const int32_t* path_slots = nullptr;  // [path_start[T]]

  // Null of a model without recurrent layers. Slots of StateSlots; -1: nothing comes before, or it is not kept.
  const int32_t* state_in = nullptr;   // [S]
  const int32_t* state_out = nullptr;  // [T]

  // Pictures. Null where no token of the step is of one. Else [T]: null, or what stands in the place of the token's
  // embedding: C floats, then C more for each of the first layers that add some (ModelConfig::n_picture_layers).
  const float* const* inputs = nullptr;
  // Null: RoPE turns all by `positions`. Else [T, 3], the positions that it turns by on each axis (ops::Rope::axes),
  // which a picture's rows and columns count on; a token then reads by `positions` as ever.
  const int32_t* axes = nullptr;

  // Null: a token reads places up to its own. Else [T], the place after the last one that it reads, which is past its
  // own: cells of one picture may see each other so. Windows begin as ever.
  const int32_t* ends = nullptr;

  // [n_kept], at most one of each sequence, ascending by sequence; their blocks are no sequence's of the step.
  const KeptRows* kept = nullptr;
  const BlockId* kept_blocks = nullptr;
  int32_t n_kept = 0;

  // Null where no sequence of the step has an adapter. Else the slot of each one's (model/adapters.h); -1: none.
  const int32_t* adapters = nullptr;  // [S]

  std::span<const BlockId> blocks(int32_t s) const {
    return {block_table + block_start[s], block_table + block_start[s + 1]};
  }
  std::span<const int32_t> path(int32_t t) const {
    if (path_start == nullptr) return {};
    return {path_slots + path_start[t], path_slots + path_start[t + 1]};
  }
  // The token of sequence s that token t goes on from; -1: it is the step's first of the sequence.
  int32_t before(int32_t s, int32_t t) const {
    const std::span<const int32_t> own = path(t);
    if (own.empty()) return t == query_start[s] ? -1 : t - 1;
    for (int32_t i = t; i-- > query_start[s];) {
      if (own.size() == 1 ? path(i).empty() : slots[i] == own[own.size() - 2]) return i;
    }
    return -1;
  }
  // [T] What tokens read by: each one reads places up to its own.
  const int32_t* read_by() const { return places != nullptr ? places : positions; }
  // The places [first, end) that token t reads in a layer of this window; 0: all.
  int32_t first_read(int32_t t, int32_t window) const {
    return window > 0 ? std::max(0, read_by()[t] + 1 - window) : 0;
  }
  int32_t end_read(int32_t t) const { return ends != nullptr ? ends[t] : read_by()[t] + 1; }
  // The slot in which token t, of sequence s, reads the key and value of `place`: without a view, of that position.
  int32_t slot_read(int32_t s, int32_t t, int32_t place) const {
    const int32_t on_path = place - (read_by()[t] + 1 - static_cast<int32_t>(path(t).size()));
    if (on_path >= 0 && !path(t).empty()) return path(t)[static_cast<size_t>(on_path)];
    return raw(blocks(s)[static_cast<size_t>(place / block_len)]) * block_len + place % block_len;
  }
};

}  // namespace ibid
