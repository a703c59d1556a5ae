// Sequence: one growing list of tokens and how far it is computed. In three parts:
//   SequenceTokens   what it is: its request and its tokens
//   SequencePlace    where it lies: its blocks and states, changed by methods only (sequence_place.h)
//   SequenceAccount  how it is treated and what it has cost
// and what its next tokens are drawn with and become. Data of the engine's thread; the scheduler decides with it, the
// batch builder reads it, room, disk tier and settler move its place, settle adds its tokens.
//
// There are no phases: a prompt that waits, a piece of it, an answer's next token, drafts after it and a preempted
// answer that is computed again are all n_computed() < n_tokens(); drafts are slots of a plan alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/state/answer.h"
#include "engine/state/policy.h"
#include "engine/state/pooling.h"
#include "engine/state/request.h"
#include "engine/state/sequence_place.h"
#include "sample/sampler.h"
#include "spec/draft_account.h"
#include "spec/drafts.h"

namespace ibid {

enum class SequenceState : uint8_t {
  kHeld,     // a further choice that waits until the first one has computed the prompt
  kWaiting,  // in the queue; may hold blocks until others need them
  kRunning,
  kFetching,  // waits for blocks from a disk; holds those that have come
  kParked,    // a beam that waits for the others' rows; holds its blocks until others need them
  kFinished,
};

struct Flow;         // fair_policy.h
struct SearchGroup;  // search_group.h

// What a sequence is. Made with its request; settle adds what is drawn.
struct SequenceTokens {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;   // prompt, then answer
  SearchGroup* group = nullptr;  // of a beam
  int32_t choice = 0;
  int32_t prompt_len = 0;
  int32_t n_scored = 0;  // prompt positions whose rows are done, or not asked for: prompt_len - 1 is all
  static constexpr int32_t kAll = std::numeric_limits<int32_t>::max();
  int32_t n_without_hidden = kAll;  // tokens that may be cached ones, as their hidden states are not needed

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t n_answered() const { return n_tokens() - prompt_len; }
  // False once max_tokens are there (or none were asked for, and the prompt is all).
  bool may_answer() const { return request->max_tokens < 0 || n_answered() < request->max_tokens; }
  bool is_prompt_scored() const { return n_scored >= prompt_len - 1; }
  // The first position whose row of logits is wanted; all after it are wanted too.
  int32_t first_row() const {
    if (pools()) return n_tokens() - ranks();  // it needs hidden states and no logits, or the scores of one row
    return is_prompt_scored() ? n_tokens() - 1 : n_scored;
  }
  bool pools() const { return request->pooling != Pooling::kNone; }
  bool ranks() const { return request->pooling == Pooling::kRank; }
  // The first point after n tokens at which some of its keys and values are evicted; KvEviction::kNever: there is none.
  int32_t next_point(int32_t n) const { return request->kv_eviction.next_point(prompt_len, n); }
  // Tokens that may come from the prefix tree: what the policy scores must be computed.
  int32_t n_before_point() const {
    const int32_t point = next_point(0);
    return point == KvEviction::kNever ? kAll : point - request->kv_eviction.n_together();
  }
  // Whether anybody may draft how it goes on.
  bool may_be_drafted() const { return group == nullptr && !pools() && request->speculation.max_drafts != 0; }
  // Whether a network that reads what the model makes of sequences may be among them.
  bool may_be_read() const { return may_be_drafted() && !request->speculation.free_alone; }
};

// How a sequence is treated, and what it has cost: of the scheduler and its policy, of room and disk tier, and of who
// books time.
struct SequenceAccount {
  Flow* flow = nullptr;  // its tenant, to a policy that knows tenants; as long as it is queued or runs
  int32_t n_preemptions = 0;
  int32_t n_preemptions_passed = 0;       // of n_preemptions, those that the ledger has passed
  int32_t n_computed_when_preempted = 0;  // the most that it had
  bool was_admitted = false;
  bool was_sought = false;     // on disk, since it last began to wait: fetched, or not to be had
  bool sits_out = false;       // of one that decodes: no token in the next step (Policy::choose_decodes)
  bool was_forgotten = false;  // by the proposer
  DraftAccount drafts;         // what they brought so far
  OrderKey key;                // as long as it is queued or runs
  int32_t n_known = 0;         // tokens that the prefix tree had when it was queued
  int32_t n_tokens_when_preempted = 0;
  double due = std::numeric_limits<double>::infinity();  // without a first step by then it ends; of choice 0 alone

  // What it waits for between steps, as its ledger calls it.
  Phase waits_as() const {
    if (!was_admitted) return Phase::kQueue;
    return n_preemptions > n_preemptions_passed ? Phase::kPreempted : Phase::kOthers;
  }
};

// What each step reads of each sequence stands first: a thousand of them are more than a core's nearest caches hold.
// The batch needs the tokens and the first half of the place, settling all up to what an answer sends.
struct alignas(64) Sequence : SequenceTokens {
  SequencePlace place;
  SequenceState state = SequenceState::kWaiting;
  SequenceAccount account;

  SamplerState sampler_state;
  std::optional<Answer> answer;  // there, but in tests of what has none
  Drafts drafts;                 // of the next step; no part of the sequence
  std::shared_ptr<const Sampler> sampler;
  std::vector<Sequence*> followers;  // the other choices, as long as they are held
  Pool pool;                         // of a request that pools
  SeqId id{};
  // When it was last admitted: tokens whose blocks were cached and that are computed again, as no snapshot was nearer.
  int32_t n_without_snapshot = 0;

  // Of a prompt with pictures: what the cache calls its tokens, each picture's cells by a name of the picture. Else
  // empty.
  std::vector<TokenId> names;

  // The tokens as the cache knows them; until the sequence changes.
  std::span<const TokenId> cache_tokens() {
    if (request->pictures == nullptr) return tokens;
    names.resize(static_cast<size_t>(prompt_len));
    names.insert(names.end(), tokens.begin() + std::min<ptrdiff_t>(prompt_len, std::ssize(tokens)), tokens.end());
    return std::span(names).first(tokens.size());
  }
  int32_t n_computed() const { return place.n_computed(); }
  int32_t n_missing() const { return n_tokens() - n_computed(); }
  // Tokens that may come from the prefix tree: rows and hidden states that are wanted must be computed.
  int32_t n_reusable() const {
    if (pools()) return pool.first_wanted(n_tokens());
    return std::min({first_row(), n_without_hidden, n_before_point()});
  }
  Ledger& ledger() { return answer->timing().ledger; }
  // A preempted sequence is left alone until it has a token more than it had then.
  bool may_be_preempted() const { return account.n_preemptions == 0 || n_tokens() > account.n_tokens_when_preempted; }
};

inline constexpr size_t kBatchHead = 128;     // bytes of a sequence that its part of a batch is made of
inline constexpr size_t kSequenceHead = 704;  // that each step touches
static_assert(sizeof(SequenceTokens) <= 64 && sizeof(SequencePlace) <= 160 && sizeof(SequenceAccount) <= 88,
              "a step touches more lines of each sequence");

}  // namespace ibid
