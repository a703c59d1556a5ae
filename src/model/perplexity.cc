#include "model/perplexity.h"

#include <cmath>
#include <string>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/one_sequence.h"

namespace ibid {

double TextScore::perplexity() const { return math::exp(mean_nll); }

Result<TextScore> score_text(Model& model, Stream& stream, KvTypes kv_dtype, std::span<const TokenId> tokens,
                             const OnLogProbs& on_log_probs) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 2) return invalid("the text has " + std::to_string(n) + " tokens; two or more can be scored", "tokens");
  if (n > model.context_len()) {
    return invalid(
        "the text has " + std::to_string(n) + " tokens; the context holds " + std::to_string(model.context_len()),
        "tokens");
  }
  for (TokenId id : tokens) {
    if (raw(id) < 0 || raw(id) >= model.config().vocab_size) {
      return invalid("token " + std::to_string(raw(id)) + " is outside the model's vocabulary of " +
                         std::to_string(model.config().vocab_size),
                     "tokens");
    }
  }
  OneSequence sequence(model, stream, {.kv_dtype = kv_dtype, .capacity = n});
  double sum = 0, sum_of_squares = 0;
  sequence.append(tokens, [&](int64_t first, const TensorView& rows) {
    ops::log_softmax(stream, rows, rows);
    for (int64_t r = 0; r < rows.dim[0]; ++r) {
      const float* row = rows.row_as<float>(r);
      if (on_log_probs) on_log_probs(first + r, {row, static_cast<size_t>(rows.dim[1])});
      if (first + r + 1 == n) continue;
      const double nll = -static_cast<double>(row[raw(tokens[static_cast<size_t>(first + r + 1)])]);
      sum += nll;
      sum_of_squares += nll * nll;
    }
  });
  TextScore score;
  score.n_scored = n - 1;
  score.mean_nll = sum / static_cast<double>(score.n_scored);
  const double variance = sum_of_squares / static_cast<double>(score.n_scored) - score.mean_nll * score.mean_nll;
  score.standard_error = std::sqrt(std::fmax(variance, 0.0) / static_cast<double>(score.n_scored));
  return score;
}

}  // namespace ibid
