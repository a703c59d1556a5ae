// Fuel: what the compilation of a user's text may use up, counted in steps so that the verdict is the same on every
// machine and under every load. A step is a bounded piece of work and some 4 bytes of memory: kCompileSteps of them are
// about 32 MiB (of known texts one takes 34) and, on a machine of today, below a quarter of a second.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace ibid::grammar {

inline constexpr int64_t kCompileSteps = 8'000'000;

class Fuel {
 public:
  explicit Fuel(int64_t steps = kCompileSteps) : left_(steps) {}
  // False once all is used up, and for ever after.
  bool burn(int64_t steps) {
    left_ = steps > left_ ? -1 : left_ - steps;
    return left_ >= 0;
  }
  bool is_empty() const { return left_ < 0; }
  int64_t left() const { return left_ < 0 ? 0 : left_; }

 private:
  int64_t left_;
};

inline Error out_of_fuel() {
  return invalid("The grammar takes more than the steps that one may take to compile; a smaller one would do.");
}

}  // namespace ibid::grammar
