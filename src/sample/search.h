// Search: chooses an answer by comparing several sequences, instead of drawing it token by token. Beam search keeps the
// likeliest sequences; contrastive search tries the likeliest tokens and takes the one that repeats the sequence least.
// A search's sequences are beams, each with an index among the running ones; for each it needs the best next tokens
// (SearchRow). The engine decides which rows to compute, and when; a search's decisions are a function of the rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/output/finish_reason.h"

namespace ibid {

enum class SearchKind : uint8_t { kNone, kBeam, kContrastive };

// When a search stops, as Hugging Face's early_stopping: kNo once the best running sequence could not beat the worst
// finished one if it ended now, kYes once as many have finished as there are beams, kNever once it could not beat it at
// the full length either.
enum class EarlyStopping : uint8_t { kNo, kYes, kNever };

inline constexpr int32_t kMaxBeams = 64;
inline constexpr int32_t kMaxContrastive = 16;
// Numbers of hidden states that contrastive search keeps: positions times the model's width.
inline constexpr int64_t kMaxContrastiveContext = int64_t{1} << 22;

struct SearchOptions {
  SearchKind kind = SearchKind::kNone;
  int32_t width = 1;         // beams, or candidates of each token
  float length_penalty = 1;  // a sequence's score is the sum of its log-probabilities / length^length_penalty
  EarlyStopping early_stopping = EarlyStopping::kNo;
  int32_t n_groups = 1;         // of beams, which are to differ (Vijayakumar 2016); divides width
  float diversity_penalty = 0;  // of a token, for each beam of earlier groups that took it in this step
  // vLLM's score and stop: the length is that of prompt and answer without its end; sequences end at any rank, and the
  // search continues up to max_tokens.
  bool scores_whole = false;
  float alpha = 0;  // contrastive: (1 - alpha) p - alpha * likeness
};

// A sentence that names the field at fault.
Status validate(const SearchOptions& options);

struct SearchCandidate {
  TokenId token = TokenId::kNone;
  float score = 0;       // beam: log-probability by the model, then processors; contrastive: the probability after them
  float logprob = 0;     // by the model
  uint32_t grammar = 1;  // the state after it
  FinishReason end = FinishReason::kNone;  // why the sequence ends with it
};

// The possible next tokens of one beam. The candidates are distinct; best first, ties to the lower id.
struct SearchRow {
  std::vector<SearchCandidate> best;
  std::vector<float> hidden;  // contrastive: the last token's unit vector
  float likeness = 0;         // contrastive: the greatest cosine with the sequence before it
};

// A beam of the next step: the beam with index `parent` and one token more.
struct SearchChild {
  int32_t parent = 0;
  TokenId token = TokenId::kNone;
  uint32_t grammar = 1;
};

struct SearchedText {
  std::vector<TokenId> tokens;  // the end included
  std::vector<float> logprobs;  // of each, by the model
  double score = 0;
  FinishReason reason = FinishReason::kNone;
};

class Search {
 public:
  virtual ~Search() = default;
  virtual int32_t n_candidates() const = 0;  // that a row should have; fewer where no more are possible
  // Beams that run at once, at most.
  virtual int32_t n_beams() const = 0;
  // rows[i] belongs to beam i; at first there is one, the prompt. Fills `children` with the next beams, those of one
  // parent in order; none: the search is over. Throws only std::bad_alloc, and is over then.
  virtual void advance(std::span<const SearchRow> rows, std::vector<SearchChild>& children) = 0;
  // Once it is over, best first.
  virtual std::vector<SearchedText> take_results() = 0;
};

// `max_tokens` of an answer, at least 1. `n_ends`: tokens that end a sequence.
std::unique_ptr<Search> make_search(const SearchOptions& options, int32_t prompt_len, int32_t max_tokens,
                                    int32_t n_ends);

}  // namespace ibid
