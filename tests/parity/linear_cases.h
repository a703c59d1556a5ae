// What the tests of ops::linear share: random weights of every dtype, activations, and outputs between sentinels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "kernels/isa.h"
#include "kernels/ops.h"
#include "kernels/weight.h"
#include "pinned_bits.h"
#include "tensor/block_formats.h"
#include "tensor/half.h"

namespace ibid {

inline constexpr DType kMatrixDTypes[] = {
    DType::kF32,     DType::kF16,   DType::kBF16,  DType::kQ4_0,  DType::kQ4_1,    DType::kQ5_0,   DType::kQ5_1,
    DType::kQ8_0,    DType::kQ2_K,  DType::kQ3_K,  DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,   DType::kIQ4_NL,
    DType::kIQ4_XS,  DType::kMXFP4, DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
    DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0, DType::kTQ2_0, DType::kNVFP4,   DType::kQ1_0,   DType::kQ2_0};

// Row bytes of W[N, K] with all codes and scales of sub-blocks taken from anywhere (or every byte `all`), and scales
// that keep sums finite.
inline std::vector<std::byte> random_weight_bytes(DType dtype, int64_t N, int64_t K, std::mt19937& random,
                                                  std::optional<std::byte> all = {}) {
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<std::byte> bytes(static_cast<size_t>(N * row_bytes(dtype, K)));
  auto put = [&](size_t at, uint16_t half) { std::memcpy(bytes.data() + at, &half, 2); };
  if (dtype == DType::kF32) {
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const float w = normal(random);
      std::memcpy(bytes.data() + i, &w, 4);
    }
    return bytes;
  }
  if (dtype == DType::kF16 || dtype == DType::kBF16) {
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const float w = normal(random);
      put(i, dtype == DType::kF16 ? float_to_half(w) : float_to_bf16(w));
    }
    return bytes;
  }
  for (std::byte& b : bytes) b = all ? *all : static_cast<std::byte>(random());
  const size_t block_bytes = static_cast<size_t>(traits(dtype).block_bytes);
  auto scale_at = [&](size_t block) {
    switch (dtype) {
      case DType::kQ2_K:
        return block + offsetof(BlockQ2_K, scale);
      case DType::kQ3_K:
        return block + offsetof(BlockQ3_K, scale);
      case DType::kQ6_K:
        return block + offsetof(BlockQ6_K, scale);
      case DType::kTQ1_0:
        return block + offsetof(BlockTQ1_0, scale);
      case DType::kTQ2_0:
        return block + offsetof(BlockTQ2_0, scale);
      default:
        return block;
    }
  };
  const bool has_min = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ2_K ||
                       dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  for (size_t block = 0; block < bytes.size(); block += block_bytes) {
    if (dtype == DType::kMXFP4) {
      bytes[block] = static_cast<std::byte>(120 + random() % 8);
      continue;
    }
    if (dtype == DType::kNVFP4) continue;  // any scale is finite
    if (dtype == DType::kIQ1_M) {          // four bits of the scale at the end of each of four words
      const uint16_t half = float_to_half(normal(random));
      for (size_t i = 0; i < 4; ++i) {
        std::byte& high = bytes[block + offsetof(BlockIQ1_M, scales) + 2 * i + 1];
        high = (high & std::byte{15}) | static_cast<std::byte>((half >> (4 * i) & 15) << 4);
      }
      continue;
    }
    put(scale_at(block), float_to_half(normal(random)));
    if (has_min) put(scale_at(block) + 2, float_to_half(normal(random)));
  }
  return bytes;
}

inline std::vector<float> random_activations(int64_t T, int64_t stride, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(T * stride));
  for (float& v : x) v = normal(random) * (random() % 64 == 0 ? 20.0f : 1.0f);
  return x;
}

// out[T, N] inside a larger buffer of sentinels.
struct GuardedOutput {
  static constexpr uint32_t kSentinel = 0x7fc0dead;
  GuardedOutput(int64_t T, int64_t N)
      : stride(N + 7), cells(static_cast<size_t>(T * stride + 64), std::bit_cast<float>(kSentinel)) {
    view = TensorView(cells.data() + 32, DType::kF32, {T, N});
    view.row_stride_bytes = stride * 4;
  }
  bool guards_intact() const {
    for (size_t i = 0; i < cells.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) - 32;
      const bool inside = at >= 0 && at < view.dim[0] * stride && at % stride < view.dim[1];
      if (!inside && std::bit_cast<uint32_t>(cells[i]) != kSentinel) return false;
    }
    return true;
  }
  void note() const { note_bits({reinterpret_cast<const uint32_t*>(cells.data()), cells.size()}); }
  bool same_bits(const GuardedOutput& other) const {  // which are pinned
    other.note();
    return cells.size() == other.cells.size() && std::memcmp(cells.data(), other.cells.data(), cells.size() * 4) == 0;
  }
  int64_t stride;
  std::vector<float> cells;
  TensorView view;
};

inline void run_linear(Stream& s, const TensorView& out, const TensorView& x, const Weight& w) {
  const Weight* weights[] = {&w};
  CHECK(s.reserve_workspace(ops::linear_workspace_bytes(x.dim[0], x.dim[1])).ok());
  ops::linear(s, {&out, 1}, x, weights);
}

}  // namespace ibid
