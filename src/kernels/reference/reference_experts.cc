#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/expert_groups.h"

namespace ibid::reference {

void add_experts(std::span<float> out, std::span<const ExpertOutput> chosen, int32_t n_experts) {
  for (size_t i = 0; i < chosen.size(); ++i) {
    CHECK(chosen[i].expert >= 0 && chosen[i].expert < n_experts, "an expert of the layer");
    CHECK(i == 0 || chosen[i - 1].expert < chosen[i].expert, "experts ascend");
  }
  for (size_t c = 0; c < out.size(); ++c) {
    std::array<float, kExpertGroups> sum = {};
    for (const ExpertOutput& of : chosen) {
      float& group = sum[static_cast<size_t>(expert_group(of.expert, n_experts))];
      group = std::fma(of.weight, of.output[c], group);
    }
    for (size_t step = 1; step < sum.size(); step *= 2) {
      for (size_t g = 0; g < sum.size(); g += 2 * step) sum[g] += sum[g + step];
    }
    out[c] = sum[0];
  }
}

}  // namespace ibid::reference
