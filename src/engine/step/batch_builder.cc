#include "engine/step/batch_builder.h"

#include <span>

#include "base/check.h"
#include "base/prefetch.h"
#include "model/adapters.h"
#include "model/vision/prompt_pictures.h"

namespace ibid {
namespace {

BatchSizes sizes_of(const BatchLimits& limits) {
  const auto n_sequences = static_cast<size_t>(limits.n_sequences), n_rows = static_cast<size_t>(limits.n_rows);
  const auto n_blocks = static_cast<size_t>((limits.context_len + limits.block_len - 1) / limits.block_len);
  return {.n_tokens = static_cast<size_t>(limits.n_tokens),
          .n_sequences = n_sequences,
          .n_rows = n_rows,
          .n_blocks = n_sequences * n_blocks,
          .n_path_slots = n_rows * kMaxDrafts};  // each draft token has a row
}

}  // namespace

BatchBuilder::BatchBuilder(const BatchLimits& limits) : limits_(limits), arrays_(limits.block_len, sizes_of(limits)) {}

ForwardBatch BatchBuilder::build(const StepPlan& plan) {
  const auto n_sequences = static_cast<int32_t>(plan.shares.size());
  CHECK(plan.n_tokens <= limits_.n_tokens && plan.n_rows <= limits_.n_rows && n_sequences <= limits_.n_sequences);
  arrays_.clear();
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    if (i + 16 < plan.shares.size()) prefetch(*plan.shares[i + 16].sequence, kBatchHead);
    if (i + 8 < plan.shares.size()) {
      const Sequence& s = *plan.shares[i + 8].sequence;
      __builtin_prefetch(s.tokens.data() + s.n_computed());
      __builtin_prefetch(s.place.blocks().data() + s.place.blocks().size());
    }
    add(plan.shares[i]);
  }
  for (const Row& row : plan.rows) arrays_.want(arrays_.first_token(row.share) + row.token);
  CHECK(arrays_.n_tokens() == plan.n_tokens && arrays_.n_rows() == plan.n_rows);
  return arrays_.batch();
}

int32_t BatchBuilder::slot_of(const Sequence& s, int32_t i) const {
  return slot_in(s.place.blocks(), limits_.block_len, i - s.place.n_evicted());
}

void BatchBuilder::add(const Share& share) {
  if (!limits_.keeps_blocks) return add_text(share);
  const Sequence& s = *share.sequence;
  const int32_t end = s.n_computed() + share.n_tokens;
  const int32_t n_evicted = s.place.n_evicted();
  CHECK(end - n_evicted <= static_cast<int32_t>(s.place.blocks().size()) * limits_.block_len,
        "a share counts on blocks that its sequence has not");
  CHECK(share.n_drafts <= kMaxDrafts);
  const bool is_tree = !s.drafts.is_chain(share.n_drafts);
  const PromptPictures* const pictures = s.request->pictures.get();
  for (int32_t i = s.n_computed(); i < end; ++i) {
    const int32_t draft = i - s.n_tokens();
    const bool is_path = draft >= 0 && is_tree;
    if (is_path) add_path(s, draft);
    const TokenId token = draft < 0 ? s.tokens[static_cast<size_t>(i)] : s.drafts.tokens[static_cast<size_t>(draft)];
    const int32_t position = is_path ? s.n_tokens() - 1 + s.drafts.depth(draft) : i;
    n_evicted > 0 ? arrays_.add_viewed(token, position, position - n_evicted, slot_of(s, i))
                  : arrays_.add(token, position, slot_of(s, i));
    if (pictures != nullptr) add_picture(*pictures, s, i, draft);
    if (limits_.keeps_states) arrays_.add_state_out(raw(state_after(s.place.next_states(), i + 1)));
  }
  if (limits_.keeps_states) {
    const StateId state = state_after(s.place.states(), s.n_computed());
    CHECK(s.n_computed() == 0 || state != StateId::kNone, "a sequence goes on where it has no state");
    arrays_.add_state_in(raw(state));
  }
  if (const PlacedAdapter* adapter = s.request->adapter.get(); adapter != nullptr) arrays_.set_adapter(adapter->slot);
  arrays_.add_blocks(std::span(s.place.blocks())
                         .first(static_cast<size_t>((end - n_evicted + limits_.block_len - 1) / limits_.block_len)));
  if (share.n_kept > 0) arrays_.keep(s.request->kv_eviction.kept(), s.place.kept_blocks());
  arrays_.end_sequence();
}

// Token i, which was added last; `draft`: its number as a draft, below 0 a token of the sequence.
void BatchBuilder::add_picture(const PromptPictures& pictures, const Sequence& s, int32_t i, int32_t draft) {
  const int32_t place = draft < 0 ? i : s.n_tokens() - 1 + s.drafts.depth(draft);
  if (limits_.turns_by_axes) arrays_.set_axes(pictures.axes(place));
  const PlacedPicture* picture = draft < 0 ? pictures.at(i) : nullptr;
  if (picture == nullptr) return;
  if (const float* row = picture->rows->of_cell(i - picture->first); row != nullptr) arrays_.set_input(row);
  if (limits_.sees_whole_pictures) arrays_.set_end(picture->end());
}

// An encoder's: whole, or two sequences with types of their own.
void BatchBuilder::add_text(const Share& share) {
  const Sequence& s = *share.sequence;
  CHECK(s.n_computed() == 0 && share.n_tokens == s.n_tokens(), "a text in pieces");
  const int32_t second = s.request->second_text > 0 ? s.request->second_text : share.n_tokens;
  for (int32_t i = 0; i < share.n_tokens; ++i) {
    arrays_.add(s.tokens[static_cast<size_t>(i)], i, arrays_.n_tokens());
    arrays_.add_type(i >= second);
  }
  arrays_.end_sequence();
}

// The draft token's ancestors and itself, from the sequence's end on.
void BatchBuilder::add_path(const Sequence& s, int32_t draft) {
  const std::span<int32_t> path = arrays_.add_path(s.drafts.depth(draft));
  size_t at = path.size();
  for (int32_t i = draft; i >= 0; i = s.drafts.parents[static_cast<size_t>(i)])
    path[--at] = slot_of(s, s.n_tokens() + i);
}

}  // namespace ibid
