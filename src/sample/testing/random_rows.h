// Rows of logits and histories for tests of the sampler.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/ids.h"

namespace ibid::testing {

using Row = std::vector<float>;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Rows of many sizes: continuous, heavily tied (few distinct values) and partly masked.
inline Row random_row(std::mt19937& rng) {
  // Some are as wide as a vocabulary, so that whole rows of noise are drawn.
  int n = std::uniform_int_distribution<int>(1, rng() % 8 == 0 ? 5000 : 600)(rng);
  int kind = std::uniform_int_distribution<int>(0, 2)(rng);
  Row row;
  std::normal_distribution<float> normal(0, 3);
  for (int i = 0; i < n; ++i) {
    float z = normal(rng);
    if (kind == 1) z = std::round(z);
    if (kind == 2 && i > 0 && rng() % 3 == 0) z = kMasked;
    row.push_back(z);
  }
  return row;
}

inline std::vector<TokenId> random_tokens(std::mt19937& rng, int max_len, int vocab_size) {
  std::vector<TokenId> out(rng() % static_cast<uint32_t>(max_len + 1));
  for (TokenId& t : out) t = TokenId{static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab_size))};
  return out;
}

}  // namespace ibid::testing
