#include "kernels/op_profile.h"

#include "base/clock.h"

namespace ibid {
namespace {
OpProfile* g_profile = nullptr;
}

void profile_ops(OpProfile* profile) { g_profile = profile; }
OpProfile* op_profile() { return g_profile; }

OpTimer::OpTimer(const char* op, const OpWork& work) : profile_(g_profile), run_{op, work, 0.0, 0.0} {
  if (profile_ != nullptr) run_.begin = steady_clock().now();
}

OpTimer::~OpTimer() {
  if (profile_ == nullptr) return;
  run_.end = steady_clock().now();
  profile_->ran(run_);
}

}  // namespace ibid
