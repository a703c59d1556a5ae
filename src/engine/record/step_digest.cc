#include "engine/record/step_digest.h"

#include <xxhash.h>

#include <new>

#include "engine/engine.h"
#include "engine/state/search_group.h"
#include "engine/state/sequence.h"

namespace ibid::record {
namespace {

template <typename T>
uint32_t digest_of(const std::vector<T>& words, uint64_t seed = 0) {
  return static_cast<uint32_t>(XXH3_64bits_withSeed(words.data(), words.size() * sizeof(T), seed));
}

}  // namespace

uint32_t tokens_digest(const Step& step) {
  std::vector<int64_t> words;
  for (const ShareOutcome& s : step.shares) {
    words.push_back(static_cast<int64_t>(s.request));
    words.push_back(s.choice);
    words.push_back(s.n_drawn);
    words.push_back(static_cast<int64_t>(s.reason) << 3 | s.is_starved | s.is_unsound << 1 | s.has_failed << 2);
    if (!s.turn) continue;
    words.push_back(std::ssize(s.turn->children));
    for (const SearchChild& child : s.turn->children)
      words.push_back(static_cast<int64_t>(child.parent) << 32 | raw(child.token));
    for (const FinishReason reason : s.turn->ends) words.push_back(static_cast<int64_t>(reason));
  }
  return digest_of(step.tokens, digest_of(words));
}

void StepGatherer::planned(const StepPlan& plan) noexcept try {
  step_ = {};
  sequences_.clear(), n_tokens_before_.clear(), n_turns_before_.clear();
  if (plan.empty()) return;
  step_.was_run = true;
  words_.clear();
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    for (const int64_t word : {static_cast<int64_t>(s.request->id), int64_t{s.choice}, int64_t{s.n_computed()},
                               int64_t{share.n_tokens}, int64_t{share.n_rows}, int64_t{share.n_drafts}})
      words_.push_back(word);
    sequences_.push_back(&s);
    n_tokens_before_.push_back(s.n_tokens());
    n_turns_before_.push_back(s.group != nullptr ? s.group->n_turns : 0);
  }
  step_.digest.batch = digest_of(words_);
  words_.clear();
  for (const BlockCopy& copy : plan.copies) {
    for (const int64_t word : {static_cast<int64_t>(copy.from_tier), int64_t{raw(copy.from)},
                               static_cast<int64_t>(copy.to_tier), int64_t{raw(copy.to)}})
      words_.push_back(word);
  }
  uint32_t blocks = digest_of(words_);
  for (const Share& share : plan.shares) {
    blocks = digest_of(share.sequence->place.blocks(), blocks);
    if (share.n_kept > 0) blocks = digest_of(share.sequence->place.kept_blocks(), blocks);
  }
  step_.digest.blocks = blocks;
} catch (const std::bad_alloc&) {
  no_memory_ = true;
}

void StepGatherer::ran(const StepPlan& plan, const StepResult& result) noexcept try {
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const ShareResult& from = result.shares[i];
    step_.shares.push_back({.request = plan.shares[i].sequence->request->id,
                            .choice = plan.shares[i].sequence->choice,
                            .n_drafts = plan.shares[i].n_drafts,
                            .n_drawn = static_cast<int32_t>(from.drawn.size()),
                            .is_starved = from.out_of_memory,
                            .is_unsound = from.is_unsound,
                            .has_failed = from.failure.has_value()});
    for (const TokenRecord& drawn : from.drawn) step_.tokens.push_back(drawn.chosen.token);
  }
  for (const ShareResult& from : result.shares) {
    if (from.out_of_memory || from.is_unsound) continue;  // all of the request ends
    for (const FirstDraw& first : from.first_draws) {
      const Sequence& s = *first.sequence;
      sequences_.push_back(&s);
      n_tokens_before_.push_back(s.n_tokens());
      step_.shares.push_back({.request = s.request->id,
                              .choice = s.choice,
                              .n_drawn = first.failure ? 0 : 1,
                              .has_failed = first.failure.has_value()});
      if (!first.failure) step_.tokens.push_back(first.drawn.chosen.token);
    }
  }
} catch (const std::bad_alloc&) {
  no_memory_ = true;
}

// Of an answer that has ended, what was drawn after its end is nothing. A search's turn stands with the last of its
// rows.
void StepGatherer::settled(const StepPlan& plan) noexcept try {
  for (size_t i = plan.shares.size(); i-- > 0;) {
    const SearchGroup* group = plan.shares[i].sequence->group;
    if (group == nullptr || i >= step_.shares.size() || group->n_turns == n_turns_before_[i]) continue;
    const auto is_of_it = [&](size_t k) { return sequences_[k]->group == group && step_.shares[k].turn; };
    bool is_counted = false;
    for (size_t k = i + 1; k < step_.shares.size(); ++k) is_counted = is_counted || is_of_it(k);
    if (is_counted) continue;
    SearchTurn& turn = step_.shares[i].turn.emplace();
    turn.children = group->children;
    if (turn.children.empty())
      for (const Sequence* seat : group->seats) turn.ends.push_back(seat->answer->reason());
  }
  size_t from = 0, to = 0;
  for (size_t i = 0; i < step_.shares.size(); ++i) {
    ShareOutcome& share = step_.shares[i];
    const Sequence& s = *sequences_[i];
    int32_t n_kept = share.n_drawn;
    if (s.state == SequenceState::kFinished) {
      share.reason = s.answer->reason();
      n_kept = std::min(n_kept, s.n_tokens() - n_tokens_before_[i]);
    }
    for (int32_t k = 0; k < n_kept; ++k) step_.tokens[to++] = step_.tokens[from + static_cast<size_t>(k)];
    from += static_cast<size_t>(share.n_drawn);
    share.n_drawn = n_kept;
  }
  step_.tokens.resize(to);
} catch (const std::bad_alloc&) {
  no_memory_ = true;
}

void StepGatherer::stepped(const Engine& engine) noexcept try {
  words_.clear();
  for (const Tier tier : kAllTiers) {
    const BlockPool& pool = engine.cache().pool(tier);
    for (const int64_t word : {pool.n_free(), pool.n_cached(), pool.n_in_use(), pool.n_shared()})
      words_.push_back(word);
  }
  const EngineStats stats = engine.stats();
  for (const int64_t word :
       {int64_t{stats.n_running}, int64_t{stats.n_waiting}, stats.n_preemptions, stats.n_finished, stats.cached_tokens})
    words_.push_back(word);
  step_.digest.state = digest_of(words_);
  step_.digest.tokens = tokens_digest(step_);
} catch (const std::bad_alloc&) {
  no_memory_ = true;
}

}  // namespace ibid::record
