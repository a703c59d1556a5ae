// What the numbers of a script become: requests, and drafts for them.
#pragma once

#include <span>
#include <vector>

#include "engine/state/request.h"
#include "sim/script.h"
#include "spec/proposer.h"

namespace ibid::sim {

// `before`: the prompt and answer that its prompt goes on from; left out where they fill the context.
Request request_of(const Event& submit, const World& world, std::vector<TokenId> before);

// Proposes the sequence's continuation (`right`: all of it, prompt and answer) with occasional errors, as a chain or as
// a tree; or any tokens, if the world is so configured. A function of the world and the sequence only.
void draft(const ProposalInput& input, const World& world, std::span<const TokenId> right, Drafts& drafts);

}  // namespace ibid::sim
