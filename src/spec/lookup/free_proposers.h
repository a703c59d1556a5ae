// The proposers that take almost no time, in order; `stores` and `last` follow them if not null.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "spec/lookup/grammar_proposer.h"
#include "spec/lookup/lookup_proposer.h"
#include "spec/proposer_chain.h"
#include "worker/forward_pass.h"

namespace ibid {

inline std::unique_ptr<Proposer> free_proposers(const ModelFacts& facts, int32_t max_sequences,
                                                std::unique_ptr<Proposer> last = nullptr,
                                                std::unique_ptr<Proposer> stores = nullptr) {
  std::vector<std::unique_ptr<Proposer>> all;
  all.push_back(std::make_unique<GrammarProposer>(facts.vocab_size));
  all.push_back(std::make_unique<LookupProposer>(facts.context_len, max_sequences, facts.end_of_generation));
  const size_t n_free = all.size();
  if (stores != nullptr) all.push_back(std::move(stores));
  if (last != nullptr) all.push_back(std::move(last));
  return std::make_unique<ProposerChain>(std::move(all), n_free);
}

}  // namespace ibid
