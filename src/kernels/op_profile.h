// OpProfile: counts and times ops, for `ibid bench --profile` and tests. Ops are straight-line calls on the host (a
// device with a queue of its own would need its own clock), so an op's time is that of its call.
#pragma once

#include <array>
#include <cstdint>

namespace ibid {

// The unit that makes an op's multiply-adds, as kernels/linear.h has the families: products of block-quantised weights
// are int8's, those of BF16 its own, all others and attention are of floats.
enum class MacUnit : uint8_t { kInt8, kBf16, kFp32 };
inline constexpr int kMacUnits = 3;

// What an op must do at least. Zero where an op does little more than read and write activations.
struct OpWork {
  std::array<int64_t, kMacUnits> macs = {};  // multiply-adds, by unit; attention's of visible pairs alone
  int64_t bytes = 0;                         // of weights, or of keys and values: each once a call
  int64_t n_outputs = 0, n_inputs = 0;       // of a product: all its matrices' rows, and their length
};

struct OpRun {
  const char* op;  // as in kernels/ops.h; of static lifetime
  OpWork work;
  double begin, end;  // seconds of base/clock.h's steady clock
};

class OpProfile {
 public:
  virtual ~OpProfile() = default;
  virtual void ran(const OpRun& run) = 0;  // in the thread that called the op, between two ops
};

// Sets the profile that every op of this process reports to; null (the initial state): none, which costs an op a load
// and a branch. Set it while no op runs. The profile must outlive its use.
void profile_ops(OpProfile* profile);
OpProfile* op_profile();

// Reports the op that runs during its lifetime.
class OpTimer {
 public:
  OpTimer(const char* op, const OpWork& work);
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;
  ~OpTimer();

 private:
  OpProfile* profile_;
  OpRun run_;
};

}  // namespace ibid
