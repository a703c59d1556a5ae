// DraftChoice: chooses how many drafts a step verifies, for a whole batch. A step of `seconds` yields `n_tokens`; one
// more row makes it longer for all sequences and yields `likely` more tokens. The row is worth it while it raises
// tokens per second: while likely / seconds of the row > tokens so far / seconds so far. Taking the likeliest drafts
// first finds the best set, since the remaining ones are only less likely. If nothing repeats, or many streams share
// the step (a row then costs as much as it yields), the choice is no drafts: no threshold and no switch is needed.
#pragma once

namespace ibid {

class DraftChoice {
 public:
  // Counts the step's decodes only: the cost of prompts in the same step is no reason to draft.
  DraftChoice(double n_tokens, double seconds) : n_tokens_(n_tokens), seconds_(seconds) {}
  // A draft that is accepted with probability `likely`; 1: the proposer has decided. `more`: seconds.
  bool is_worth(double likely, double more) const { return likely >= 1 || raises(likely, more); }
  // Whether `likely` more tokens for `more` seconds raise the tokens per second.
  bool raises(double likely, double more) const { return likely * seconds_ > kMargin * more * n_tokens_; }
  void take(double likely, double more) { n_tokens_ += likely, seconds_ += more; }
  double n_tokens() const { return n_tokens_; }
  double seconds() const { return seconds_; }

 private:
  static constexpr double kMargin =
      1.35;  // both sides are estimates; 1.15 cost eight short streams 10 % of a core's time
  double n_tokens_;
  double seconds_;
};

}  // namespace ibid
