#define IBID_ISA any_avx512
#include "bench/exactness/any_attention.inl"

namespace ibid::bench {
using namespace cpu::any_avx512;
const AnyOps kOpsAvx512 = {kAttentions, fast_rms_norm, fast_log_softmax, fast_silu_mul};
}  // namespace ibid::bench
