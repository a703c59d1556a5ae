#include "engine/batch_builder.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "base/prefetch.h"

namespace ibid {

BatchBuilder::BatchBuilder(const BatchLimits& limits) : limits_(limits) {
  const auto n_tokens = static_cast<size_t>(limits.n_tokens), n_sequences = static_cast<size_t>(limits.n_sequences);
  tokens_.reserve(n_tokens);
  if (!limits.keeps_blocks) types_.reserve(n_tokens);
  positions_.reserve(n_tokens);
  slots_.reserve(n_tokens);
  query_start_.reserve(n_sequences + 1);
  kv_len_.reserve(n_sequences);
  block_start_.reserve(n_sequences + 1);
  logit_rows_.reserve(static_cast<size_t>(limits.n_rows));
  path_start_.reserve(n_tokens + 1);
  path_slots_.reserve(static_cast<size_t>(limits.n_rows) * kMaxDrafts);  // each draft has a row
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
  path_start_.assign(1, 0);
  path_slots_.clear();
  types_.clear();
  batch_ = {.n_sequences = n_sequences, .block_len = limits_.block_len};
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    if (i + 16 < plan.shares.size()) prefetch(*plan.shares[i + 16].sequence, 128);
    if (i + 8 < plan.shares.size()) {
      const Sequence& s = *plan.shares[i + 8].sequence;
      __builtin_prefetch(s.tokens.data() + s.n_computed);
      __builtin_prefetch(s.blocks.data() + s.blocks.size());
    }
    add(plan.shares[i]);
  }
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
  if (!limits_.keeps_blocks) batch_.token_types = types_.data();
  if (!path_slots_.empty()) {
    batch_.path_start = path_start_.data();
    batch_.path_slots = path_slots_.data();
  }
  return batch_;
}

int32_t BatchBuilder::slot_of(const Sequence& s, int32_t i) const {
  return raw(s.blocks[static_cast<size_t>(i / limits_.block_len)]) * limits_.block_len + i % limits_.block_len;
}

void BatchBuilder::add(const Share& share) {
  if (!limits_.keeps_blocks) return add_text(share);
  const Sequence& s = *share.sequence;
  const int32_t end = s.n_computed + share.n_tokens;
  CHECK(end <= static_cast<int32_t>(s.blocks.size()) * limits_.block_len,
        "a share counts on blocks that its sequence has not");
  CHECK(share.n_drafts <= kMaxDrafts);
  const bool is_tree = !s.drafts.is_chain(share.n_drafts);
  int32_t longest = 0;
  for (int32_t i = s.n_computed; i < end; ++i) {
    const int32_t draft = i - s.n_tokens();
    tokens_.push_back(draft < 0 ? s.tokens[static_cast<size_t>(i)] : s.drafts.tokens[static_cast<size_t>(draft)]);
    positions_.push_back(
        draft < 0 || !is_tree || PLANTED("draft_at_its_slots_position") ? i : s.n_tokens() - 1 + s.drafts.depth(draft));
    slots_.push_back(slot_of(s, i));
    if (draft >= 0 && is_tree) add_path(s, draft);
    path_start_.push_back(static_cast<int32_t>(path_slots_.size()));
    longest = std::max(longest, positions_.back() + 1);
  }
  block_table_.insert(block_table_.end(), s.blocks.begin(),
                      s.blocks.begin() + (end + limits_.block_len - 1) / limits_.block_len);
  block_start_.push_back(static_cast<int32_t>(block_table_.size()));
  kv_len_.push_back(longest);
  query_start_.push_back(static_cast<int32_t>(tokens_.size()));
}

// An encoder's: whole, or two texts that it tells apart.
void BatchBuilder::add_text(const Share& share) {
  const Sequence& s = *share.sequence;
  CHECK(s.n_computed == 0 && share.n_tokens == s.n_tokens(), "a text in pieces");
  const int32_t second = s.request->second_text > 0 ? s.request->second_text : share.n_tokens;
  for (int32_t i = 0; i < share.n_tokens; ++i) {
    tokens_.push_back(s.tokens[static_cast<size_t>(i)]);
    positions_.push_back(i);
    slots_.push_back(static_cast<int32_t>(slots_.size()));
    types_.push_back(i >= second && !PLANTED("pair_of_one_text"));
    path_start_.push_back(0);
  }
  block_start_.push_back(0);
  kv_len_.push_back(share.n_tokens);
  query_start_.push_back(static_cast<int32_t>(tokens_.size()));
}

// The draft's ancestors and itself, from the text's end on.
void BatchBuilder::add_path(const Sequence& s, int32_t draft) {
  size_t at = path_slots_.size() + static_cast<size_t>(s.drafts.depth(draft));
  path_slots_.resize(at);
  for (int32_t i = draft; i >= 0; i = s.drafts.parents[static_cast<size_t>(i)]) {
    const bool has_sibling =
        i > 0 && i != draft && s.drafts.parents[static_cast<size_t>(i) - 1] == s.drafts.parents[static_cast<size_t>(i)];
    path_slots_[--at] =
        slot_of(s, s.n_tokens() + i - (has_sibling && PLANTED("a_path_goes_through_a_sibling") ? 1 : 0));
  }
}

}  // namespace ibid
