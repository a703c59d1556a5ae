// Contrastive search (Su et al. 2022, "A Contrastive Framework for Neural Text Generation", equation 5): of the k
// likeliest tokens the one with the greatest (1 - alpha) p - alpha max cos(h, h_j), where h is the hidden state after
// the model's final norm with the token appended, and h_j are those of the prompt and of the answer so far. Each
// candidate is a beam of one step.
#pragma once

#include "sample/search.h"

namespace ibid {

class ContrastiveSearch final : public Search {
 public:
  ContrastiveSearch(const SearchOptions& options, int32_t max_tokens);
  int32_t n_candidates() const override { return options_.width; }
  int32_t n_beams() const override { return options_.width; }
  void advance(std::span<const SearchRow> rows, std::vector<SearchChild>& children) override;
  std::vector<SearchedText> take_results() override;

  // Hidden states of the prompt, in order, width floats each.
  void add_context(std::span<const float> hidden, int32_t width);
  int32_t n_context() const { return width_ == 0 ? 0 : static_cast<int32_t>(context_.size()) / width_; }
  // A hidden state as a unit vector, and its greatest cosine with the sequence so far. Sums in 16 lanes, which are
  // added in order: the same bits on every machine. From any thread, while no state is added.
  void look_at(std::span<const float> hidden, SearchRow& row) const;

 private:
  SearchOptions options_;
  int32_t max_tokens_;
  int32_t width_ = 0;                        // C
  std::vector<float> context_;               // [T, C], unit vectors
  std::vector<SearchCandidate> candidates_;  // their rows come next
  SearchedText text_;
};

}  // namespace ibid
