// Sampler: turns a row of logits into a token for one request. Compiled once from validated parameters; immutable, so
// any thread may use it. A draw is a function of (processed logits, seed, absolute position) and nothing else.
// Its stages and their order are a table (stage_table.h).
//
// A draw costs O(V + T): each stage reads each token of the vocabulary and of the history a bounded number of times,
// for every request (cost_test.cc); validate() refuses parameters that cannot be bounded so.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sample/sampling_params.h"
#include "sample/search.h"
#include "sample/stage_order.h"
#include "sample/token_record.h"

namespace ibid {

namespace stages {
class Support;
}

// The sampler's input besides the row. Spans must stay valid during the call only.
struct SampleHistory {
  std::span<const TokenId> prompt;
  std::span<const TokenId> answer;
  // Absolute position of the token to be drawn.
  int32_t position() const { return static_cast<int32_t>(prompt.size() + answer.size()); }
};

// A sequence's state from draw to draw; plain data that survives preemption. A row that is drawn on trial takes a copy.
struct SamplerState {
  uint64_t choice = 0;  // draws with the request's seed + choice
  float mirostat_mu = 0;
  uint32_t grammar = 1;  // the state in its grammar (sample/grammar/states.h), if it has one
};

// A token while truncation works; weight = exp(logit - the row's highest).
struct Candidate {
  float logit = 0;
  float weight = 0;
  int32_t id = 0;
};

// Buffers of one sampling thread, reused from draw to draw.
struct SamplerScratch {
  std::vector<float> logits;          // the processed row
  std::vector<float> log_probs;       // of the row as the model gave it, or exponentials on the way
  std::vector<float> weights;         // exp(logit - the highest) of the processed row
  std::vector<float> block_max;       // of a row (kernels/row_math.h), twice
  std::vector<Candidate> candidates;  // the support, while it is truncated
  std::vector<int32_t> counts;        // per token; all zero between draws
  std::vector<int32_t> touched;
  std::vector<int32_t> repeats;  // per token of the history
  std::vector<Candidate> spare;  // while candidates are sorted
  std::vector<Candidate> best;   // of a row by the model, best first
  std::vector<uint8_t> keep;     // per candidate
  std::vector<uint32_t> noise;
};

// Draws from the support in place of the race: for drafts and their verification where they are not coupled
// (spec/drawn/rejection.h). Not called at temperature 0.
class DrawRule {
 public:
  virtual ~DrawRule() = default;
  // `support` is not empty; weights are not normalised. A token that is not of the row fails the draw.
  virtual TokenId draw(std::span<const Candidate> support, double total_weight, uint64_t seed, int32_t position) = 0;
};

class Sampler {
 public:
  // `end_of_generation` are the ids that min_tokens and ignore_eos mask. `order` must be a stage order.
  static Result<std::shared_ptr<const Sampler>> compile(const SamplingParams& params, int32_t vocab_size,
                                                        std::span<const TokenId> end_of_generation, uint64_t seed,
                                                        std::span<const StageId> order = stage_order());

  // `logits`[V]. An empty support is an error of this request (row L10), and so is a logit that is NaN or +infinity, be
  // it the model's or what the stages make of it: no probability is ever NaN. `mask`: empty, or a bit for each token
  // (bit v % 32 of word v / 32); those whose bit is 0 cannot be drawn. `state` is changed by a draw that succeeds
  // alone. `rule`: null for the race.
  Result<TokenRecord> sample(std::span<const float> logits, const SampleHistory& history, SamplerState& state,
                             SamplerScratch& scratch, std::span<const uint32_t> mask = {},
                             DrawRule* rule = nullptr) const;

  // The candidates of a search (search.h): the n best possible tokens of a row, by log-probability and then the
  // processors, or by the probability after them. Neither draws nor truncates. Fills token, score and logprob.
  Status candidates(std::span<const float> logits, const SampleHistory& history, const SamplerState& state,
                    SamplerScratch& scratch, std::span<const uint32_t> mask, bool by_probability, size_t n,
                    std::vector<SearchCandidate>& out) const;
  // The request sets neither a temperature nor a stage that cuts the support.
  bool only_ranks() const;

  SamplerState initial_state(uint64_t choice = 0) const;
  const SamplingParams& params() const { return params_; }

 private:
  Sampler(SamplingParams params, int32_t vocab_size, std::vector<TokenId> end_of_generation, uint64_t seed,
          std::span<const StageId> order);

  SamplingParams params_;
  int32_t vocab_size_ = 0;
  std::vector<TokenId> end_of_generation_;
  std::vector<uint8_t> allowed_;  // per token, empty when all are
  uint64_t seed_ = 0;
  std::vector<StageId> row_stages_, support_stages_;  // those that the parameters enable, in order
};

// The error where a model computes NaN or +infinity.
Error unsound_row();

// The log-probabilities of one row for a given token and the n best (prompt log-probabilities use it too). An error
// where the row has none: a NaN, a +infinity, or nothing above -infinity.
Result<TokenRecord> score_row(std::span<const float> logits, TokenId chosen, int32_t n_top, SamplerScratch& scratch);

}  // namespace ibid
