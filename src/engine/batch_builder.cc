#include "engine/batch_builder.h"

#include "base/check.h"

namespace ibid {

BatchBuilder::BatchBuilder(const BatchLimits& limits) : limits_(limits) {
  const auto n_tokens = static_cast<size_t>(limits.n_tokens), n_sequences = static_cast<size_t>(limits.n_sequences);
  tokens_.reserve(n_tokens);
  positions_.reserve(n_tokens);
  slots_.reserve(n_tokens);
  query_start_.reserve(n_sequences + 1);
  kv_len_.reserve(n_sequences);
  block_start_.reserve(n_sequences + 1);
  logit_rows_.reserve(static_cast<size_t>(limits.n_rows));
  block_table_.reserve(n_sequences *
                       static_cast<size_t>((limits.context_len + limits.block_len - 1) / limits.block_len));
}

ForwardBatch BatchBuilder::build(const StepPlan& plan) {
  const auto n_sequences = static_cast<int32_t>(plan.shares.size());
  CHECK(plan.n_tokens <= limits_.n_tokens && plan.n_rows <= limits_.n_rows && n_sequences <= limits_.n_sequences);
  tokens_.clear();
  positions_.clear();
  slots_.clear();
  kv_len_.clear();
  logit_rows_.clear();
  query_start_.assign(1, 0);
  block_start_.assign(1, 0);
  block_table_.clear();
  batch_ = {.n_sequences = n_sequences, .block_len = limits_.block_len};
  for (const Share& share : plan.shares) add(share);
  for (const Row& row : plan.rows) logit_rows_.push_back(query_start_[static_cast<size_t>(row.share)] + row.token);
  CHECK(static_cast<int32_t>(tokens_.size()) == plan.n_tokens &&
        static_cast<int32_t>(logit_rows_.size()) == plan.n_rows);
  batch_.n_tokens = plan.n_tokens;
  batch_.n_rows = plan.n_rows;
  batch_.tokens = tokens_.data();
  batch_.positions = positions_.data();
  batch_.slots = slots_.data();
  batch_.query_start = query_start_.data();
  batch_.kv_len = kv_len_.data();
  batch_.block_start = block_start_.data();
  batch_.block_table = block_table_.data();
  batch_.logit_rows = logit_rows_.data();
  return batch_;
}

void BatchBuilder::add(const Share& share) {
  const Sequence& s = *share.sequence;
  const int32_t len = limits_.block_len, end = s.n_computed + share.n_tokens;
  CHECK(end <= static_cast<int32_t>(s.blocks.size()) * len, "a share counts on blocks that its sequence has not");
  CHECK(s.drafts.is_chain(share.n_drafts));
  for (int32_t t = s.n_computed; t < end; ++t) {
    tokens_.push_back(t < s.n_tokens() ? s.tokens[static_cast<size_t>(t)]
                                       : s.drafts.tokens[static_cast<size_t>(t - s.n_tokens())]);
    positions_.push_back(t);
    slots_.push_back(raw(s.blocks[static_cast<size_t>(t / len)]) * len + t % len);
  }
  const auto n_tokens = static_cast<int32_t>(tokens_.size());
  block_table_.insert(block_table_.end(), s.blocks.begin(), s.blocks.begin() + (end + len - 1) / len);
  block_start_.push_back(static_cast<int32_t>(block_table_.size()));
  kv_len_.push_back(end);
  query_start_.push_back(n_tokens);
}

}  // namespace ibid
