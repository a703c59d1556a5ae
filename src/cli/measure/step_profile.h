// Where the time of steps goes: collects and prints a model's ops (kernels/op_profile.h) for `ibid bench --profile`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/measure/machine_limits.h"
#include "kernels/op_profile.h"

namespace ibid::cli {

class StepProfile final : public OpProfile {
 public:
  // What is collected from now on belongs to `phase`, and what it had is forgotten.
  void begin(const std::string& phase);
  // The phase took so many seconds by the clock, ops and all else.
  void end(double seconds);
  void ran(const OpRun& run) override;

  // A table of each phase, in the order of their begins: an op and its shape, its calls, time, share of the phase,
  // rates, and the share of its bound: the least time that its bytes or its multiply-adds could take, over the time it
  // took. What no op took is the step's rest: building the batch, drawing, settling, and what stands between.
  std::string text(const MachineLimits& limits) const;
  // The runs of all phases as trace events for a browser's viewer (Chrome's format, "X" events in microseconds), a
  // thread for each phase; at most kMostEvents of a phase.
  std::string trace() const;
  static constexpr size_t kMostEvents = 200'000;

 private:
  struct Sum {
    OpWork work;
    int64_t n_calls = 0;
    double seconds = 0;
  };
  struct Phase {
    std::string name;
    double seconds = 0;
    std::map<std::string, Sum> ops;
    std::vector<OpRun> runs;
  };
  std::vector<Phase> phases_;
};

}  // namespace ibid::cli
