#include "cli/measure/draft_gain.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/draft_choice.h"
#include "spec/gain.h"

namespace ibid::cli {
namespace {

const DraftChain kNone;

// After the answer's first `at` tokens.
const DraftChain& draft_at(const DraftedText& text, size_t proposer, size_t at) {
  const std::vector<DraftChain>& all = text.drafts[proposer];
  return at - 1 < all.size() ? all[at - 1] : kNone;
}

size_t n_right(const DraftedText& text, const DraftChain& draft, size_t at) {
  size_t n = 0;
  while (n < draft.tokens.size() && at + n < text.answer.size() && draft.tokens[n] == text.answer[at + n]) ++n;
  return n;
}

std::string places_text(const std::vector<double>& right) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(right.size(), 4); ++i)
    out += fmt::format("{}{:.2f}", i > 0 ? " " : "", right[i]);
  return out.empty() ? "none" : out;
}

}  // namespace

int64_t DraftMeasures::n_tokens() const {
  size_t n = 0;
  for (const DraftedText& text : texts) n += text.answer.size();
  return static_cast<int64_t>(n);
}

std::vector<double> right_by_place(const DraftMeasures& measures, size_t proposer) {
  std::vector<int64_t> reached(measures.rows.size()), right(measures.rows.size());
  for (const DraftedText& text : measures.texts) {
    for (size_t at = 1; at < text.answer.size(); ++at) {
      const DraftChain& draft = draft_at(text, proposer, at);
      const size_t n = n_right(text, draft, at);
      // One after the last that is right was reached too, unless the answer had ended.
      const size_t last = std::min({n + 1, draft.tokens.size(), text.answer.size() - at, reached.size()});
      for (size_t i = 0; i < last; ++i) ++reached[i], right[i] += i < n;
    }
  }
  std::vector<double> out;
  for (size_t i = 0; i < reached.size() && reached[i] > 0; ++i)
    out.push_back(static_cast<double>(right[i]) / static_cast<double>(reached[i]));
  return out;
}

DraftGain gain_of(const DraftMeasures& measures, size_t beside, int32_t k) {
  const auto most = std::min(static_cast<size_t>(k), measures.rows.size() - 1);
  // The engine's learned cost prices each row alike (engine/state/step_cost.h), and so do its choices.
  const double each_row = (measures.rows.back() - 1) / std::max(1.0, static_cast<double>(measures.rows.size() - 1));
  int64_t n_tokens = 0, n_steps = 0, n_verified = 0;
  double rows = 0, drafting = 0;
  for (const DraftedText& text : measures.texts) {
    for (size_t at = 1; at < text.answer.size(); ++n_steps) {
      const DraftChain* draft = &draft_at(text, 0, at);
      const DraftChain& other = draft_at(text, beside, at);
      // Who takes time does not begin where another knows better.
      if (!other.tokens.empty() && (draft->tokens.empty() || other.likely.front() > draft->likely.front())) {
        draft = &other;
        drafting += static_cast<double>(std::min(most, other.tokens.size())) * measures.costs[beside];
      }
      size_t n = 0;
      DraftChoice choice(1, 1);
      for (; n < std::min(most, draft->tokens.size()); ++n) {
        if (!choice.is_worth(draft->likely[n], each_row)) break;
        choice.take(draft->likely[n], each_row);
      }
      const size_t n_taken = std::min(n_right(text, *draft, at), n);
      rows += measures.rows[n];
      n_verified += static_cast<int64_t>(n);
      at += n_taken + 1;
    }
    n_tokens += static_cast<int64_t>(text.answer.size()) - 1;
  }
  if (n_steps == 0) return {.k = k};
  const auto steps = static_cast<double>(n_steps);
  DraftGain out{
      .k = k, .tokens = static_cast<double>(n_tokens) / steps, .verified = static_cast<double>(n_verified) / steps};
  out.times = speedup_of(out.tokens, drafting / steps, rows / steps);
  return out;
}

DraftGain best_gain(const DraftMeasures& measures, size_t beside) {
  DraftGain best{.times = 0};
  for (int32_t k = 1; k < static_cast<int32_t>(measures.rows.size()); ++k) {
    if (const DraftGain gain = gain_of(measures, beside, k); gain.times > best.times) best = gain;
  }
  return best;
}

std::string draft_report(const DraftMeasures& measures) {
  std::string out = "  a step of";
  std::string took;
  for (size_t i = 1; i < measures.rows.size(); ++i) {
    out += fmt::format("{} {}", i > 1 ? "," : "", i + 1);
    took += fmt::format("{} {:.2f}", i > 1 ? "," : "", measures.rows[i]);
  }
  out += " rows takes" + took + " of one\n";
  size_t best_of = 0;
  DraftGain best;
  for (size_t i = 0; i < measures.names.size(); ++i) {
    const DraftGain gain = best_gain(measures, i);
    const std::string& name = measures.names[i];
    out += fmt::format("  {}: a draft costs {:.3f} of a step; right at its first places: {}\n", name, measures.costs[i],
                       places_text(right_by_place(measures, i)));
    out += fmt::format("    {}--spec-k {}: {:.2f} tokens a step, {:.2f} drafts verified, {:.2f} times as fast\n",
                       i > 0 ? "with ngram, " : "", gain.k, gain.tokens, gain.verified, gain.times);
    // A part of a percent is noise, and the proposer for nothing is the simpler one.
    if (gain.times > best.times + 0.005) best = gain, best_of = i;
  }
  if (best.k == 0) return out + "  none pays here: --spec off\n";
  return out + fmt::format("  best: --spec {} --spec-k {}, {:.2f} times as fast as without drafts\n",
                           measures.names[best_of], best.k, best.times);
}

}  // namespace ibid::cli
