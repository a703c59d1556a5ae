// Beam search as in Hugging Face's transformers 5 (generation/utils.py, _beam_search): of all continuations of K beams,
// ranked by the sum of log-probabilities, the best (1 + number of ends, at least 2) K are kept; those of them that end
// and rank among the first K are finished, the best K others continue. Ties go to the lower beam, then to the lower
// token. Groups (Vijayakumar 2016, "Diverse Beam Search") take turns in each step, each with a search of its own; where
// they stop, and what counts at the full length, is as in transformers 4.49, the last version that had them.
#pragma once

#include "sample/search.h"

namespace ibid {

class BeamSearch final : public Search {
 public:
  BeamSearch(const SearchOptions& options, int32_t prompt_len, int32_t max_tokens, int32_t n_ends);
  int32_t n_candidates() const override;
  int32_t n_beams() const override { return options_.width; }
  void advance(std::span<const SearchRow> rows, std::vector<SearchChild>& children) override;
  std::vector<SearchedText> take_results() override;

 private:
  struct Beam {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    double sum = 0;
  };
  struct Group {
    std::vector<Beam> running;           // best first
    std::vector<SearchedText> finished;  // the same; at most as many as beams
    bool is_done = false;
  };
  struct Place {  // a continuation
    double sum = 0;
    int32_t beam = 0;
    const SearchCandidate* candidate = nullptr;
  };
  void advance(Group& group, std::span<const SearchRow> rows, int32_t first_row, std::vector<SearchChild>& children);
  void list_places(const Group& group, std::span<const SearchRow> rows);
  int32_t n_taken(TokenId token) const;
  bool may_improve(const Group& group) const;
  // At the full length all beams that would have continued are finished, not only those of the first ranks.
  bool ends_open() const { return options_.scores_whole || options_.n_groups > 1; }
  double score(double sum, int32_t n_tokens, bool has_end) const;
  void finish(Group& group, const Place& place, FinishReason reason);
  static Beam grown(const Beam& beam, const SearchCandidate& candidate, double sum);

  SearchOptions options_;
  int32_t prompt_len_, max_tokens_, n_ends_;
  int32_t group_width_;
  int32_t n_tokens_ = 0;  // of a running beam's answer
  std::vector<Group> groups_;
  std::vector<TokenId> taken_;  // in this step, by beams of the groups before
  std::vector<Place> places_;
};

}  // namespace ibid
