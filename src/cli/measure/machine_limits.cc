#include "cli/measure/machine_limits.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ibid::cli {
namespace {

volatile uint64_t measured_sink;

// The best of some rounds of 10 to 40 ms each, so that a neighbour's burst does not lower a limit.
template <typename Work>
double best_rate(double amount, int n_rounds, Work&& work) {
  double best = 0;
  for (int round = 0; round < n_rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, amount / took.count());
  }
  return best;
}

// Reads kStreams parts at once, each with its next lines fetched kAhead bytes before (0: left to the processor).
template <size_t kStreams, size_t kAhead>
uint64_t read_all(const std::byte* data, size_t bytes) {
  typedef uint64_t Line __attribute__((vector_size(64)));
  const size_t part = bytes / kStreams / sizeof(Line) * sizeof(Line);
  Line sums[kStreams] = {};
  for (size_t i = 0; i < part; i += sizeof(Line)) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* const p = data + s * part + i;
      Line line;
      std::memcpy(&line, p, sizeof line);
      sums[s] += line;
      if (kAhead != 0) __builtin_prefetch(p + kAhead);
    }
  }
  uint64_t sum = 0;
  for (const Line& s : sums) sum += s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
  return sum;
}

#if defined(__x86_64__) || defined(__aarch64__)
constexpr int64_t kLoops = 3'000'000;
constexpr int kChains = 12;  // enough independent sums to hide any latency, and few enough for AVX2's registers

#if defined(__x86_64__)
#define IBID_IN_REGISTER "v"
#else
#define IBID_IN_REGISTER "w"
#endif
// Chains in named registers: an array of them would go through memory. x is marked as changed before each step, so
// that nothing is computed once for all.
#define IBID_STEP(step, a)                    \
  asm volatile("" : "+" IBID_IN_REGISTER(x)); \
  a = step(a);
#define IBID_KEPT(a) asm volatile("" ::IBID_IN_REGISTER(a));
#define IBID_ALL(f, ...)                                                                                      \
  f(__VA_ARGS__ a0) f(__VA_ARGS__ a1) f(__VA_ARGS__ a2) f(__VA_ARGS__ a3) f(__VA_ARGS__ a4) f(__VA_ARGS__ a5) \
      f(__VA_ARGS__ a6) f(__VA_ARGS__ a7) f(__VA_ARGS__ a8) f(__VA_ARGS__ a9) f(__VA_ARGS__ a10) f(__VA_ARGS__ a11)
#define IBID_PEAK(name, features, Factor, Sum, one, step)                         \
  __attribute__((target(features), noinline)) void name() {                       \
    Factor x = one, y = one;                                                      \
    asm volatile("" : "+" IBID_IN_REGISTER(y));                                   \
    Sum a0{}, a1{}, a2{}, a3{}, a4{}, a5{}, a6{}, a7{}, a8{}, a9{}, a10{}, a11{}; \
    for (int64_t i = 0; i < kLoops; ++i) {                                        \
      IBID_ALL(IBID_STEP, step, )                                                 \
    }                                                                             \
    IBID_ALL(IBID_KEPT, )                                                         \
  }
#endif

// A loop and the multiply-adds of one of its steps.
struct Peak {
  void (*loop)() = nullptr;
  double macs = 0;
};
// Of a table: the shortest instructions that any of its families has. Without a unit for BF16 two floating-point
// multiply-adds make such a pair (kernels/cpu/dot_bf16.h), so that the bound is that of floats.
struct Peaks {
  Peak int8, bf16, fp32;
};

#if defined(__x86_64__)
#define AVX2 "avx2,fma"
#define AVX512 "avx512f,avx512bw,avx512vl"
#define FMA256(a) _mm256_fmadd_ps(x, y, a)
#define FMA512(a) _mm512_fmadd_ps(x, y, a)
// Small codes in 16-bit sums, whose widening is for several steps.
#define BYTES256(a) _mm256_add_epi16(a, _mm256_maddubs_epi16(x, y))
#define BYTES512(a) _mm512_add_epi16(a, _mm512_maddubs_epi16(x, y))
#define VNNI256(a) _mm256_dpbusd_avx_epi32(a, x, y)
#define VNNI512(a) _mm512_dpbusd_epi32(a, x, y)
#define BF16_512(a) _mm512_dpbf16_ps(a, (__m512bh)x, (__m512bh)y)
IBID_PEAK(fma256, AVX2, __m256, __m256, _mm256_set1_ps(1), FMA256)
IBID_PEAK(fma512, AVX512, __m512, __m512, _mm512_set1_ps(1), FMA512)
IBID_PEAK(bytes256, AVX2, __m256i, __m256i, _mm256_set1_epi8(1), BYTES256)
IBID_PEAK(bytes512, AVX512, __m512i, __m512i, _mm512_set1_epi8(1), BYTES512)
IBID_PEAK(vnni256, AVX2 ",avxvnni", __m256i, __m256i, _mm256_set1_epi8(1), VNNI256)
IBID_PEAK(vnni512, AVX512 ",avx512vnni", __m512i, __m512i, _mm512_set1_epi8(1), VNNI512)
IBID_PEAK(bf16_512, AVX512 ",avx512bf16", __m512, __m512, _mm512_set1_ps(1), BF16_512)

Peaks peaks_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return {{bytes256, 32}, {fma256, 8}, {fma256, 8}};
    case Isa::kAvx2Vnni:
      return {{vnni256, 32}, {fma256, 8}, {fma256, 8}};
    case Isa::kAvx512:
      return {{bytes512, 64}, {fma512, 16}, {fma512, 16}};
    case Isa::kAvx512Vnni:
      return {{vnni512, 64}, {fma512, 16}, {fma512, 16}};
    case Isa::kAvx512Bf16:
      return {{vnni512, 64}, {bf16_512, 32}, {fma512, 16}};
    default:
      return {};
  }
}
#elif defined(__aarch64__)
#define FMA128(a) vfmaq_f32(a, x, y)
#define BYTES128(a) vpadalq_s16(a, vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)), vmull_high_s8(x, y)))
#define DOT128(a) vdotq_s32(a, x, y)
#define MATRIX128(a) vusmmlaq_s32(a, vreinterpretq_u8_s8(x), y)
IBID_PEAK(fma128, "+simd", float32x4_t, float32x4_t, vdupq_n_f32(1), FMA128)
IBID_PEAK(bytes128, "+simd", int8x16_t, int32x4_t, vdupq_n_s8(1), BYTES128)
IBID_PEAK(dot128, "arch=armv8.2-a+dotprod", int8x16_t, int32x4_t, vdupq_n_s8(1), DOT128)
IBID_PEAK(matrix128, "arch=armv8.2-a+i8mm", int8x16_t, int32x4_t, vdupq_n_s8(1), MATRIX128)

Peaks peaks_of(Isa isa) {
  const Peak floats = {fma128, 4};
  switch (isa) {
    case Isa::kNeon:
      return {{bytes128, 16}, floats, floats};
    case Isa::kNeonDotprod:
      return {{dot128, 16}, floats, floats};
    case Isa::kNeonI8mm:
      return {{matrix128, 32}, floats, floats};
    default:
      return {};
  }
}
#else
constexpr int64_t kLoops = 1;
constexpr int kChains = 1;
Peaks peaks_of(Isa) { return {}; }
#endif

double rate_of(ThreadTeam& team, const Peak& peak, int n_rounds) {
  if (peak.loop == nullptr) return 0;
  const double amount = static_cast<double>(kLoops) * kChains * peak.macs * team.n_threads();
  return best_rate(amount, n_rounds, [&] { team.parallel_for(team.n_threads(), [&](int64_t, int) { peak.loop(); }); });
}

}  // namespace

// Weights lie on large pages where the system gives them, and so must this: on small ones reading takes up to three
// times as long. Four streams of one thread read up to twice as fast as one.
double measure_read_rate(ThreadTeam& team) {
  constexpr size_t kPiece = size_t{256} << 10, kLargePage = size_t{2} << 20;
  size_t bytes = size_t{512} << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  bytes = std::max(bytes, 4 * static_cast<size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE))));
#endif
  bytes = bytes / kLargePage * kLargePage;
  const std::align_val_t alignment{kLargePage};
  const auto give_back = [alignment](std::byte* p) { ::operator delete[](p, alignment); };
  const std::unique_ptr<std::byte[], decltype(give_back)> data(
      static_cast<std::byte*>(::operator new[](bytes, alignment)), give_back);
  madvise(data.get(), bytes, MADV_HUGEPAGE);  // a wish, as everywhere
  std::memset(data.get(), 1, bytes);
  double best = 0;
  for (const auto read : {read_all<1, 4096>, read_all<2, 0>, read_all<2, 2048>, read_all<3, 0>, read_all<3, 4096>,
                          read_all<4, 0>, read_all<4, 1024>, read_all<6, 0>, read_all<8, 0>}) {
    best = std::max(best, best_rate(static_cast<double>(bytes), 4, [&] {
                      team.parallel_for(static_cast<int64_t>(bytes / kPiece), [&](int64_t piece, int) {
                        measured_sink = read(data.get() + static_cast<size_t>(piece) * kPiece, kPiece);
                      });
                    }));
  }
  return best;
}

MachineLimits measure_peaks(ThreadTeam& team, Isa isa, int n_rounds) {
  MachineLimits limits;
  const Peaks peaks = peaks_of(isa);
  limits.int8_macs_per_s = rate_of(team, peaks.int8, n_rounds);
  limits.fp32_macs_per_s = rate_of(team, peaks.fp32, n_rounds);
  limits.bf16_macs_per_s =
      peaks.bf16.loop == peaks.fp32.loop ? limits.fp32_macs_per_s : rate_of(team, peaks.bf16, n_rounds);
  return limits;
}

MachineLimits measure_limits(ThreadTeam& team, Isa isa) {
  MachineLimits limits = measure_peaks(team, isa);
  limits.read_bytes_per_s = measure_read_rate(team);
  return limits;
}

}  // namespace ibid::cli
