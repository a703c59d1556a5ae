// How well a model predicts a text: the mean negative log-likelihood of tokens[1 ...] given all before, in one context.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "model/model.h"

namespace ibid {

struct TextScore {
  int64_t n_scored = 0;         // predicted tokens: one less than the text's
  double mean_nll = 0.0;        // natural logarithm
  double standard_error = 0.0;  // of the mean
  double perplexity() const;
};

// log_probs[V] of what follows the token at `position`. The last token's row is given too.
using OnLogProbs = std::function<void(int64_t position, std::span<const float> log_probs)>;

// Errors: fewer than two tokens, more than the model's context, ids outside the vocabulary.
Result<TextScore> score_text(Model& model, Stream& stream, KvTypes kv_dtype, std::span<const TokenId> tokens,
                             const OnLogProbs& on_log_probs = {});

}  // namespace ibid
