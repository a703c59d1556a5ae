#include "engine/record/life.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/state/sequence.h"

namespace ibid {
namespace {

std::string counted(int64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

}  // namespace

void Life::submitted(const AdmittedRequest& request, const Status& taken) noexcept {
  if (request->id != id_ || is_known()) return;
  arrived_ = replay_.now();
  prompt_len_ = static_cast<int32_t>(request->prompt.size());
  n_choices_ = taken.ok() ? request->n : 0;
  heading_ = fmt::format("request {}: a prompt of {}, {}", static_cast<uint64_t>(id_),
                         counted(prompt_len_, "token", "tokens"), counted(request->n, "choice", "choices"));
  if (request->max_tokens >= 0) heading_ += fmt::format(", answers of at most {}", request->max_tokens);
  if (request->priority != 0) heading_ += fmt::format(", priority {}", request->priority);
  if (!request->tenant.empty()) heading_ += ", tenant " + request->tenant;
  marks_.push_back({arrived_, step_, -1,
                    taken.ok()
                        ? fmt::format("arrives; {} and {}", counted(n_running_, "sequence runs", "sequences run"),
                                      counted(n_waiting_, "waits", "wait"))
                        : "is refused: " + taken.error().message});
}

void Life::cancelled(RequestId id) noexcept {
  if (id != id_ || !is_known() || is_over()) return;
  is_cancelled_ = true;
  marks_.push_back({replay_.now(), step_, -1, "is cancelled"});
}

void Life::planned(const StepPlan& plan) noexcept {
  planned_.clear();
  if (plan.empty()) return;
  ++step_;
  if (!is_known() || is_over()) return;
  const auto n_up = static_cast<int32_t>(
      std::ranges::count_if(plan.copies, [](const BlockCopy& c) { return c.from_tier != Tier::kDevice; }));
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    planned_.push_back({.request = s.request->id,
                        .choice = s.choice,
                        .step = step_,
                        .begin = replay_.now(),
                        .from = s.n_computed(),
                        .n_tokens = share.n_tokens,
                        .is_decode = s.n_computed() + share.n_tokens > s.prompt_len && share.n_certain() == 1,
                        .n_others = static_cast<int32_t>(plan.shares.size()) - 1,
                        .n_other_tokens = plan.n_tokens - share.n_tokens,
                        .n_copies_up = n_up});
  }
}

void Life::settled(const StepPlan& plan) noexcept {
  const double now = replay_.now();
  for (Piece& piece : planned_) piece.end = now;
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    if (s.request->id != id_ || !is_known() || s.state != SequenceState::kFinished) continue;
    if (s.choice >= n_choices_ || !ended_.insert(s.choice).second) continue;
    marks_.push_back({now, step_, s.choice,
                      fmt::format("{}ends as \"{}\" with {}", name_of_choice(s.choice),
                                  finish_reason_name(s.answer->reason()), counted(s.n_answered(), "token", "tokens"))});
  }
}

void Life::stepped(const Engine& engine) noexcept {
  const EngineStats stats = engine.stats();
  n_running_ = stats.n_running;
  n_waiting_ = stats.n_waiting;
  for (int32_t choice = 0; choice < n_choices_; ++choice) {
    const Sequence* s = engine.find(id_, choice);
    if (s == nullptr && ended_.insert(choice).second) {  // not by a step of its own
      marks_.push_back({replay_.now(), step_, choice,
                        name_of_choice(choice) + (is_cancelled_ ? "ends as \"cancelled\"" : "ends with its request")});
    }
    if (s == nullptr) continue;
    if (int32_t& n = n_preemptions_[choice]; s->account.n_preemptions > n) {
      n = s->account.n_preemptions;
      marks_.push_back(
          {replay_.now(), step_, choice, name_of_choice(choice) + "loses its blocks to others, and waits"});
    }
  }
  for (Piece& piece : planned_) {
    if (piece.request == id_) {
      int32_t& most = n_computed_[piece.choice];
      piece.is_again = piece.from + piece.n_tokens <= most;
      most = std::max(most, piece.from + piece.n_tokens);
      pieces_.push_back(piece);
    } else if (company_.size() < kMaxPieces) {
      company_.push_back(piece);
    }
  }
  planned_.clear();
}

double Life::end() const {
  double end = arrived_;
  for (const Piece& piece : pieces_) end = std::max(end, piece.end);
  for (const Mark& mark : marks_) end = std::max(end, mark.at);
  return end;
}

std::string Life::name_of_choice(int32_t choice) const {
  return n_choices_ > 1 ? fmt::format("choice {} ", choice) : "";
}

// One for each piece of a prompt, one for each run of an answer's tokens.
std::vector<std::pair<double, std::string>> Life::lines() const {
  std::vector<std::pair<double, std::string>> out;
  for (const Mark& mark : marks_) out.emplace_back(mark.at, mark.what);
  for (int32_t choice = 0; choice < n_choices_; ++choice) {
    std::vector<Piece> own;
    std::ranges::copy_if(pieces_, std::back_inserter(own), [&](const Piece& p) { return p.choice == choice; });
    for (size_t i = 0; i < own.size();) {
      size_t to = i + 1;
      while (own[i].is_decode && to < own.size() && own[to].is_decode && own[to].step == own[to - 1].step + 1) ++to;
      int32_t least = own[i].n_others, most = least, n = 0;
      for (size_t k = i; k < to; ++k) {
        least = std::min(least, own[k].n_others), most = std::max(most, own[k].n_others);
        n += own[k].n_tokens;
      }
      const std::string steps = to - i == 1 ? fmt::format("step {}", own[i].step)
                                            : fmt::format("steps {} to {}", own[i].step, own[to - 1].step);
      const std::string beside =
          most == 0 ? "alone"
                    : fmt::format("beside {}", least == most ? counted(most, "other", "others")
                                                             : fmt::format("{} to {} others", least, most));
      std::string what = name_of_choice(choice) + steps + ": ";
      if (own[i].is_decode) {
        what += fmt::format("{} of its answer, {}", counted(n, "token", "tokens"), beside);
      } else {
        what += fmt::format("{}{} from position {}, {}", counted(n, "token", "tokens"),
                            own[i].is_again ? " again" : " of its prompt", own[i].from, beside);
        if (most > 0) what += fmt::format(" with {}", counted(own[i].n_other_tokens, "token", "tokens"));
        const bool is_first = i == 0 && own[i].from > 0;
        if (is_first) what += fmt::format("; what is before was in the cache");
        if (own[i].n_copies_up > 0)
          what += fmt::format("; {} came up from a lower tier", counted(own[i].n_copies_up, "block", "blocks"));
      }
      what += fmt::format(" ({:.1f} ms)", 1e3 * (own[to - 1].end - own[i].begin));
      out.emplace_back(own[i].begin, std::move(what));
      i = to;
    }
  }
  std::ranges::stable_sort(out, {}, &std::pair<double, std::string>::first);
  return out;
}

std::string Life::text() const {
  if (!is_known()) return fmt::format("request {} is not in the record\n", static_cast<uint64_t>(id_));
  std::string out = heading_ + "\n";
  for (const auto& [at, what] : lines()) out += fmt::format("{:10.3f} s  {}\n", at - arrived_, what);
  if (!is_over()) out += "              the record ends before it\n";
  return out;
}

}  // namespace ibid
