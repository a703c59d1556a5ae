// What drafts would bring, from what was measured of them: how they turned out along answers of the model's own, what
// one costs, and what a step of several rows takes. No clock is in it, and no model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace ibid::cli {

// A chain; of each token, how likely its proposer believes it and all before it.
struct DraftChain {
  std::vector<TokenId> tokens;
  std::vector<float> likely;
};

struct DraftedText {
  std::vector<TokenId> answer;
  std::vector<std::vector<DraftChain>> drafts;  // of each proposer: [i] after the answer's first i + 1 tokens
};

// Times are parts of a step of one row.
struct DraftMeasures {
  std::vector<std::string> names;  // of proposers; the first one is always there, another one beside it
  std::vector<double> costs;       // c: of a token that it drafts
  std::vector<double> rows;        // v: [i] of a step of 1 + i rows
  std::vector<DraftedText> texts;
  int64_t n_tokens() const;
};

// How often the draft at each place was right where all before it were, of all that a proposer drafted.
std::vector<double> right_by_place(const DraftMeasures& measures, size_t proposer);

struct DraftGain {
  int32_t k = 0;        // drafts of a step, at most
  double tokens = 1;    // E: of a step
  double verified = 0;  // of a step
  double times = 1;     // as fast as without drafts
};

// Going along the answers: each step verifies what the first proposer and `beside` draft, at most k tokens, as far as
// their own estimates predict that a row pays. beside == 0: the first one alone.
DraftGain gain_of(const DraftMeasures& measures, size_t beside, int32_t k);
// The k, from 1 on, that gains most.
DraftGain best_gain(const DraftMeasures& measures, size_t beside);

// All of this in words, and which --spec and --spec-k it speaks for; off, if none is faster than without.
std::string draft_report(const DraftMeasures& measures);

}  // namespace ibid::cli
