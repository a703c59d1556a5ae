// Results of searches, for tests that compare them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/state/request.h"

namespace ibid::testing {

struct FoundText {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  double score = 0;
  FinishReason reason = FinishReason::kNone;
  std::string error;
  bool operator==(const FoundText&) const = default;
};
using FoundTexts = std::map<std::pair<RequestId, int32_t>, FoundText>;

inline FoundTexts found_texts(const std::vector<Output>& out) {
  FoundTexts all;
  for (const Output& o : out) {
    FoundText& text = all[{o.request, o.choice}];
    EXPECT_EQ(text.reason, FinishReason::kNone) << "an output after the last one";
    for (const TokenRecord& t : o.tokens) text.tokens.push_back(t.chosen.token), text.logprobs.push_back(t.chosen.raw);
    if (!o.finished) continue;
    text.score = o.ending->score;
    text.reason = o.reason;
    text.error = o.error().message;
  }
  return all;
}

}  // namespace ibid::testing
