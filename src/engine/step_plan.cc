#include "engine/step_plan.h"

#include "engine/sequence.h"

namespace ibid {

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
