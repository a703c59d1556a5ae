#include "kernels/sort_experts.h"

#include <algorithm>

namespace ibid {

void sort_experts(const ExpertRows& rows) {
  const int32_t n = rows.n_rows(), E = rows.n_experts;
  std::fill_n(rows.first_row, E + 1, 0);
  for (int32_t i = 0; i < n; ++i) ++rows.first_row[rows.expert[i] + 1];
  for (int32_t e = 0; e < E; ++e) rows.first_row[e + 1] += rows.first_row[e];
  // first_row[e] is the next free row of e while rows are dealt, and the first one of e + 1 afterwards.
  for (int32_t i = 0; i < n; ++i) {
    const int32_t row = rows.first_row[rows.expert[i]]++;
    rows.row[i] = row;
    rows.token[row] = i / rows.n_used;
  }
  for (int32_t e = E; e > 0; --e) rows.first_row[e] = rows.first_row[e - 1];
  rows.first_row[0] = 0;
}

}  // namespace ibid
