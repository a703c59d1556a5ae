// Samplers drawn at random, so that the rows of one batch are all drawn in different ways. None leaves an empty
// support.
#pragma once

#include <random>

#include "sample/sampling_params.h"

namespace ibid::testing {

inline SamplingParams random_sampling(std::mt19937_64& random, int32_t vocab_size) {
  const auto one_in = [&](int n) { return random() % static_cast<uint64_t>(n) == 0; };
  const auto up_to = [&](float most) { return most * static_cast<float>(random() % 1000) / 1000.0f; };
  const auto token = [&] { return TokenId{static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size))}; };
  SamplingParams p;
  p.seed = random();
  if (one_in(4)) p.temperature = 0;
  if (one_in(2)) p.temperature = 0.2f + up_to(1.5f);
  if (one_in(6)) p.dynatemp_range = up_to(0.5f);
  if (one_in(4)) p.repetition_penalty = 1.0f + up_to(1);
  if (one_in(6)) p.penalty_last_n = static_cast<int32_t>(random() % 20);
  if (one_in(5)) p.presence_penalty = up_to(2), p.frequency_penalty = up_to(2) - 1;
  if (one_in(6)) p.no_repeat_ngram = 3;
  if (one_in(5)) p.dry_multiplier = up_to(2);
  if (one_in(4)) p.logit_bias = {{token(), up_to(10) - 5}, {token(), up_to(10) - 5}};
  if (one_in(5)) p.banned = {token(), token()};
  if (one_in(6)) p.banned_sequences = {{token(), token()}};
  if (one_in(6)) {
    for (int32_t t = static_cast<int32_t>(random() % 2); t < vocab_size; t += 2) p.allowed.push_back(TokenId{t});
  }
  if (one_in(4)) p.top_k = 1 + static_cast<int32_t>(random() % 40);
  if (one_in(4)) p.top_p = 0.3f + up_to(0.7f);
  if (one_in(5)) p.min_p = up_to(0.3f);
  if (one_in(6)) p.typical_p = 0.3f + up_to(0.7f);
  if (one_in(6)) p.top_n_sigma = 0.5f + up_to(2);
  if (one_in(6)) p.xtc_probability = up_to(1), p.xtc_threshold = up_to(0.3f);
  if (one_in(4)) p.mirostat = one_in(2) ? 1 : 2, p.mirostat_tau = 1 + up_to(5), p.mirostat_eta = 0.1f + up_to(0.5f);
  return p;
}

}  // namespace ibid::testing
