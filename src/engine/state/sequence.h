// Sequence: one growing list of tokens and how far it is computed. Plain data of the engine's thread; the scheduler
// decides with it, the batch builder reads it, settle changes it.
//
// There are no phases: a prompt that waits, a piece of it, an answer's next token, drafts after it and a preempted
// answer that is computed again are all n_computed < n_wanted.
//
//   0          n_published * B        n_computed         n_tokens()        n_wanted()
//   | shared with the tree | its own, written | to be computed | drafts: slots of a plan alone |
//   |<----------------------- blocks, with room after for what the plan computes ----------->|
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cache/block_cache.h"
#include "cache/durable_key.h"
#include "engine/state/answer.h"
#include "engine/state/policy.h"
#include "engine/state/pooling.h"
#include "engine/state/request.h"
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

// How far a sequence's blocks are known to a store that outlives the process.
struct DurableChain {
  int32_t n_blocks = 0;  // the first ones
  DurableKey last = {};  // of the last of them
  int64_t use = 0;       // DurableIndex::next_use()
};

inline constexpr size_t kSequenceHead = 512;  // bytes of a sequence that each step touches

struct Flow;         // fair_policy.h
struct SearchGroup;  // search_group.h

// What each step reads of each sequence stands first: a thousand of them are more than a core's nearest caches hold.
struct alignas(64) Sequence {
  std::shared_ptr<const Request> request;
  std::vector<TokenId> tokens;  // prompt, then answer
  BlockTable blocks;

  SearchGroup* group = nullptr;  // of a beam
  Flow* flow = nullptr;          // its tenant, to a policy that knows tenants; as long as it is queued or runs
  int32_t choice = 0;
  SequenceState state = SequenceState::kWaiting;
  bool was_admitted = false;
  bool was_sought = false;  // on disk, since it last began to wait: fetched, or not to be had
  bool sits_out = false;    // of one that decodes: it has no token in the next step (Policy::choose_decodes)
  int32_t prompt_len = 0;
  int32_t n_computed = 0;   // tokens whose keys and values lie in the cache
  int32_t n_published = 0;  // blocks of the table that the prefix tree knows
  int32_t n_scored = 0;     // prompt positions whose rows are done, or not asked for: prompt_len - 1 is all
  ScopeId scope = ScopeId::kNone;
  int32_t n_preemptions = 0;
  int32_t n_preemptions_passed = 0;       // of n_preemptions, those that the ledger has passed
  int32_t n_computed_when_preempted = 0;  // the most that it had

  SamplerState sampler_state;
  std::optional<Answer> answer;      // there, but in tests of what has none
  std::vector<Sequence*> followers;  // the other choices, as long as they are held
  Drafts drafts;                     // of the next step; no part of the sequence
  DraftAccount draft_account;        // what they brought so far
  std::shared_ptr<const Sampler> sampler;

  SeqId id{};
  OrderKey key;         // as long as it is queued or runs
  int32_t n_known = 0;  // tokens that the prefix tree had when it was queued
  int32_t n_tokens_when_preempted = 0;
  static constexpr int32_t kAll = std::numeric_limits<int32_t>::max();
  int32_t n_without_hidden = kAll;  // tokens that may be cached ones, as their hidden states are not needed
  double due = std::numeric_limits<double>::infinity();  // without a first step by then it ends; of choice 0 alone
  DurableChain durable;
  StateTable states;  // of a model with recurrent layers: that which it goes on from, after n_computed tokens
  // Those that its share of the step writes; after the i-th draft is after n_tokens() + i + 1. Between steps at most a
  // spare one.
  StateTable next_states;
  Pool pool;                   // of a request that pools
  bool was_forgotten = false;  // by who proposes

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t n_wanted() const { return n_tokens() + drafts.size(); }
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
  // Whether anybody may draft how it goes on.
  bool may_be_drafted() const { return group == nullptr && !pools() && request->speculation.max_drafts != 0; }
  // Whether a network that reads what the model makes of sequences may be among them.
  bool may_be_read() const { return may_be_drafted() && !request->speculation.free_alone; }
  // Tokens that may come from the prefix tree: rows and hidden states that are wanted must be computed.
  int32_t n_reusable() const {
    return pools() ? pool.first_wanted(n_tokens()) : std::min(first_row(), n_without_hidden);
  }
  Ledger& ledger() { return answer->timing().ledger; }
  // What it waits for between steps, as its ledger calls it.
  Phase waits_as() const {
    if (!was_admitted) return Phase::kQueue;
    return n_preemptions > n_preemptions_passed ? Phase::kPreempted : Phase::kOthers;
  }
  // A preempted sequence is left alone until it has a token more than it had then.
  bool may_be_preempted() const { return n_preemptions == 0 || n_tokens() > n_tokens_when_preempted; }
};

}  // namespace ibid
