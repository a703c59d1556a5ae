#include "engine/state/step_plan.h"

#include <algorithm>

#include "engine/state/sequence.h"

namespace ibid {
namespace {

void add_to(StepLoad& load, const Share& share) {
  const Sequence& s = *share.sequence;
  const int32_t n = share.n_certain();
  const int32_t n_read = s.place.n_rows();
  n > 1 ? load.add_prompt(n_read, n, share.n_rows - share.n_drafts) : load.add_decode(n_read);
  if (share.n_drafts > 0) load.add_drafts(n_read + n, share.n_drafts);
  load.n_new_positions += share.n_new_positions;
}

}  // namespace

void StepPlan::add(const Share& share) {
  shares.push_back(share);
  add_to(load, share);
  n_tokens += share.n_tokens;
  n_rows += share.n_rows;
}

void StepPlan::withdraw(const Sequence& sequence) {
  const auto share = std::ranges::find(shares, &sequence, &Share::sequence);
  if (share == shares.end()) return;
  n_tokens -= share->n_tokens;
  n_rows -= share->n_rows;
  shares.erase(share);
  load = {};
  for (const Share& left : shares) add_to(load, left);
}

void list_rows(StepPlan& plan) {
  plan.rows.clear();
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Share& share = plan.shares[i];
    if (share.sequence->ranks()) {
      plan.rows.push_back({static_cast<int32_t>(i), 0, RowPurpose::kRank});
      continue;
    }
    const int32_t last = share.sequence->n_missing() - 1;  // of the sequence
    for (int32_t token = share.n_tokens - share.n_rows; token < share.n_tokens; ++token) {
      const RowPurpose purpose = token > last    ? RowPurpose::kVerify
                                 : token == last ? RowPurpose::kDraw
                                                 : RowPurpose::kScore;
      plan.rows.push_back({static_cast<int32_t>(i), token, purpose});
    }
  }
}

}  // namespace ibid
