// The stages of a draw, each a function of the row, the history and the parameters; stage_order.h defines their order.
// "Sorted" always means by logit, highest first, ties to the lower id; sums over the support run in that order.
#pragma once

#include <algorithm>
#include <span>

#include "kernels/row_math.h"
#include "sample/sampler.h"

namespace ibid::stages {

// 1. Penalties. Each changes logits of tokens in the history only.
// repetition: logit > 0 ? logit / r : logit * r for every token among the last `last_n` (Keskar et al., CTRL,
// section 4.1).
void repetition_penalty(std::span<float> logits, const SampleHistory& history, float penalty, int32_t last_n,
                        SamplerScratch& scratch);
// logit -= frequency * count + presence * (count > 0), counted over the answer.
void presence_frequency_penalty(std::span<float> logits, const SampleHistory& history, float presence, float frequency,
                                SamplerScratch& scratch);
// DRY: a token that would extend a repeat of length n >= allowed_len loses multiplier * base^(n - allowed_len).
void dry_penalty(std::span<float> logits, const SampleHistory& history, const SamplingParams& params,
                 SamplerScratch& scratch);

// 2. Biases, then hard masks (a masked logit is -inf).
void logit_bias(std::span<float> logits, const SamplingParams& params);
void ban_tokens(std::span<float> logits, std::span<const TokenId> banned);
// Bans the last token of each sequence whose other tokens end the history.
void ban_sequences(std::span<float> logits, const SampleHistory& history, const SamplingParams& params);
// Bans every token that would complete an n-gram of the history (n = 1: every token seen).
void no_repeat_ngram(std::span<float> logits, const SampleHistory& history, int32_t n, SamplerScratch& scratch);
// Tokens whose bit is 0 go to -infinity.
void keep_bits(std::span<float> logits, std::span<const uint32_t> bits);
void allow_only(std::span<float> logits, std::span<const uint8_t> allowed);

// 3. Temperature: divides every logit. Dynamic: temperature -+ range by the normalised entropy of the row.
void temperature(std::span<float> logits, const SamplingParams& params, SamplerScratch& scratch);
float effective_temperature(std::span<const float> logits, const SamplingParams& params, SamplerScratch& scratch);

// 4. Truncation: the support, of which a sorted prefix grows as far as a stage needs it. Until something is cut, it is
// the row itself, and scratch.candidates are its best; afterwards these are the support. All its functions together
// cost O(V), however deep the stages read.
class Support {
 public:
  // All finite logits of a row, which must stay in place, and the result of a pass over it. False when there are none.
  bool collect(std::span<const float> logits, const RowLook& look, SamplerScratch& scratch);
  bool collect(std::span<const float> logits, SamplerScratch& scratch);

  int32_t size() const { return is_whole_ ? n_possible_ : static_cast<int32_t>(candidates_->size()); }
  float max_logit() const { return max_; }
  // In order of ids before the first sort, in sorted order after it; until the next call.
  std::span<const Candidate> all();
  // True until something is cut: weights() then has a weight for each token of the row, 0 for impossible ones.
  bool is_whole() const { return is_whole_; }
  std::span<const float> weights() const { return scratch_->weights; }
  // The n highest, sorted; n <= size().
  std::span<const Candidate> sorted(int32_t n);
  // The number of tokens with at least that weight.
  int32_t count_above(double lowest) const;
  // Keeps the n highest; n >= 1.
  void keep_first(int32_t n);
  // Keeps the longest sorted prefix for which `wanted(candidate)` holds, at least one.
  template <typename Wanted>
  void keep_while(Wanted&& wanted) {
    keep_first(std::max(1, count_while(wanted)));
  }
  // The length of that prefix, which may be 0.
  template <typename Wanted>
  int32_t count_while(Wanted&& wanted) {
    int32_t n = 0;
    while (n < size()) {
      sorted(n + 1);
      while (n < n_sorted_ && wanted((*candidates_)[static_cast<size_t>(n)])) ++n;
      if (n < n_sorted_) break;
    }
    return n;
  }
  // Keeps those for which keep[i], i an index into sorted(size()). At least one must be kept.
  void keep_if(std::span<const uint8_t> keep);
  // Drops the n highest; n < size().
  void drop_first(int32_t n);
  static double weight(const Candidate& c) { return static_cast<double>(c.weight); }
  // Sum of weights over the support, in the order of all().
  double total_weight();

 private:
  void list();
  void was_cut();
  std::span<const float> row_;
  std::vector<Candidate>* candidates_ = nullptr;
  SamplerScratch* scratch_ = nullptr;
  float max_ = 0;
  bool is_whole_ = true;
  int32_t n_possible_ = 0;  // of the row
  int32_t n_sorted_ = 0;    // of candidates_, the first
  double total_ = -1;       // < 0: to be summed again
};

void top_n_sigma(Support& support, float n);  // keeps logits >= max - n * standard deviation of the support
void top_k(Support& support, int32_t k);      // exactly k, ties to the lower id
void typical(Support& support, float p,
             SamplerScratch& scratch);  // Meister et al., Locally Typical Sampling, section 3
void top_p(Support& support, float p);  // the smallest sorted prefix with sum >= p
void min_p(Support& support, float p);  // probability >= p * the highest
// Exclude Top Choices: with `probability`, drops all but the least likely of the tokens with probability >= threshold
// and above 0.
void xtc(Support& support, float probability, float threshold, uint64_t seed, int32_t position);
// Mirostat version 1 (Basu et al., Mirostat, algorithm 1): fits Zipf's exponent to the 100 highest and keeps the k
// highest that this law gives for the surprise mu in a vocabulary of V = `vocab_size`; at least one.
void mirostat1(Support& support, float mu, int32_t vocab_size);
// Version 2: keeps tokens with surprise <= mu, at least one.
void mirostat2(Support& support, float mu);
// Both learn from the drawn token's surprise in bits, among what was kept.
float mirostat_update(float mu, float surprise, float tau, float eta);

// 5. Draw: an exponential race (docs/design.md section 5, law 4): v = (x + 1/2) 2^-32, E = -log1p(-v); the smallest E /
// weight wins, ties to the lower id.
TokenId draw(Support& support, uint64_t seed, int32_t position, SamplerScratch& scratch);

}  // namespace ibid::stages
