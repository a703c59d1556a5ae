#include "kernels/cpu/table.h"

#include "base/check.h"
#include "kernels/isa.h"

namespace ibid::cpu {

// Each instruction set's folder defines these in its own namespace.
#define IBID_DECLARE_TABLES(isa)          \
  namespace isa {                         \
  extern const LinearTable kLinear;       \
  extern const RowTable kRow;             \
  extern const AttentionTable kAttention; \
  extern const NoiseTable kNoise;         \
  extern const RecurrentTable kRecurrent; \
  }
#define IBID_TABLE(isa) \
  { &isa::kLinear, &isa::kRow, &isa::kAttention, &isa::kNoise, &isa::kRecurrent }

IBID_DECLARE_TABLES(baseline)
#if defined(__x86_64__)
IBID_DECLARE_TABLES(avx2)
IBID_DECLARE_TABLES(avx512)
namespace avx2_vnni {  // only products of bytes are better than plain AVX2's
extern const LinearTable kLinear;
}
namespace avx512_vnni {
extern const LinearTable kLinear;
}
namespace avx512_bf16 {  // only products of BF16
extern const LinearTable kLinear;
}
#elif defined(__aarch64__)
IBID_DECLARE_TABLES(neon)
// Only products of bytes are better than plain NEON's.
namespace neon_dotprod {
extern const LinearTable kLinear;
}
namespace neon_i8mm {
extern const LinearTable kLinear;
}
#endif

const Table& table() {
  static const Table baseline_table = IBID_TABLE(baseline);
#if defined(__x86_64__)
  static const Table avx2_table = IBID_TABLE(avx2);
  static const Table avx2_vnni_table = {&avx2_vnni::kLinear, &avx2::kRow, &avx2::kAttention, &avx2::kNoise,
                                        &avx2::kRecurrent};
  static const Table avx512_table = IBID_TABLE(avx512);
  static const Table avx512_vnni_table = {&avx512_vnni::kLinear, &avx512::kRow, &avx512::kAttention, &avx512::kNoise,
                                          &avx512::kRecurrent};
  static const Table avx512_bf16_table = {&avx512_bf16::kLinear, &avx512::kRow, &avx512::kAttention, &avx512::kNoise,
                                          &avx512::kRecurrent};
  switch (selected_isa()) {
    case Isa::kAvx512Bf16:
      return avx512_bf16_table;
    case Isa::kAvx512Vnni:
      return avx512_vnni_table;
    case Isa::kAvx512:
      return avx512_table;
    case Isa::kAvx2Vnni:
      return avx2_vnni_table;
    case Isa::kAvx2:
      return avx2_table;
    default:
      break;
  }
#elif defined(__aarch64__)
  static const Table neon_table = IBID_TABLE(neon);
  static const Table dotprod_table = {&neon_dotprod::kLinear, &neon::kRow, &neon::kAttention, &neon::kNoise,
                                      &neon::kRecurrent};
  static const Table i8mm_table = {&neon_i8mm::kLinear, &neon::kRow, &neon::kAttention, &neon::kNoise,
                                   &neon::kRecurrent};
  switch (selected_isa()) {
    case Isa::kNeonI8mm:
      return i8mm_table;
    case Isa::kNeonDotprod:
      return dotprod_table;
    case Isa::kNeon:
      return neon_table;
    default:
      break;
  }
#endif
  return baseline_table;
}

namespace {
Core this_core() {
#if defined(__x86_64__)
  // A core has some 20 misses of its first-level cache in flight. On AMD's they are all that fetching ahead keeps up,
  // 13 to 16 GB/s of one core; its second-level cache has more, and fetching into it alone brings 20 to 24 (measured on
  // Zen 4, docs/decisions/0041-fetching-ahead-on-amd.md). The family is Zen 3's as well, which has no such vectors.
  return {.fetches_into_second = __builtin_cpu_is("amd") != 0, .has_dot_a_cycle = __builtin_cpu_is("amdfam19h") != 0};
#else
  return {};
#endif
}
Core& assumed_core() {
  static Core core = this_core();
  return core;
}
}  // namespace

const Core& core() { return assumed_core(); }
void assume_core(const Core& core) { assumed_core() = core; }

}  // namespace ibid::cpu
