// What a bad file may cost: less than a second, less than 64 MiB. Times and memory are checked in builds that
// are not slowed down by sanitizers.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>

namespace ibid {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasured = false;
#else
inline constexpr bool kMeasured = true;
#endif

// Peak memory of this process so far, in kB.
inline long peak_kb() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Made before a case, asked after it.
class Cost {
 public:
  void expect_small(const std::string& name) const {
    if (!kMeasured) return;
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    EXPECT_LT(seconds.count(), 1.0) << name;
    EXPECT_LT(peak_kb() - peak_kb_, 64 * 1024) << name;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  long peak_kb_ = peak_kb();
};

}  // namespace ibid
