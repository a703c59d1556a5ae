// LogitsProcessor: code of the library's caller that changes the logits of a token before anything else reads them:
// grammars, penalties, truncation, log-probabilities. It belongs to one request.
#pragma once

#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

class LogitsProcessor {
 public:
  virtual ~LogitsProcessor() = default;
  // Changes `logits`[V], those of the token after `answer`. Called for each row that a token is drawn from, of drafts
  // as if they were right: the result must depend on the arguments alone. From any of the step's threads; calls for
  // several choices of a request may overlap. An error ends the answer. Must not throw.
  virtual Status process(std::span<const TokenId> prompt, std::span<const TokenId> answer, std::span<float> logits) = 0;
};

}  // namespace ibid
