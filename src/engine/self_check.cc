// What holds between two steps, counted again: references, scopes, and how much of each sequence is computed.
#include "base/check.h"
#include "engine/engine.h"

namespace ibid {
namespace {

// Row S9: as soon as a token was drawn, all before it are computed and it is not. No draft is: its keys count nowhere,
// it is published in no block, and its blocks are given back but for the next token's.
void check_computed(const Sequence& s, const BlockCache& cache) {
  if (s.state == SequenceState::kFinished) return;
  CHECK(s.n_computed() <= s.n_tokens() &&
        cache.n_blocks_for(s.place.n_rows()) <= static_cast<int32_t>(s.place.blocks().size()));
  CHECK(s.place.kept_blocks().empty(), "rows are to be kept of a step that is over");
  CHECK(s.place.next_states().empty() ||
            (s.place.next_states().size() == 1 && s.place.next_states().front().n_tokens == 0),
        "a state is reserved for a step that is over");
  // One that fetches has its state last.
  CHECK(s.state == SequenceState::kFetching ||
            cache.resume_point(s.place.blocks(), s.place.states(), s.n_computed()) == s.n_computed(),
        "a sequence goes on where it has no state");
  if (s.group != nullptr) return;  // a beam waits for the rows of others
  CHECK(s.n_computed() < s.n_tokens(), "keys of what is no token of its text count as computed");
  // A further choice has its first token before it runs, and may have lost its blocks in between.
  // An answer that is resumed has its first tokens before any of them is computed.
  const int32_t n_given = std::max(static_cast<int32_t>(s.request->resume.tokens.size()), s.choice > 0 ? 1 : 0);
  const bool is_decode = s.state == SequenceState::kRunning && s.n_answered() > n_given && s.may_be_preempted();
  CHECK(!is_decode || s.n_computed() == s.n_tokens() - 1, "what was computed of a text is forgotten");
  CHECK(!cache.keeps_blocks() || s.place.n_published() <= s.place.n_rows() / cache.block_len(),
        "a block is published that is not computed");
  CHECK(static_cast<int32_t>(s.place.blocks().size()) <= cache.n_blocks_for(s.n_tokens() + 1 - s.place.n_evicted()),
        "a text has blocks that it has no tokens for");
  CHECK(s.drafts.empty() || s.state == SequenceState::kRunning, "a text that does not run has drafts");
}

}  // namespace

void Engine::self_check() const {
  cache_.self_check();
  std::vector<int32_t> n_entries(static_cast<size_t>(cache_.pool().n_total()), 0);
  std::vector<int32_t> n_state_entries(static_cast<size_t>(cache_.states().pool(Tier::kDevice).n_total()), 0);
  int64_t n_holders = 0;
  live_.each_sequence([&](const Sequence& s) {
    n_holders += s.place.scope() != ScopeId::kNone;
    for (const BlockId block : s.place.blocks()) {
      if (block != BlockId::kNone) ++n_entries[static_cast<size_t>(raw(block))];
    }
    for (const HeldState& held : s.place.next_states()) ++n_state_entries[static_cast<size_t>(raw(held.state))];
    for (const HeldState& held : s.place.states()) ++n_state_entries[static_cast<size_t>(raw(held.state))];
    check_computed(s, cache_);
    speculation_.self_check(s);
  });
  CHECK(n_holders == cache_.tree().n_holders(), "a scope is held for a sequence that has ended");
  for (size_t i = 0; i < n_entries.size(); ++i) {
    CHECK(n_entries[i] == cache_.pool().n_references(BlockId{static_cast<int32_t>(i)}),
          "a block's references are not the tables' entries");
  }
  for (size_t i = 0; i < n_state_entries.size(); ++i) {
    CHECK(n_state_entries[i] == cache_.states().n_references(StateId{static_cast<int32_t>(i)}),
          "a state's references are not the sequences' entries");
  }
}

}  // namespace ibid
