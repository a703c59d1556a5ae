// DraftChoice: how many drafts a step verifies, for a whole batch. A step of `seconds` says `n_tokens`; a further row
// makes it longer for everybody and says `likely` tokens more. It is worth it while that raises tokens a second:
// while likely / seconds of the row > tokens so far / seconds so far. With the likeliest first this finds the best set,
// since what is left only gets less likely. Where nothing repeats, or many streams share the step (a row then costs as
// much as it says), it is none: there is no threshold and no switch.
#pragma once

namespace ibid {

class DraftChoice {
 public:
  // Of the step's decodes alone: what prompts cost beside them is no reason to draft.
  DraftChoice(double n_tokens, double seconds) : n_tokens_(n_tokens), seconds_(seconds) {}
  // A draft that is taken over with probability `likely`; 1: whoever proposes it has decided. `more`: seconds.
  bool is_worth(double likely, double more) const { return likely >= 1 || raises(likely, more); }
  // Whether so many tokens more for so many seconds more raise the tokens a second.
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
