// Kernels without an order of sums, which ibid's own are compared with (exactness_bench.cc). They read the layouts of
// kernels/cpu, give results near ibid's without promising any bit, and are compiled with -ffast-math, for AVX-512 with
// VNNI (BF16's for that unit) and for AVX2. They are not linked into ibid.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/attention_table.h"
#include "kernels/cpu/linear_table.h"

namespace ibid::bench {

// out[row .. row_end, 16 * tile ..] = the sums over inputs [k, k_end) of task.x and the packed weights. row_end - row
// is a multiple of `rows`; k and k_end are multiples of 256 or the ends of K.
struct AnyLinear {
  const char* name;
  int rows;  // of its register tile
  void (*product)(const cpu::LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end, int64_t k,
                  int64_t k_end);
};
// Attention without pieces, with one softmax for several tiles, masked weights instead of ragged ends, a shorter exp
// and a reciprocal instead of divisions. Neither windows nor caps nor paths.
struct AnyAttention {
  const char* name;
  void (*run)(const cpu::AttentionTask& task);
};

// The kernels of one instruction set.
struct AnyLinears {
  std::span<const AnyLinear> (*of)(DType dtype);
  const cpu::LinearTable& ibids;  // its own, compiled with those flags
};
extern const AnyLinears kLinearsAvx512, kLinearsAvx2;
struct AnyOps {
  std::span<const AnyAttention> attentions;
  void (*rms_norm)(float* out, const float* x, const float* weight, int64_t n, float eps);
  void (*log_softmax)(float* out, const float* x, int64_t n);
  void (*silu_mul)(float* out, const float* gate, const float* up, int64_t n);
};
extern const AnyOps kOpsAvx512, kOpsAvx2;

}  // namespace ibid::bench
