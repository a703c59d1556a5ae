// What a bad file may cost: less than a second of the processor, less than 64 MiB. Times and memory are checked in
// builds that are not slowed down by sanitizers.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "measured.h"

namespace ibid {

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
    const double seconds = processor_seconds() - begin_;
    EXPECT_LT(seconds, on_this_machine(1.0, seconds)) << name;
    EXPECT_LT(peak_kb() - peak_kb_, 64 * 1024) << name;
  }

 private:
  double begin_ = processor_seconds();
  long peak_kb_ = peak_kb();
};

// A case in its scope takes less than a second of the processor: what else the machine does is not its fault.
class ProcessorTime {
 public:
  explicit ProcessorTime(std::string name) : name_(std::move(name)) {}
  ~ProcessorTime() {
    const double seconds = processor_seconds() - begin_;
    if (kMeasured) {
      EXPECT_LT(seconds, on_this_machine(1.0, seconds)) << name_;
    }
  }

 private:
  std::string name_;
  double begin_ = processor_seconds();
};

inline std::string repeated(std::string_view s, size_t n) {
  std::string all;
  all.reserve(s.size() * n);
  for (; n > 0; --n) all += s;
  return all;
}

// What an error sentence must be: not empty, one line, without a dump of the file.
inline void expect_sentence(const Error& error, const std::string& name) {
  EXPECT_GT(error.message.size(), 12u) << name;
  EXPECT_LT(error.message.size(), 600u) << name;
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << name << ": " << error.message;
}

}  // namespace ibid
