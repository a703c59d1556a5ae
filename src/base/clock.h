// Clock: time as an interface, so that simulations and replays run on a clock of their own.
#pragma once

#include <memory>

namespace ibid {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;  // seconds, monotonic, from an arbitrary origin
};

// The system's steady clock; one for the whole process.
const Clock& steady_clock();
// Its time at a fraction of the cost and some milliseconds late; for events that are recorded a thousand times a
// second.
double coarse_steady_now();

// A clock that stands still until it is set or advanced.
class ManualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double now_ = 0;
};

}  // namespace ibid
