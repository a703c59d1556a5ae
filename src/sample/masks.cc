#include <algorithm>
#include <limits>

#include "kernels/math.h"
#include "sample/stages.h"

namespace ibid::stages {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void logit_bias(std::span<float> logits, const SamplingParams& params) {
  for (auto [token, bias] : params.logit_bias) logits[static_cast<size_t>(raw(token))] += bias;
}

void ban_tokens(std::span<float> logits, std::span<const TokenId> banned) {
  for (TokenId t : banned) logits[static_cast<size_t>(raw(t))] = kMasked;
}

void keep_bits(std::span<float> logits, std::span<const uint32_t> bits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((bits[i / 32] >> i % 32 & 1) == 0) logits[i] = -std::numeric_limits<float>::infinity();
  }
}

void allow_only(std::span<float> logits, std::span<const uint8_t> allowed) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed[i]) logits[i] = kMasked;
  }
}

void temperature(std::span<float> logits, const SamplingParams& params, SamplerScratch& scratch) {
  float t = std::max(effective_temperature(logits, params, scratch), 1e-6f);
  if (t == 1.0f) return;
  for (float& z : logits) z /= t;
}

float effective_temperature(std::span<const float> logits, const SamplingParams& params, SamplerScratch& scratch) {
  if (params.dynatemp_range <= 0) return params.temperature;
  Support support;
  if (!support.collect(logits, scratch) || support.size() < 2) return params.temperature;
  double total = support.total_weight();
  double entropy = 0;
  for (const Candidate& c : support.all()) {
    double p = support.weight(c) / total;
    if (p > 0) entropy -= p * math::log(p);
  }
  double normalised = entropy / math::log(static_cast<double>(support.size()));
  float low = std::max(0.0f, params.temperature - params.dynatemp_range);
  float high = params.temperature + params.dynatemp_range;
  double share = normalised <= 0 ? 0 : math::exp(static_cast<double>(params.dynatemp_exponent) * math::log(normalised));
  return low + (high - low) * static_cast<float>(share);
}

}  // namespace ibid::stages
