#include "kernels/k_pieces.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace ibid {
namespace {

constexpr int64_t kActivationGroup = 32;  // inputs that share a scale after quantisation

}  // namespace

KPieces one_piece(int64_t n_inputs) {
  KPieces pieces;
  pieces.edges[1] = n_inputs;
  return pieces;
}

KPieces pieces_of(DType dtype, int64_t n_inputs, int64_t group_len) {
  CHECK(group_len >= 1, "a group of inputs has at least one");
  if (n_inputs < KPieces::kMinInputs) return one_piece(n_inputs);
  int64_t step = std::max<int64_t>(traits(dtype).block_len, kActivationGroup);
  // With fewer than eight such steps pieces would be empty; an even cut between heads falls on an edge all the same
  // where the block allows it at all.
  const int64_t between_groups = std::lcm(step, group_len);
  if (n_inputs >= KPieces::kMax * between_groups) step = between_groups;
  KPieces pieces;
  pieces.n = KPieces::kMax;
  for (int64_t i = 1; i < KPieces::kMax; ++i) {
    pieces.edges[static_cast<size_t>(i)] = i * n_inputs / (KPieces::kMax * step) * step;
  }
  pieces.edges[KPieces::kMax] = n_inputs;
  return pieces;
}

KPieces pieces_of_rank(const KPieces& pieces, int tp, int rank) {
  CHECK(tp >= 1 && pieces.n % tp == 0 && rank >= 0 && rank < tp, "ranks share the pieces evenly");
  KPieces own;
  own.n = pieces.n / tp;
  const auto first = static_cast<size_t>(rank * own.n);
  for (size_t i = 0; i <= static_cast<size_t>(own.n); ++i) own.edges[i] = pieces.edges[first + i] - pieces.edges[first];
  return own;
}

std::vector<int> allowed_tp(const KPieces& pieces, int64_t group_len) {
  std::vector<int> degrees = {1};
  for (int tp = 2; tp <= pieces.n; tp *= 2) {
    bool between_groups = true;
    for (int rank = 1; rank < tp; ++rank) {
      between_groups &= pieces.edges[static_cast<size_t>(rank * pieces.n / tp)] % group_len == 0;
    }
    if (between_groups) degrees.push_back(tp);
  }
  return degrees;
}

}  // namespace ibid
