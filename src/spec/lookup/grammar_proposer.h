// GrammarProposer: drafts tokens that a request's grammar forces: it goes on while exactly one token is allowed. Such
// drafts are certain, and are verified whatever they cost.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/proposer.h"

namespace ibid {

class GrammarProposer final : public Proposer {
 public:
  explicit GrammarProposer(int32_t vocab_size) : n_words_((static_cast<size_t>(vocab_size) + 31) / 32) {}
  void propose(const ProposalInput& input, Drafts& drafts) override;

 private:
  size_t n_words_;
  std::vector<uint32_t> mask_;
};

}  // namespace ibid
