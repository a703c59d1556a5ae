#define IBID_ISA any_avx2
#include "bench/exactness/any_attention.inl"

namespace ibid::bench {
using namespace cpu::any_avx2;
const AnyOps kOpsAvx2 = {kAttentions, fast_rms_norm, fast_log_softmax, fast_silu_mul};
}  // namespace ibid::bench
