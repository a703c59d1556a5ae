// Request and Output: what goes into the engine and what comes out. Plain data; a request is immutable once submitted.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "engine/state/kv_eviction.h"
#include "engine/state/ledger.h"
#include "model/pooling.h"
#include "sample/sampling_params.h"
#include "sample/search.h"
#include "sample/token_record.h"
#include "spec/verifier.h"
#include "text/output/finish_reason.h"

namespace ibid {

namespace grammar {
class Matcher;  // sample/grammar/matcher.h
}
struct PlacedAdapter;    // model/adapters.h
class LogitsProcessor;   // sample/logits_processor.h
class PromptPictures;    // model/vision/prompt_pictures.h
struct PictureToEncode;  // engine/picture_encoder.h
struct AnswerMarkup;     // text/output/answer_stops.h
class ReasoningBudget;   // text/output/reasoning_budget.h
class StopSet;           // text/output/stop_matcher.h: compiled stop strings and ids, shared by a request's sequences

enum class RequestId : uint64_t {};

// Coupled drafts change no token, so none of this is in a record: what another verifier drew comes with a replay.
struct SpeculationParams {
  int32_t max_drafts = -1;  // a step, as far as the engine proposes any; -1: as many as it does; 0: none
  Verifier verifier = Verifier::kCoupled;
  bool free_alone = false;  // from those alone who take next to no time: the text itself, its prediction, its grammar
  // The engine's own: the whole prompt is computed, whatever the prefix cache has of it, so that what is drafted, which
  // shows where drafts are pinned, does not depend on what others asked.
  bool reads_prompt = false;
  std::vector<TokenId> prediction;  // how the answer may go
};

// Where an answer goes on that was cut: another engine of the same model and arithmetic, or this one, gave its first
// tokens. What follows is what would have followed there, bit by bit, as a draw depends on the seed and its position
// alone. Of one choice: choice i of a request is one with seed + i.
struct ResumePoint {
  std::vector<TokenId> tokens;       // of the answer, from its first one on; none: it begins
  std::optional<float> mirostat_mu;  // after them (Output::mirostat_mu); needed with mirostat, which draws change
};

// What each step asks of each request stands first, together.
struct Request {
  RequestId id{};
  int32_t n = 1;                     // choices; choice i is this request with seed + i
  int32_t max_tokens = -1;           // generated per choice; -1: up to the context; 0: compute the prompt and end
  Pooling pooling = Pooling::kNone;  // else the answer is the prompt's vector, and no token: max_tokens is 0
  bool reports_progress = false;     // how much of the prompt is computed, after each step that computes some
  std::shared_ptr<grammar::Matcher> grammar;         // what the answers must be of; may be null; this request's own
  std::shared_ptr<const ReasoningBudget> reasoning;  // may be null
  // Of low rank, beside the model's weights; null: none. Blocks of the cache are shared only with equal ones.
  std::shared_ptr<const PlacedAdapter> adapter;
  // Whose cells are tokens of the prompt; null: none. Blocks of the cache are shared only with equal ones.
  std::shared_ptr<const PromptPictures> pictures;
  // Of these, what a tower must make before the request may begin; null: all have their rows.
  std::shared_ptr<std::vector<PictureToEncode>> to_encode;
  std::shared_ptr<LogitsProcessor> processor;  // of the library's caller; may be null. No record has it
  // Seconds, 0: none. Who cannot have its first token within ttft_target any more, or has waited max_wait for its first
  // step, is refused; who would make a step with decodes take longer than its own tpot_target or one of its tenant's
  // waits. A tpot_target that a decode alone does not keep counts for nothing.
  float tpot_target = 0;
  float ttft_target = 0;
  float max_wait = 0;
  SpeculationParams speculation;

  KvEviction kv_eviction;  // which keys and values its sequences go on without; none: they keep all

  std::vector<TokenId> prompt;  // at least one token, at most the context
  SamplingParams sampling;
  std::shared_ptr<const StopSet> stops;  // may be null
  // Where the stop strings count; null: in all of the answer.
  std::shared_ptr<const AnswerMarkup> markup;
  bool show_special = false;     // control tokens appear in the text
  int32_t prompt_logprobs = -1;  // as SamplingParams::logprobs, for the prompt's own tokens (computes the whole prompt)
  int32_t priority = 0;          // higher runs earlier, where the policy is by priority
  std::string tenant;            // blocks are shared only within a tenant ...
  std::string cache_salt;        // ... and with the same salt
  float weight = 1;              // the tenant's part of the machine beside others', where the policy is fair
  // How the answer is found; n, at most the search's width, are then the best texts, sent at the end. Stop strings,
  // prompt_logprobs, other tokens' log-probabilities, temperatures and truncations are refused beside one.
  SearchOptions search;
  int32_t second_text = 0;  // of a pair that an encoder reads, where its second text begins; 0: it is no pair
  // Outputs have what follows its tokens, and text that is certain after them alone. Counts and limits (max_tokens,
  // min_tokens, usage) are of the whole answer.
  ResumePoint resume;

  bool searches() const { return search.kind != SearchKind::kNone; }
  int32_t n_sequences() const { return searches() ? search.width : n; }
};

// The prompt counts once per request, however many choices it has; completion_tokens are this choice's.
struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt, found in the prefix tree
  int32_t completion_tokens = 0;
  int32_t drafted_tokens = 0;   // that were verified for this choice
  int32_t accepted_tokens = 0;  // of those, tokens of its answer
  int32_t resumed_tokens = 0;   // of completion_tokens, those that the request brought (Request::resume)
};

// Seconds on the engine's clock.
struct Timing {
  double arrived = 0;
  double admitted = 0;
  double first_token = 0;
  double last_token = 0;
  int32_t n_preemptions = 0;
  Ledger ledger;
};

// What few answers end with.
struct Ending {
  std::string stop_text;         // the stop string that ended it, if one did
  std::vector<float> embedding;  // [C] where the request pools; of a rank [n_labels] scores
  double score = 0;              // of a text that a search found (sample/search.h)
  Error error;                   // with FinishReason::kError
};

// A piece of one choice's answer. The last one has `finished`; after it nothing comes for that choice.
struct Output {
  Output() {}  // not by zeroing all of it first: a thousand are made in a step
  RequestId request{};
  int32_t choice = 0;
  int32_t n_computed = 0;  // of the prompt, where the request reports its progress and there is news; else 0
  // New tokens, those of a dropped stop included. One lies in place: a thousand streams send a token each in a step,
  // and do not allocate for it.
  boost::container::small_vector<TokenRecord, 1> tokens;
  std::string text;  // new text that is certain: whole code points, nothing that may be a stop
  // Once, with the first output of choice 0, if prompt_logprobs >= 0: one record per prompt token. The first token has
  // no log-probability (nothing is before it).
  std::vector<TokenRecord> prompt;
  std::unique_ptr<Ending> ending;  // with the last one; null: no details, and an error is out of memory
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  float mirostat_mu = 0;  // after its last token, where the request uses mirostat (ResumePoint)
  Usage usage;            // running totals
  Timing timing;

  void fail(Error error) {
    finished = true;
    reason = FinishReason::kError;
    ending = std::make_unique<Ending>(Ending{.error = std::move(error)});
  }
  Error error() const { return ending ? ending->error : out_of_memory(); }  // with FinishReason::kError
};

}  // namespace ibid
