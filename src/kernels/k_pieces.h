// KPieces: the pieces of K in which a product is summed whose inputs tensor parallelism cuts (`wo`, `w_down`, experts'
// down): docs/design.md section 5, law 8. They belong to the weight and never depend on how many ranks there are.
//
//   K below 2,048: one piece. Else eight, and edge i is the largest multiple of `step` at or below i K / 8; edge 8 is
//   K. step = the weight's block (32 where that is shorter: activations are quantised in groups of 32), and where the
//   inputs are heads and K holds eight of them, the least common multiple of that and `group_len`.
//
// A piece is summed as kernels/linear.h specifies, from 0, and the pieces are added as one balanced tree,
//     ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7)), plain fp32 adds, subnormals kept, for every family.
// A rank of TP 2, 4 or 8 has the inputs of 4, 2 or 1 neighbouring pieces; it adds its own subtree and sends one partial
// sum, and the partial sums are added as the rest of the tree. So all of TP 1, 2, 4, 8 give the same bits.
//
// Plain data; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace ibid {

struct KPieces {
  static constexpr int kMax = 8;
  static constexpr int64_t kMinInputs = 2048;  // of a weight with more than one piece

  int n = 1;                                 // 1, 2, 4 or 8
  std::array<int64_t, kMax + 1> edges = {};  // in inputs: edges[0] = 0 <= ... <= edges[n] = K
};

// All K inputs as one piece: for every product that no rank cuts along K.
KPieces one_piece(int64_t n_inputs);

// Of a weight that ranks cut along K. `group_len`: the inputs that stay together on one rank: for `wo` the width of the
// query heads of one KV head, (H / K) D; 1 where any input may be cut from the next.
KPieces pieces_of(DType dtype, int64_t n_inputs, int64_t group_len = 1);

// What rank `rank` of `tp` sums, its own inputs counted from 0. tp divides pieces.n.
KPieces pieces_of_rank(const KPieces& pieces, int tp, int rank);

// The TP degrees, ascending from 1, whose cuts all fall on edges of pieces and between groups. With heads that is where
// every rank gets whole KV heads, at least one.
std::vector<int> allowed_tp(const KPieces& pieces, int64_t group_len = 1);

}  // namespace ibid
