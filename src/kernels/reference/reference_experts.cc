#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/choose_experts.h"
#include "kernels/expert_groups.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"
#include "kernels/sort_experts.h"

namespace ibid::reference {
namespace {

void softmax(std::vector<double>& x) {
  const double most = *std::ranges::max_element(x);
  double sum = 0.0;
  for (double& v : x) sum += v = std::exp(v - most);
  for (double& v : x) v /= sum;
}

}  // namespace

void route(const ExpertRows& rows, const TensorView& logits, const Router& router) {
  const int32_t E = rows.n_experts, k = rows.n_used;
  for (int32_t t = 0; t < rows.n_tokens; ++t) {
    std::vector<double> scores(static_cast<size_t>(E)), weights;
    for (int32_t e = 0; e < E; ++e) scores[static_cast<size_t>(e)] = get(logits, t, e);
    if (router.score == RouterScore::kSoftmax) softmax(scores);
    for (double& s : scores) s = router.score == RouterScore::kSigmoid ? 1.0 / (1.0 + std::exp(-s)) : s;
    int32_t* chosen = rows.expert + t * k;
    choose_experts<double>(chosen, k, E, router, [&](int32_t e) {
      return scores[static_cast<size_t>(e)] + (router.bias == nullptr ? 0.0 : double{router.bias[e]});
    });
    for (int32_t j = 0; j < k; ++j) weights.push_back(scores[static_cast<size_t>(chosen[j])]);
    if (router.score == RouterScore::kChosenSoftmax) softmax(weights);
    double sum = 0.0;
    for (const double w : weights) sum += w;
    const double by = router.normalises ? std::max(sum, double{router.sum_floor}) + double{router.sum_epsilon} : 1.0;
    for (int32_t j = 0; j < k; ++j) {
      const double of_expert = router.expert_scale == nullptr ? 1.0 : double{router.expert_scale[chosen[j]]};
      rows.weight[t * k + j] =
          static_cast<float>(weights[static_cast<size_t>(j)] / by * double{router.scale} * of_expert);
    }
    for (int32_t e = 0; e < E; ++e) set(logits, t, e, scores[static_cast<size_t>(e)]);
  }
  sort_experts(rows);
}

void add_expert_bias(const TensorView& x, const TensorView& bias, const ExpertRows& rows) {
  for (int32_t e = 0; e < rows.n_experts; ++e) {
    for (int32_t i = rows.first_row[e]; i < rows.first_row[e + 1]; ++i) {
      for (int64_t n = 0; n < x.row_len(); ++n) set(x, i, n, get(x, i, n) + get(bias, e, n));
    }
  }
}

void gate_rows(const TensorView& x, const TensorView& gate) {
  for (int64_t t = 0; t < x.n_rows(); ++t) {
    const double by = 1.0 / (1.0 + std::exp(-get(gate, t, 0)));
    for (int64_t c = 0; c < x.row_len(); ++c) set(x, t, c, get(x, t, c) * by);
  }
}

void add_experts(const TensorView& out, const TensorView& y, const ExpertRows& rows) {
  std::vector<ExpertOutput> chosen(static_cast<size_t>(rows.n_used));
  for (int32_t t = 0; t < rows.n_tokens; ++t) {
    for (int32_t j = 0; j < rows.n_used; ++j) {
      const int32_t i = t * rows.n_used + j;
      chosen[static_cast<size_t>(j)] = {rows.expert[i], rows.weight[i], y.row_as<const float>(rows.row[i])};
    }
    add_experts({out.row_as<float>(t), static_cast<size_t>(out.row_len())}, chosen, rows.n_experts);
  }
}

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
