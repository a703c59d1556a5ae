#include "sample/contrastive_search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace ibid {
namespace {

float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (size_t lane = 0; i < a.size(); ++i, ++lane) sums[lane] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

void append_unit(std::span<const float> x, std::vector<float>& out) {
  const float norm = std::sqrt(dot(x, x));
  for (const float value : x) out.push_back(norm > 0 ? value / norm : 0.0f);
}

}  // namespace

ContrastiveSearch::ContrastiveSearch(const SearchOptions& options, int32_t max_tokens)
    : options_(options), max_tokens_(max_tokens) {}

void ContrastiveSearch::add_context(std::span<const float> hidden, int32_t width) {
  width_ = width;
  for (size_t i = 0; i < hidden.size(); i += static_cast<size_t>(width))
    append_unit(hidden.subspan(i, static_cast<size_t>(width)), context_);
}

void ContrastiveSearch::look_at(std::span<const float> hidden, SearchRow& row) const {
  row.hidden.clear();
  append_unit(hidden, row.hidden);
  row.likeness = -1;
  for (size_t i = 0; i < context_.size(); i += hidden.size())
    row.likeness = std::max(row.likeness, dot(std::span(context_).subspan(i, hidden.size()), row.hidden));
}

void ContrastiveSearch::advance(std::span<const SearchRow> rows, std::vector<SearchChild>& children) {
  children.clear();
  size_t best = 0;
  if (!candidates_.empty()) {
    CHECK(rows.size() == candidates_.size());
    const auto score = [&](size_t i) {
      return (1 - options_.alpha) * candidates_[i].score - options_.alpha * rows[i].likeness;
    };
    for (size_t i = 1; i < rows.size(); ++i) {
      if (score(i) > score(best)) best = i;
    }
    const SearchCandidate& chosen = candidates_[best];
    text_.tokens.push_back(chosen.token);
    text_.logprobs.push_back(chosen.logprob);
    text_.score += static_cast<double>(chosen.logprob);
    text_.reason = chosen.end;
    if (text_.reason == FinishReason::kNone && static_cast<int32_t>(text_.tokens.size()) >= max_tokens_)
      text_.reason = FinishReason::kLength;
    if (text_.reason != FinishReason::kNone) return;
    context_.insert(context_.end(), rows[best].hidden.begin(), rows[best].hidden.end());
  }
  candidates_.assign(rows[best].best.begin(), rows[best].best.end());
  for (const SearchCandidate& c : candidates_) children.push_back({static_cast<int32_t>(best), c.token, c.grammar});
}

std::vector<SearchedText> ContrastiveSearch::take_results() {
  if (text_.reason == FinishReason::kNone) return {};
  std::vector<SearchedText> all;
  all.push_back(std::move(text_));
  return all;
}

}  // namespace ibid
