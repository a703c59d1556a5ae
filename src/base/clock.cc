#include "base/clock.h"

#include <time.h>

#include <chrono>

namespace ibid {
namespace {

class SteadyClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace

const Clock& steady_clock() {
  static const SteadyClock clock;
  return clock;
}

double coarse_steady_now() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace ibid
