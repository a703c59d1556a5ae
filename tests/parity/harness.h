// What the parity tests share: buffers between sentinels, seeded numbers, a walk over the instruction sets.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/isa.h"
#include "parity/tolerances.h"
#include "pinned_bits.h"
#include "tensor/tensor.h"

namespace ibid::parity {

// A rank-2 F32 tensor whose rows lie inside a larger buffer: what an op must not touch before, between and after them
// is filled with a sentinel and checked.
class Guarded {
 public:
  static constexpr uint32_t kSentinel = 0x7fa5a5a5;  // a signalling NaN: it poisons any arithmetic that reads it
  static constexpr int64_t kMargin = 19;

  Guarded(int64_t rows, int64_t columns, int64_t gap = 5) : rows_(rows), columns_(columns), stride_(columns + gap) {
    cells_.assign(static_cast<size_t>(2 * kMargin + rows * stride_), kSentinel);
    for (int64_t i = 0; i < rows; ++i) std::memset(row(i), 0, static_cast<size_t>(columns) * sizeof(float));
  }
  float* row(int64_t i) { return reinterpret_cast<float*>(cells_.data() + kMargin + i * stride_); }
  TensorView view() {
    TensorView v(row(0), DType::kF32, {rows_, columns_});
    v.row_stride_bytes = stride_ * static_cast<int64_t>(sizeof(float));
    return v;
  }
  TensorView vector() { return TensorView(row(0), DType::kF32, {columns_}); }
  Guarded& fill(uint64_t seed, float low = -4.0f, float high = 4.0f) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> value(low, high);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) row(i)[j] = value(random);
    }
    return *this;
  }
  Guarded& fill_nan() {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) row(i)[j] = std::nanf("");
    }
    return *this;
  }
  bool untouched_around() const {
    for (size_t k = 0; k < cells_.size(); ++k) {
      const int64_t at = static_cast<int64_t>(k) - kMargin;
      const bool inside = at >= 0 && at / stride_ < rows_ && at % stride_ < columns_;
      if (!inside && cells_[k] != kSentinel) return false;
    }
    return true;
  }
  // All cells, sentinels included: equal buffers are equal to the bit.
  const std::vector<uint32_t>& bits() const { return cells_; }

 private:
  int64_t rows_, columns_, stride_;
  std::vector<uint32_t> cells_;
};

// Empty where both are the same to the bit, else where they first differ. They are pinned.
inline std::string difference(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  note_bits(a);
  if (a.size() != b.size()) return "other sizes";
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    std::ostringstream text;
    text << std::hexfloat << "cell " << i << ": " << std::bit_cast<float>(a[i]) << " and "
         << std::bit_cast<float>(b[i]);
    return text.str();
  }
  return {};
}

inline void expect_near(const TensorView& got, const TensorView& want, Tolerance tolerance) {
  for (int64_t i = 0; i < got.n_rows(); ++i) {
    for (int64_t j = 0; j < got.row_len(); ++j) {
      const double a = got.row_as<float>(i)[j];
      const double b = want.dtype == DType::kF64 ? want.row_as<double>(i)[j] : double{want.row_as<float>(i)[j]};
      if (a == b) continue;  // infinities too
      const double bound = tolerance.absolute + tolerance.relative * std::fabs(b);
      ASSERT_TRUE(std::fabs(a - b) <= bound) << "row " << i << ", column " << j << ": " << a << " against " << b;
    }
  }
}

// Calls body(isa) with each instruction set that this machine runs selected; the best one is selected again after it.
template <typename Body>
void for_each_isa(Body&& body) {
  const Isa before = selected_isa();
  for (Isa isa : supported_isas()) {
    ASSERT_TRUE(select_isa(isa).ok());
    SCOPED_TRACE(std::string("instruction set ") + std::string(isa_name(isa)));
    body(isa);
  }
  ASSERT_TRUE(select_isa(before).ok());
}

}  // namespace ibid::parity
