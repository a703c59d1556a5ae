// What guesses would bring, from what was measured of them: how they turned out along answers of the model's own, what
// one costs, and what a step of several rows takes. No clock is in it, and no model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace ibid::cli {

// A chain; of each token, how likely its proposer believes it and all before it.
struct Guess {
  std::vector<TokenId> tokens;
  std::vector<float> likely;
};

struct GuessedText {
  std::vector<TokenId> answer;
  std::vector<std::vector<Guess>> guesses;  // of each proposer: [i] behind the answer's first i + 1 tokens
};

// Times are parts of a step of one row.
struct GuessMeasures {
  std::vector<std::string> names;  // of proposers; the first one is always there, another one beside it
  std::vector<double> costs;       // c: of a token that it guesses
  std::vector<double> rows;        // v: [i] of a step of 1 + i rows
  std::vector<GuessedText> texts;
  int64_t n_tokens() const;
};

// How often the guess at each place was right where all before it were, of all that a proposer guessed.
std::vector<double> right_by_place(const GuessMeasures& measures, size_t proposer);

struct GuessGain {
  int32_t k = 0;        // guesses of a step, at most
  double tokens = 1;    // E: of a step
  double verified = 0;  // of a step
  double times = 1;     // as fast as without guesses
};

// Going along the answers: each step verifies what the first proposer and `beside` guess, at most k tokens, as far as
// their own belief says that a row pays. beside == 0: the first one alone.
GuessGain gain_of(const GuessMeasures& measures, size_t beside, int32_t k);
// The k, from 1 on, that gains most.
GuessGain best_gain(const GuessMeasures& measures, size_t beside);

// All of this in words, and which --spec and --spec-k it speaks for; off, if none is faster than without.
std::string guess_report(const GuessMeasures& measures);

}  // namespace ibid::cli
