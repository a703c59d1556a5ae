// kernels/linear.h as a loop over numbers: what ops::linear must give for one output, to the bit. Reads the packed form
// of block-quantised weights, whose codes and factors linear_test.cc holds to the files' own formulas.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/linear.h"
#include "kernels/weight.h"
#include "tensor/half.h"

namespace ibid {

// One row of activations, quantised by the contract (no tiny and no infinite ones here).
struct ContractRow {
  explicit ContractRow(const float* x_row, int64_t K) : x(x_row, x_row + K) {
    for (int64_t g = 0; g + 32 <= K; g += 32) {
      float amax = 0;
      for (int64_t i = g; i < g + 32; ++i) amax = std::max(amax, std::fabs(x_row[i]));
      scales.push_back(amax / 127.0f);
      for (int64_t i = g; i < g + 32; ++i) {
        codes.push_back(static_cast<int32_t>(std::nearbyint(x_row[i] * (127.0f / amax))));
      }
    }
  }
  std::vector<float> x, scales;
  std::vector<int32_t> codes;
};

class Contract {
 public:
  explicit Contract(const Weight& w) : w_(w), layout_(block_layout(w.dtype)) {}

  float output(const ContractRow& x, int64_t n) const { return tree(x, n, 0, w_.pieces.n) * w_.out_scale; }
  float piece(const ContractRow& x, int64_t n, int i) const {
    const int64_t k = w_.pieces.edges[static_cast<size_t>(i)], k_end = w_.pieces.edges[static_cast<size_t>(i) + 1];
    if (is_quantised(w_.dtype)) return quantised(x, n, k, k_end);
    return w_.dtype == DType::kBF16 ? bf16(x, n, k, k_end) : plain(x, n, k, k_end);
  }

 private:
  float tree(const ContractRow& x, int64_t n, int first, int last) const {
    if (last - first == 1) return piece(x, n, first);
    const int middle = (first + last) / 2;
    return tree(x, n, first, middle) + tree(x, n, middle, last);
  }
  float plain(const ContractRow& x, int64_t n, int64_t k, int64_t k_end) const {
    float acc = 0;
    for (; k < k_end; ++k) {
      const float weight =
          w_.dtype == DType::kF32 ? w_.raw.row_as<float>(n)[k] : half_to_float(w_.raw.row_as<uint16_t>(n)[k]);
      acc = std::fma(x.x[static_cast<size_t>(k)], weight, acc);
    }
    return acc;
  }
  float bf16(const ContractRow& x, int64_t n, int64_t k, int64_t k_end) const {  // of numbers whose sums are normal
    auto term = [&](int64_t i, float acc) {
      if (i >= w_.n_inputs) return acc;
      const float rounded = bf16_to_float(float_to_bf16(x.x[static_cast<size_t>(i)]));
      return std::fma(rounded, bf16_to_float(w_.raw.row_as<uint16_t>(n)[i]), acc);
    };
    float acc = 0;
    for (; k < k_end; k += 2) acc = term(k, term(k + 1, acc));
    return acc;
  }
  float quantised(const ContractRow& x, int64_t n, int64_t k, int64_t k_end) const {
    float acc = 0;
    const int64_t len = layout_.group_len;
    for (int64_t g = k / len; g < k_end / len; ++g) {
      int32_t dot = 0, sum = 0;
      for (int64_t i = g * len; i < (g + 1) * len; ++i) {
        dot += code(n, i) * x.codes[static_cast<size_t>(i)];
        sum += x.codes[static_cast<size_t>(i)];
      }
      const float x_scale = x.scales[static_cast<size_t>(g * len / 32)];
      acc = std::fma(static_cast<float>(dot), factor(n, g, 0) * x_scale, acc);
      if (layout_.has_min) acc = std::fma(factor(n, g, 1), x_scale * static_cast<float>(sum), acc);
    }
    return acc;
  }
  const uint8_t* tile(int64_t n) const {
    return reinterpret_cast<const uint8_t*>(w_.packed) +
           n / cpu::kTileOutputs * packed_tile_bytes(w_.dtype, w_.n_inputs);
  }
  // Bits of the code of step i, byte j, output o in a plane.
  static int32_t plane_bits(const uint8_t* plane, int bits, int64_t i, int64_t j, int64_t o) {
    const int n = bits < 8 ? bits : 8;
    return plane[(i % n * cpu::kTileOutputs + o) * 4 + j] >> (bits < 8 ? i / n * bits : 0) & ((1 << bits) - 1);
  }
  int32_t code(int64_t n, int64_t k) const {
    const uint8_t* block = tile(n) + k / 32 * code_bytes(layout_);
    const int64_t o = n % cpu::kTileOutputs, i = k % 32 / 4, j = k % 4;
    int32_t c = plane_bits(block, layout_.low_bits, i, j, o);
    if (layout_.high_bits != 0) {
      c |= plane_bits(block + layout_.low_bits * 64, layout_.high_bits, i, j, o) << layout_.low_bits;
    }
    return (layout_.has_table ? code_table(w_.dtype)[c] : c) - layout_.offset;
  }
  static float half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, 2);
    return half_to_float(half);
  }
  // The scale (which = 0) or min of a group.
  float factor(int64_t n, int64_t group, int which) const {
    const int64_t o = n % cpu::kTileOutputs, n_groups = 32 / layout_.group_len, b = group / n_groups;
    const uint8_t* of_codes = tile(n) + w_.n_inputs / 32 * code_bytes(layout_);
    const uint8_t* p = of_codes + b * factor_bytes(layout_);
    const uint8_t* super = of_codes + w_.n_inputs / 32 * factor_bytes(layout_) + b / 8 * super_bytes(layout_);
    const float of_super = layout_.factors == cpu::Factors::kByte || layout_.factors == cpu::Factors::kNibble
                               ? half_at(super + (which * cpu::kTileOutputs + o) * 2)
                               : 1.0f;
    const int64_t at = (which * n_groups + group % n_groups) * cpu::kTileOutputs + o;
    switch (layout_.factors) {
      case cpu::Factors::kHalf:
        return half_at(p + at * 2);
      case cpu::Factors::kByte:
        return (which == 0 ? of_super : -of_super) * static_cast<float>(static_cast<int8_t>(p[at])) /
               static_cast<float>(layout_.divisor);
      case cpu::Factors::kNibble: {
        const uint8_t both = p[group % n_groups * cpu::kTileOutputs + o];
        return which == 0 ? of_super * static_cast<float>(both & 15) : -of_super * static_cast<float>(both >> 4);
      }
      default:
        return mxfp4_scale(p[at]);
    }
  }

  const Weight& w_;
  const cpu::BlockLayout& layout_;
};

}  // namespace ibid
