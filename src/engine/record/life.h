// Life: what became of one request, gathered while a record runs again: when it came, which pieces of it were computed
// in which steps and in whose company, when it lost its blocks, how it ended. As text, and as a picture.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/record/replay.h"

namespace ibid {

class Life final : public EngineObserver {
 public:
  static constexpr size_t kMaxPieces = 1 << 20;  // of its company; the picture lacks what is beyond

  // `replay` outlives this and provides the time.
  Life(const Replay& replay, RequestId id) : replay_(replay), id_(id) {}

  bool is_known() const { return arrived_ >= 0; }
  std::string text() const;
  std::string svg() const;

  void submitted(const AdmittedRequest& request, const Status& taken) noexcept override;
  void cancelled(RequestId id) noexcept override;
  void planned(const StepPlan& plan) noexcept override;
  void settled(const StepPlan& plan) noexcept override;
  void stepped(const Engine& engine) noexcept override;

 private:
  // A share of a step; of this request or of one beside it.
  struct Piece {
    RequestId request{};
    int32_t choice = 0;
    int64_t step = 0;
    double begin = 0, end = 0;  // seconds on the record's clock
    int32_t from = 0, n_tokens = 0;
    bool is_decode = false, is_again = false;  // again: it was computed before it lost its blocks
    int32_t n_others = 0, n_other_tokens = 0;  // beside it
    int32_t n_copies_up = 0;                   // blocks that came from lower tiers, for the whole step
  };
  struct Mark {  // something that is no piece
    double at = 0;
    int64_t step = 0;
    int32_t choice = 0;
    std::string what;
  };
  bool is_over() const { return static_cast<int32_t>(ended_.size()) == n_choices_; }
  double end() const;
  std::string name_of_choice(int32_t choice) const;
  std::vector<std::pair<double, std::string>> lines() const;

  const Replay& replay_;
  RequestId id_;
  double arrived_ = -1;
  std::string heading_;
  int32_t n_choices_ = 0, prompt_len_ = 0;
  std::set<int32_t> ended_;  // choices
  bool is_cancelled_ = false;
  std::vector<Piece> pieces_;   // of this request, by step
  std::vector<Piece> company_;  // of others while it lived
  std::vector<Mark> marks_;
  std::map<int32_t, int32_t> n_preemptions_, n_computed_;  // by choice
  int32_t n_running_ = 0, n_waiting_ = 0;                  // after the last step
  int64_t step_ = 0;
  std::vector<Piece> planned_;  // of the step that is under way
};

}  // namespace ibid
