#include "engine/step_plan.h"

#include <algorithm>

#include "engine/sequence.h"

namespace ibid {

void StepPlan::add(const Share& share) {
  shares.push_back(share);
  n_tokens += share.n_tokens;
  n_rows += share.n_rows;
}

void StepPlan::withdraw(const Sequence& sequence) {
  const auto share = std::ranges::find(shares, &sequence, &Share::sequence);
  if (share == shares.end()) return;
  n_tokens -= share->n_tokens;
  n_rows -= share->n_rows;
  shares.erase(share);
}

void list_rows(StepPlan& plan) {
  plan.rows.clear();
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Share& share = plan.shares[i];
    const int32_t last = share.sequence->n_tokens() - share.sequence->n_computed - 1;  // of the text
    for (int32_t token = share.n_tokens - share.n_rows; token < share.n_tokens; ++token) {
      const RowPurpose purpose = token > last    ? RowPurpose::kVerify
                                 : token == last ? RowPurpose::kDraw
                                                 : RowPurpose::kScore;
      plan.rows.push_back({static_cast<int32_t>(i), token, purpose});
    }
  }
}

}  // namespace ibid
