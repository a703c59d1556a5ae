// Attention kernels. Plain structs and pointers, as in row_table.h.
//
// The arithmetic (docs/design.md section 5, law 1), for one query row (a token and one of its heads) and one KV head:
//   q' = q * scale, rounded; a score is fma over d ascending, from 0; then cap * tanh(score / cap) where there is a
//   cap; then fma(slope, position of the key - position of the query, score) where heads have slopes. Tiles of 64
//   positions from absolute position 0, ascending. In a tile, over its visible positions alone:
//     m' = max(m, scores), a = exp(m - m'), p = exp(score - m'),
//     lane (position mod 16): l = l * a, then + p in ascending position; value: o = o * a, then fma(p, v, o) ascending.
//   Pieces of 4 tiles start with m = -inf, l = 0, o = 0; at the end of one, l is summed over its lanes by the tree.
//   Pieces merge as a binary tree anchored at position 0, as a counter carries: a node of level j is 2^j pieces from a
//   multiple of 2^j on, and merges its left half with its right one; the last, incomplete nodes merge from the smallest
//   up. A half that saw no position leaves the other as it is. A merge of the left m, l, o with the right M, L, O:
//     m' = max, l' = l * exp(m - m') + L * exp(M - m'), o' = fma(O, exp(M - m'), o * exp(m - m')).
//   So who has an aligned power of two of pieces (a thread, a block of a GPU, a rank) merges them alone.
//   A sink is a logit that joins the sum at the root, after the tree, whatever window there is:
//     m' = max(m, sink), l' = l * exp(m - m') + exp(sink - m'), o' = o * exp(m - m').
//   out = o / l. (Online softmax: Milakov and Gimelshein, 2018; tiles: Dao et al., 2022; pieces: Dao et al., 2023.)
// A key's place in all this is its position's, whatever slot it lies in: a path's keys are gathered into their tiles.
// A tile or piece without a visible position is passed over. Keys and values are F32, F16 or BF16, or the
// numbers that codes stand for (kernels/kv_codes.h), all widened exactly. Of four bits both are turned: the caller
// turns queries and outputs.
#pragma once

#include <cstdint>

namespace ibid::cpu {

inline constexpr int kTileLen = 64;
inline constexpr int kPieceTiles = 4;
inline constexpr int kPieceLen = kTileLen * kPieceTiles;

enum class KvFormat : int32_t { kF32, kF16, kBF16, kI8, kI4, kF8, kWidened };  // the last: a tile's copy, no task's

// Some query tokens of one sequence with some heads of one group, which are the rows that read the same keys and
// values; or with all heads of several groups, which in each tile come one after the other, as their keys and values
// lie.
struct AttentionTask {
  const float* q;    // first token, first head; heads are key_len apart, groups n_heads heads
  int64_t q_stride;  // floats from one token to the next
  float* out;        // as q, but heads are value_len apart
  int64_t out_stride;
  const int32_t* positions;  // [n_queries]
  const int32_t* ends;       // null, or [n_queries] (ForwardBatch::ends)
  int32_t n_queries;
  int32_t n_heads;       // of a group
  int32_t n_groups = 1;  // more only where blocks are read as they lie, without paths; at most attention_max_groups()
  int32_t key_len;       // Dk and Dv of kernels/paged_kv.h
  int32_t value_len;

  const void* keys;        // the first KV head's keys in block 0
  const void* values;      // of latent rows the same
  const void* key_scales;  // of codes, likewise, as kernels/paged_kv.h has them; and of four bits the zeros
  const void* value_scales;
  const void* key_zeros;
  const void* value_zeros;
  bool latent;          // a block has rows[B][key_len] that are both
  int64_t group_bytes;  // from one KV head to the next
  int64_t block_bytes;
  const int32_t* blocks;  // the sequence's part of the block table
  int32_t block_len;
  // Null, or path_start[n_queries + 1]: the slots of query i's last positions, up to its own, are
  // path_slots[path_start[i], path_start[i + 1]), and `blocks` has the earlier ones alone (kernels/forward_batch.h).
  const int32_t* path_start;
  const int32_t* path_slots;
  KvFormat key_format;
  KvFormat value_format;
  int32_t run_bytes;  // of a head's keys and values in a block, and of all scales that follow them
  int32_t scales_bytes;

  float scale;
  float soft_cap;            // 0: none
  int32_t window;            // 0: all
  const float* sinks;        // null, or of each head, from the first one on
  const float* slopes;       // as sinks
  bool fetches_into_second;  // the next tile: into the second-level cache, not the first

  // Null: all pieces, merged into out. Else pieces [first_piece, first_piece + n_pieces) alone, and the state of each
  // into partial, partial_stride floats apart: for each row (group, token, head) m, l and 14 unused floats, then
  // o[value_len rounded up to 16].
  float* partial;
  int64_t partial_stride;
  int32_t first_piece;
  int32_t n_pieces;
};

// Inlined even in a debug build: no instruction set's file may leave a shared copy behind.
#define IBID_CONSTANT inline constexpr __attribute__((always_inline))

// Rows of one task: what a thread holds on its stack.
inline constexpr int kAttentionRowFloats = 6144;
inline constexpr int kAttentionPlaces = 192;            // of rows, in strips that may not be full
inline constexpr int kAttentionPlaceFloats = 24 * 576;  // at least two times the rows', and a strip of 24 of any length
IBID_CONSTANT int attention_row_len(int head_len) { return (head_len + 15) / 16 * 16; }
// `head_len`: the longer of key_len and value_len.
IBID_CONSTANT int attention_max_rows(int head_len) {
  return kAttentionRowFloats / attention_row_len(head_len) < 96 ? kAttentionRowFloats / attention_row_len(head_len)
                                                                : 96;
}
// Whether keys and values can be read as they lie, and not only through a widened copy. Of four bits: heads whose
// scales a tile has room for, of whole groups.
inline constexpr int kTileGroups = 8;
inline constexpr int kGroupLen = 32;
IBID_CONSTANT bool attention_reads_part(KvFormat format, int len) {
  return format == KvFormat::kI4 ? len % kGroupLen == 0 && len <= kTileGroups * kGroupLen : len % 16 == 0;
}
IBID_CONSTANT bool attention_reads_blocks(int block_len, int key_len, KvFormat keys, int value_len, KvFormat values,
                                          bool latent) {
  return block_len >= 16 && attention_reads_part(keys, key_len) && attention_reads_part(values, value_len) && !latent;
}
// Groups of n_rows rows that one task may have, if any: rows lie in strips of 24 at most.
IBID_CONSTANT int attention_max_groups(int n_rows, int head_len) {
  const int places = (n_rows + 23) / 24 * 24, most = attention_max_rows(head_len);
  const int by_floats = 2 * kAttentionRowFloats / attention_row_len(head_len) / places;
  const int by_places = kAttentionPlaces / places, by_rows = most / n_rows;
  const int least = by_floats < by_places ? by_floats : by_places;
  return least < by_rows ? least : by_rows;
}
IBID_CONSTANT int attention_partial_len(int value_len) { return 16 + attention_row_len(value_len); }

struct AttentionTable {
  void (*run)(const AttentionTask& task);
  // out[value_len] from the states of n pieces from `first_piece` on, `stride` floats apart; a state whose m is -inf
  // saw no position. Merges in place: the first state becomes that of all, the others are undefined. `sink` may be
  // null; without `out` the state is all that is wanted.
  void (*merge)(float* out, float* partial, int64_t first_piece, int64_t n, int64_t stride, const float* sink,
                int32_t value_len);
};

}  // namespace ibid::cpu
