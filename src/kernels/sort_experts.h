// The counting sort of kernels/expert_rows.h: from the experts of each token to the rows of each expert.
#pragma once

#include "kernels/expert_rows.h"

namespace ibid {

// Fills rows.first_row, row and token from rows.expert, whose values are 0 to E - 1. One thread, T k + E steps.
void sort_experts(const ExpertRows& rows);

}  // namespace ibid
