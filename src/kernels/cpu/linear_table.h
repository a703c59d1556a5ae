// The functions of ops::linear that exist once per instruction set. Plain pointers and sizes only: see cpu/table.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ibid::cpu {

struct LinearTable {
  // Placeholder until the kernels land: the sum of a[i] * b[i] in ascending order with fused multiply-adds.
  float (*dot)(const float* a, const float* b, int64_t n);
};

}  // namespace ibid::cpu
