#include "sample/beam_search.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/math.h"

namespace ibid {

BeamSearch::BeamSearch(const SearchOptions& options, int32_t prompt_len, int32_t max_tokens, int32_t n_ends)
    : options_(options),
      prompt_len_(prompt_len),
      max_tokens_(max_tokens),
      n_ends_(n_ends),
      group_width_(options.width / options.n_groups),
      groups_(static_cast<size_t>(options.n_groups)) {
  for (Group& group : groups_) group.running.resize(1);  // the prompt
}

// A penalty moves at most the tokens that earlier groups took, so that many more are read.
int32_t BeamSearch::n_candidates() const {
  return std::max(2, 1 + n_ends_) * group_width_ + (options_.n_groups > 1 ? options_.width : 0);
}

void BeamSearch::advance(std::span<const SearchRow> rows, std::vector<SearchChild>& children) {
  children.clear();
  taken_.clear();
  const bool is_first = n_tokens_++ == 0;
  int32_t row = 0;
  for (Group& group : groups_) {
    if (group.is_done) continue;
    // All groups begin with the same row.
    const auto n = static_cast<int32_t>(group.running.size());
    const int32_t first = is_first ? 0 : std::exchange(row, row + n);
    advance(group, rows.subspan(static_cast<size_t>(first), static_cast<size_t>(n)), first, children);
  }
}

void BeamSearch::list_places(const Group& group, std::span<const SearchRow> rows) {
  places_.clear();
  for (size_t b = 0; b < rows.size(); ++b) {
    for (const SearchCandidate& c : rows[b].best) {
      double score = static_cast<double>(c.score);
      if (options_.diversity_penalty != 0) score -= static_cast<double>(options_.diversity_penalty) * n_taken(c.token);
      places_.push_back({group.running[b].sum + score, static_cast<int32_t>(b), &c});
    }
  }
  std::ranges::sort(places_, [](const Place& a, const Place& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.beam != b.beam ? a.beam < b.beam : a.candidate->token < b.candidate->token;
  });
}

int32_t BeamSearch::n_taken(TokenId token) const { return static_cast<int32_t>(std::ranges::count(taken_, token)); }

void BeamSearch::advance(Group& group, std::span<const SearchRow> rows, int32_t first_row,
                         std::vector<SearchChild>& children) {
  list_places(group, rows);
  const auto n_kept = static_cast<size_t>(std::max(2, 1 + n_ends_)) * static_cast<size_t>(group_width_);
  if (places_.size() > n_kept && !options_.scores_whole) places_.resize(n_kept);
  const bool is_last = n_tokens_ >= max_tokens_;
  std::vector<Beam> next;
  std::vector<TokenId> now_taken;
  int32_t n_next = 0;  // those that do not end by themselves, up to as many as beams
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    const Place& place = places_[rank];
    const bool is_among_first = rank < static_cast<size_t>(group_width_);
    if (place.candidate->end != FinishReason::kNone) {
      if (is_among_first || options_.scores_whole) finish(group, place, place.candidate->end);
      continue;
    }
    const bool runs_on = n_next++ < group_width_;
    if (runs_on) now_taken.push_back(place.candidate->token);
    if (is_last) {
      if (ends_open() ? runs_on : is_among_first) finish(group, place, FinishReason::kLength);
    } else if (runs_on) {
      next.push_back(grown(group.running[static_cast<size_t>(place.beam)], *place.candidate, place.sum));
      children.push_back({first_row + place.beam, place.candidate->token, place.candidate->grammar});
    }
  }
  const size_t n_children = next.size();
  group.running = std::move(next);
  group.is_done = group.running.empty() || !may_improve(group);
  if (group.is_done) {
    children.resize(children.size() - n_children);
    group.running.clear();
  }
  taken_.insert(taken_.end(), now_taken.begin(), now_taken.end());
}

// Whether a running sequence may still become one of the finished ones.
bool BeamSearch::may_improve(const Group& group) const {
  if (options_.scores_whole || static_cast<int32_t>(group.finished.size()) < group_width_) return true;
  if (options_.early_stopping == EarlyStopping::kYes) return false;
  const bool longest = options_.early_stopping == EarlyStopping::kNever && options_.length_penalty > 0;
  const double best = options_.n_groups > 1 ? places_.front().sum : group.running.front().sum;
  return score(best, longest ? max_tokens_ : n_tokens_, false) > group.finished.back().score;
}

double BeamSearch::score(double sum, int32_t n_tokens, bool has_end) const {
  const int32_t length = options_.scores_whole ? std::max(1, prompt_len_ + n_tokens - has_end) : n_tokens;
  return sum / math::pow(length, static_cast<double>(options_.length_penalty));
}

void BeamSearch::finish(Group& group, const Place& place, FinishReason reason) {
  const double score_of = score(place.sum, n_tokens_, reason == FinishReason::kEos || reason == FinishReason::kStop);
  std::vector<SearchedText>& all = group.finished;
  const auto at = std::ranges::upper_bound(all, score_of, std::greater<>(), &SearchedText::score);
  if (at - all.begin() >= group_width_) return;
  Beam beam = grown(group.running[static_cast<size_t>(place.beam)], *place.candidate, place.sum);
  all.insert(at, {std::move(beam.tokens), std::move(beam.logprobs), score_of, reason});
  if (static_cast<int32_t>(all.size()) > group_width_) all.pop_back();
}

BeamSearch::Beam BeamSearch::grown(const Beam& beam, const SearchCandidate& candidate, double sum) {
  Beam out = beam;
  out.tokens.push_back(candidate.token);
  out.logprobs.push_back(candidate.logprob);
  out.sum = sum;
  return out;
}

std::vector<SearchedText> BeamSearch::take_results() {
  std::vector<SearchedText> all;
  for (Group& group : groups_) std::ranges::move(group.finished, std::back_inserter(all));
  std::ranges::stable_sort(all, std::greater<>(), &SearchedText::score);
  return all;
}

}  // namespace ibid
