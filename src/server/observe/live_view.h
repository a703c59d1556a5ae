// LiveView: what the page's second tab shows: the last steps and the requests under way, without any text of theirs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/access/quotas.h"

namespace ibid {

struct ActiveRow {
  const char* route = "chat";
  int32_t prompt_tokens = 0;
  int32_t n_choices = 1;
  bool stream = false;
  double arrived = 0;
  std::atomic<int32_t> generated = 0;
};

class LiveView {
 public:
  void add_step(const EngineStats& stats, double now);
  // Shown for as long as the caller keeps it.
  std::shared_ptr<ActiveRow> add_row();
  // Steps after number `since`, all rows, and what each tenant has and had.
  std::string json(const EngineStats& stats, const std::vector<TenantFigures>& tenants, int64_t since,
                   double now) const;

 private:
  struct Step {
    int64_t number = 0;
    double at = 0, plan = 0, forward = 0, sample = 0, settle = 0;
    int32_t prefill = 0, decode = 0, accepted = 0, refused = 0, running = 0, waiting = 0;
    int32_t free = 0, cached = 0, in_use = 0, shared = 0;
  };
  static constexpr size_t kSteps = 240;
  static constexpr int64_t kRows = 200;

  mutable std::mutex mutex_;
  std::array<Step, kSteps> steps_ = {};
  size_t n_steps_ = 0;
  std::vector<std::weak_ptr<ActiveRow>> rows_;
};

}  // namespace ibid
