// What the numbers of a script become: requests, and drafts for them.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"
#include "sim/script.h"
#include "spec/proposer.h"

namespace ibid::sim {

// `before`: the prompt and answer that its prompt goes on from; left out where they fill the context.
Request request_of(const Event& submit, const World& world, std::vector<TokenId> before);

// Knows how the text goes on (`right`: all of it, prompt and answer) and says so with errors here and there, as a chain
// or as a tree; or, where the world wants it so, anything. A function of the world and the text alone.
void draft(const ProposalInput& input, const World& world, std::span<const TokenId> right, Drafts& drafts);

}  // namespace ibid::sim
