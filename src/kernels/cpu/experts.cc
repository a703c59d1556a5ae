#include <cmath>

#include "kernels/choose_experts.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/expert_groups.h"
#include "kernels/math.h"
#include "kernels/sort_experts.h"

namespace ibid::cpu {
namespace {

// An element's exponential, division and comparison against an addition.
constexpr int kRouteWeight = 16;

float sigmoid_of(float exp_of_negative) { return 1.0f / (1.0f + exp_of_negative); }

// x becomes exp(x - max) / sum.
void softmax(float* x, int32_t n) {
  float most = -INFINITY;
  for (int32_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (int32_t i = 0; i < n; ++i) x[i] -= most;
  table().row->exp(x, x, n);
  float sum = 0.0f;
  for (int32_t i = 0; i < n; ++i) sum += x[i];
  for (int32_t i = 0; i < n; ++i) x[i] /= sum;
}

void to_scores(float* x, int32_t n, RouterScore score) {
  if (score == RouterScore::kSoftmax) softmax(x, n);
  if (score != RouterScore::kSigmoid) return;
  for (int32_t i = 0; i < n; ++i) x[i] = -x[i];
  table().row->exp(x, x, n);
  for (int32_t i = 0; i < n; ++i) x[i] = sigmoid_of(x[i]);
}

void route_token(int32_t* chosen, float* weight, float* scores, int32_t n_used, int32_t n_experts,
                 const Router& router) {
  to_scores(scores, n_experts, router.score);
  choose_experts<float>(chosen, n_used, n_experts, router,
                        [&](int32_t e) { return router.bias == nullptr ? scores[e] : scores[e] + router.bias[e]; });
  for (int32_t j = 0; j < n_used; ++j) weight[j] = scores[chosen[j]];
  if (router.score == RouterScore::kChosenSoftmax) softmax(weight, n_used);
  if (router.normalises) {
    float sum = 0.0f;
    for (int32_t j = 0; j < n_used; ++j) sum += weight[j];
    sum = (sum < router.sum_floor ? router.sum_floor : sum) + router.sum_epsilon;
    for (int32_t j = 0; j < n_used; ++j) weight[j] /= sum;
  }
  if (router.scale != 1.0f) {
    for (int32_t j = 0; j < n_used; ++j) weight[j] *= router.scale;
  }
  if (router.expert_scale != nullptr) {
    for (int32_t j = 0; j < n_used; ++j) weight[j] *= router.expert_scale[chosen[j]];
  }
}

}  // namespace

void route(Stream& s, const ExpertRows& rows, const TensorView& logits, const Router& router) {
  for_rows(s, rows.n_tokens, rows.n_experts, kRouteWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      route_token(rows.expert + t * rows.n_used, rows.weight + t * rows.n_used, logits.row_as<float>(t), rows.n_used,
                  rows.n_experts, router);
    }
  });
  sort_experts(rows);
}

void add_experts(Stream& s, const TensorView& out, const TensorView& y, const ExpertRows& rows) {
  const auto sum = table().row->add_experts;
  const int32_t k = rows.n_used;
  for_rows(s, rows.n_tokens, out.row_len() * k, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int32_t group_end[kExpertGroups] = {};
      for (int32_t j = 0; j < k; ++j) ++group_end[expert_group(rows.expert[t * k + j], rows.n_experts)];
      for (int g = 1; g < kExpertGroups; ++g) group_end[g] += group_end[g - 1];
      sum(out.row_as<float>(t), y.row_as<float>(0), y.row_stride_bytes / static_cast<int64_t>(sizeof(float)),
          rows.row + t * k, rows.weight + t * k, group_end, out.row_len());
    }
  });
}

void add_expert_bias(Stream& s, const TensorView& x, const TensorView& bias, const ExpertRows& rows) {
  const auto add = table().row->add;
  for_rows(s, x.n_rows(), x.row_len(), 1, [&](int64_t begin, int64_t end) {
    for (int32_t e = rows.expert_of(begin); begin < end; ++begin) {
      while (begin >= rows.first_row[e + 1]) ++e;
      add(x.row_as<float>(begin), bias.row_as<const float>(e), x.row_len());
    }
  });
}

void gate_rows(Stream& s, const TensorView& x, const TensorView& gate) {
  const auto scale = table().row->scale;
  for_rows(s, x.n_rows(), x.row_len(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      scale(x.row_as<float>(t), sigmoid_of(math::exp(-gate.row_as<float>(t)[0])), x.row_len());
    }
  });
}

}  // namespace ibid::cpu
