// Steps 3 and 4 of a router (kernels/expert_rows.h), shared by the CPU's body and the reference.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/expert_rows.h"

namespace ibid {

// The n highest of `of(0)` to `of(n_all - 1)`, ties to the lower index; NaN counts as -infinity. chosen[n] ascends.
// n <= n_all, n <= kMaxExpertsUsed or kMaxExpertGroups. is_open(i): whether i takes part; at least n do.
template <typename Value, typename Of, typename Open>
void choose_highest(int32_t* chosen, int32_t n, int32_t n_all, Of&& of, Open&& is_open) {
  std::array<Value, kMaxExpertGroups> best;
  int32_t n_chosen = 0;
  for (int32_t i = 0; i < n_all; ++i) {
    if (!is_open(i)) continue;
    Value value = of(i);
    if (value != value) value = -static_cast<Value>(INFINITY);
    if (n_chosen == n && !(value > best[static_cast<size_t>(n - 1)])) continue;
    int32_t at = n_chosen < n ? n_chosen++ : n - 1;
    for (; at > 0 && value > best[static_cast<size_t>(at - 1)]; --at) {
      best[static_cast<size_t>(at)] = best[static_cast<size_t>(at - 1)];
      chosen[at] = chosen[at - 1];
    }
    best[static_cast<size_t>(at)] = value;
    chosen[at] = i;
  }
  std::sort(chosen, chosen + n);
}

// choice(e): c of expert e. chosen[k] ascends.
template <typename Value, typename Choice>
void choose_experts(int32_t* chosen, int32_t n_used, int32_t n_experts, const Router& router, Choice&& choice) {
  if (router.n_groups == 1)
    return choose_highest<Value>(chosen, n_used, n_experts, choice, [](int32_t) { return true; });
  const int32_t len = n_experts / router.n_groups;
  const auto score = [&](int32_t g) {
    Value first = -static_cast<Value>(INFINITY), second = first;
    for (int32_t e = g * len; e < (g + 1) * len; ++e) {
      const Value c = choice(e);
      if (c > first) {
        second = first;
        first = c;
      } else if (c > second) {
        second = c;
      }
    }
    return router.group_by_highest || len == 1 ? first : first + second;
  };
  std::array<int32_t, kMaxExpertGroups> groups;
  choose_highest<Value>(groups.data(), router.groups_used, router.n_groups, score, [](int32_t) { return true; });
  std::array<bool, kMaxExpertGroups> is_used = {};
  for (int32_t i = 0; i < router.groups_used; ++i) {
    is_used[static_cast<size_t>(groups[static_cast<size_t>(i)])] = true;
  }
  choose_highest<Value>(chosen, n_used, n_experts, choice,
                        [&](int32_t e) { return is_used[static_cast<size_t>(e / len)]; });
}

}  // namespace ibid
