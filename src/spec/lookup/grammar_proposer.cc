#include "spec/lookup/grammar_proposer.h"

#include <algorithm>
#include <bit>

#include "sample/grammar/matcher.h"

namespace ibid {
namespace {

// Returns the only token that a mask allows; kNone if it allows none or several.
TokenId only_token(std::span<const uint32_t> mask) {
  TokenId only = TokenId::kNone;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    const bool is_several = only != TokenId::kNone || std::popcount(mask[i]) > 1;
    if (is_several) return TokenId::kNone;
    only = TokenId{static_cast<int32_t>(i) * 32 + std::countr_zero(mask[i])};
  }
  return only;
}

}  // namespace

void GrammarProposer::propose(const ProposalInput& input, Drafts& drafts) {
  if (input.grammar == nullptr) return;
  grammar::StateId state = input.state.grammar;
  for (int32_t i = 0; i < input.max_drafts; ++i) {
    mask_.assign(std::max(n_words_, input.grammar->mask_words()), 0);
    input.grammar->fill(state, input.n_left - i, mask_);
    const TokenId only = only_token(mask_);
    if (only == TokenId::kNone) return;
    const grammar::StateId next = input.grammar->after(input.choice, state, only);
    if (input.grammar->is_closed(next)) return;  // its row would be of no use
    drafts.add(only, i - 1);
    state = next;
  }
}

}  // namespace ibid
