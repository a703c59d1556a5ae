// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3 and table 2),
// several counters side by side. A word lives in the low half of a 64-bit lane, because the widening multiply reads it
// there; the upper halves are never looked at before the end.
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(IBID_NEON)
#include <arm_neon.h>
#endif

#include "kernels/cpu/noise_table.h"

namespace ibid::cpu::IBID_ISA {
namespace {

// counters(g): g + n for n in the order that makes interleave() store counters in ascending order.
#if defined(__AVX512F__)
using u64s = __m512i;
constexpr int kCounters = 8;
inline u64s set1(uint64_t v) { return _mm512_set1_epi64(static_cast<long long>(v)); }
inline u64s counters(int64_t g) {
  return _mm512_add_epi64(_mm512_set1_epi64(g), _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0));
}
inline u64s mul_wide(u64s a, u64s b) { return _mm512_mul_epu32(a, b); }
inline u64s high(u64s a) { return _mm512_srli_epi64(a, 32); }
inline u64s xor3(u64s a, u64s b, u64s c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); }
inline u64s pair(u64s low, u64s upper) { return _mm512_mask_shuffle_epi32(low, 0xAAAA, upper, _MM_PERM_CCAA); }
inline void interleave(uint32_t* out, u64s p, u64s q) {
  _mm512_storeu_si512(out, _mm512_unpacklo_epi64(p, q));
  _mm512_storeu_si512(out + 16, _mm512_unpackhi_epi64(p, q));
}
#elif defined(__AVX2__)
using u64s = __m256i;
constexpr int kCounters = 4;
inline u64s set1(uint64_t v) { return _mm256_set1_epi64x(static_cast<long long>(v)); }
inline u64s counters(int64_t g) { return _mm256_add_epi64(_mm256_set1_epi64x(g), _mm256_set_epi64x(3, 1, 2, 0)); }
inline u64s mul_wide(u64s a, u64s b) { return _mm256_mul_epu32(a, b); }
inline u64s high(u64s a) { return _mm256_srli_epi64(a, 32); }
inline u64s xor3(u64s a, u64s b, u64s c) { return _mm256_xor_si256(_mm256_xor_si256(a, b), c); }
inline u64s pair(u64s low, u64s upper) { return _mm256_blend_epi32(low, _mm256_slli_epi64(upper, 32), 0xAA); }
inline void interleave(uint32_t* out, u64s p, u64s q) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_unpacklo_epi64(p, q));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8), _mm256_unpackhi_epi64(p, q));
}
#elif defined(__SSE2__)
using u64s = __m128i;
constexpr int kCounters = 2;
inline u64s set1(uint64_t v) { return _mm_set1_epi64x(static_cast<long long>(v)); }
inline u64s counters(int64_t g) { return _mm_set_epi64x(g + 1, g); }
inline u64s mul_wide(u64s a, u64s b) { return _mm_mul_epu32(a, b); }
inline u64s high(u64s a) { return _mm_srli_epi64(a, 32); }
inline u64s xor3(u64s a, u64s b, u64s c) { return _mm_xor_si128(_mm_xor_si128(a, b), c); }
inline u64s pair(u64s low, u64s upper) {
  return _mm_or_si128(_mm_and_si128(low, _mm_set1_epi64x(0xFFFFFFFF)), _mm_slli_epi64(upper, 32));
}
inline void interleave(uint32_t* out, u64s p, u64s q) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_unpacklo_epi64(p, q));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4), _mm_unpackhi_epi64(p, q));
}
#elif defined(IBID_NEON)
using u64s = uint64x2_t;
constexpr int kCounters = 2;
inline u64s set1(uint64_t v) { return vdupq_n_u64(v); }
inline u64s counters(int64_t g) { return u64s{static_cast<uint64_t>(g), static_cast<uint64_t>(g) + 1}; }
inline u64s mul_wide(u64s a, u64s b) { return vmull_u32(vmovn_u64(a), vmovn_u64(b)); }
inline u64s high(u64s a) { return vshrq_n_u64(a, 32); }
inline u64s xor3(u64s a, u64s b, u64s c) { return veorq_u64(veorq_u64(a, b), c); }
inline u64s pair(u64s low, u64s upper) { return vsliq_n_u64(low, upper, 32); }
inline void interleave(uint32_t* out, u64s p, u64s q) {
  vst1q_u32(out, vreinterpretq_u32_u64(vzip1q_u64(p, q)));
  vst1q_u32(out + 4, vreinterpretq_u32_u64(vzip2q_u64(p, q)));
}
#else
using u64s = uint64_t;
constexpr int kCounters = 1;
inline u64s set1(uint64_t v) { return v; }
inline u64s counters(int64_t g) { return static_cast<uint64_t>(g); }
inline u64s mul_wide(u64s a, u64s b) { return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF); }
inline u64s high(u64s a) { return a >> 32; }
inline u64s xor3(u64s a, u64s b, u64s c) { return a ^ b ^ c; }
inline u64s pair(u64s low, u64s upper) { return (low & 0xFFFFFFFF) | (upper << 32); }
inline void interleave(uint32_t* out, u64s p, u64s q) {
  out[0] = static_cast<uint32_t>(p), out[1] = static_cast<uint32_t>(p >> 32);
  out[2] = static_cast<uint32_t>(q), out[3] = static_cast<uint32_t>(q >> 32);
}
#endif

void fill(uint32_t* out, int64_t n_groups, uint64_t seed, uint32_t position, uint32_t purpose) {
  const u64s m0 = set1(0xD2511F53u), m1 = set1(0xCD9E8D57u);
  for (int64_t g = 0; g < n_groups; g += kCounters) {
    u64s x0 = set1(position), x1 = set1(purpose), x2 = counters(g), x3 = set1(0);
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      u64s a = mul_wide(x0, m0), b = mul_wide(x2, m1);
      x0 = xor3(high(b), x1, set1(key0));
      x2 = xor3(high(a), x3, set1(key1));
      x1 = b;
      x3 = a;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    u64s p = pair(x0, x1), q = pair(x2, x3);
    if (n_groups - g >= kCounters) {
      interleave(out + 4 * g, p, q);
    } else {
      uint32_t last[4 * kCounters];
      interleave(last, p, q);
      for (int64_t i = 0; i < 4 * (n_groups - g); ++i) out[4 * g + i] = last[i];
    }
  }
}

}  // namespace

extern const NoiseTable kNoise;
const NoiseTable kNoise = {&fill};

}  // namespace ibid::cpu::IBID_ISA
