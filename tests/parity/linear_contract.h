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

// One row of activations, quantised as the contract says (no tiny and no infinite ones here).
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
  explicit Contract(const Weight& w) : w_(w), format_(packed_format(w.dtype)) {
    using F = cpu::PackedFormat;
    bits_ =
        format_ == F::kNibble || format_ == F::kNibbleMin || format_ == F::kNibbleMinWide || format_ == F::kNibbleTable
            ? 4
            : 8;
    group_ = format_ == F::kByte16Wide || format_ == F::kByteMin16Wide ? 16 : 32;
    is_wide_ = format_ == F::kNibbleMinWide || format_ == F::kNibbleTable || format_ == F::kByteMinWide || group_ == 16;
    has_min_ = format_ == F::kNibbleMin || format_ == F::kNibbleMinWide || format_ == F::kByteMin ||
               format_ == F::kByteMinWide || format_ == F::kByteMin16Wide;
  }

  float output(const ContractRow& x, int64_t n) const { return tree(x, n, 0, w_.pieces.n); }
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
    for (int64_t g = k / group_; g < k_end / group_; ++g) {
      int32_t dot = 0, sum = 0;
      for (int64_t i = g * group_; i < (g + 1) * group_; ++i) {
        dot += code(n, i) * x.codes[static_cast<size_t>(i)];
        sum += x.codes[static_cast<size_t>(i)];
      }
      const float x_scale = x.scales[static_cast<size_t>(g * group_ / 32)];
      acc = std::fma(static_cast<float>(dot), factor(n, g, 0) * x_scale, acc);
      if (has_min_) acc = std::fma(factor(n, g, 1), x_scale * static_cast<float>(sum), acc);
    }
    return acc;
  }
  const std::byte* tile(int64_t n) const {
    return w_.packed + n / cpu::kTileOutputs * packed_tile_bytes(format_, w_.n_inputs);
  }
  int32_t code(int64_t n, int64_t k) const {
    using F = cpu::PackedFormat;
    const auto* codes = reinterpret_cast<const uint8_t*>(tile(n));
    const int64_t o = n % cpu::kTileOutputs;
    if (bits_ == 8) {
      const int32_t c = codes[(k / 4 * cpu::kTileOutputs + o) * 4 + k % 4];
      return has_min_ ? c : c - 128;
    }
    const int64_t in_block = k % 32;
    const int32_t both = codes[((k / 32 * 4 + in_block / 4 % 4) * cpu::kTileOutputs + o) * 4 + k % 4];
    const int32_t c = in_block < 16 ? both & 15 : both >> 4;
    return format_ == F::kNibbleTable ? code_table(w_.dtype)[c] - 128 : format_ == F::kNibble ? c - 8 : c;
  }
  float factor(int64_t n, int64_t group, int which) const {
    const int64_t bytes = is_wide_ ? 4 : 2, n_groups = w_.n_inputs / group_;
    const std::byte* at = tile(n) + w_.n_inputs * cpu::kTileOutputs * bits_ / 8 +
                          ((which * n_groups + group) * cpu::kTileOutputs + n % cpu::kTileOutputs) * bytes;
    if (!is_wide_) {
      uint16_t half;
      std::memcpy(&half, at, 2);
      return half_to_float(half);
    }
    float f;
    std::memcpy(&f, at, 4);
    return f;
  }

  const Weight& w_;
  cpu::PackedFormat format_;
  int64_t bits_ = 8, group_ = 32;
  bool is_wide_ = false, has_min_ = false;
};

}  // namespace ibid
