// The order in which truncation sees tokens: by logit, highest first, ties to the lower id.
#pragma once

#include <span>
#include <vector>

#include "sample/sampler.h"

namespace ibid {

inline bool goes_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Puts all into that order, in time proportional to their number: a whole vocabulary must not cost V log V. `spare` is
// a buffer for any values. No logit is NaN, and all ids are at least 0.
void sort_candidates(std::span<Candidate> candidates, std::vector<Candidate>& spare);
// scratch.best: the n highest of a row, in that order. Reads each token a bounded number of times.
void keep_best(std::span<const float> row, size_t n, SamplerScratch& scratch);

}  // namespace ibid
