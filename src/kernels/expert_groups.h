// The order in which the outputs of a token's experts are added (docs/design.md section 5, law 8). It is fixed by the
// number of experts alone, never by how many of them a token chose, how rows were gathered, or how many ranks there
// are.
//
//   Experts lie in eight groups by index: expert e of E is in group floor(8 e / E). A group starts at +0 and adds its
//   chosen experts in ascending order of their index: sum = fma(weight, output, sum), fp32, subnormals kept. All eight
//   sums, those of groups without a chosen expert (+0) too, are added as the tree of kernels/k_pieces.h:
//     ((g0 + g1) + (g2 + g3)) + ((g4 + g5) + (g6 + g7)).
//   A rank of 2, 4 or 8 holds the experts of 4, 2 or 1 neighbouring groups and adds a subtree of its own.
//
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <span>

namespace ibid {

inline constexpr int kExpertGroups = 8;

inline int expert_group(int32_t expert, int32_t n_experts) {
  return static_cast<int>(int64_t{expert} * kExpertGroups / n_experts);
}

// What one chosen expert gives to a token: its output[C], not owned, and its weight.
struct ExpertOutput {
  int32_t expert;
  float weight;
  const float* output;
};

namespace reference {
// out[C] = the sum above. `chosen` is ascending by expert, each once.
void add_experts(std::span<float> out, std::span<const ExpertOutput> chosen, int32_t n_experts);
}  // namespace reference

}  // namespace ibid
