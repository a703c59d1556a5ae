// Element access in double for the reference ops.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace ibid::reference {

inline double get(const TensorView& x, int64_t row, int64_t column) {
  CHECK(x.dtype == DType::kF32 || x.dtype == DType::kF64);
  return x.dtype == DType::kF64 ? x.row_as<double>(row)[column] : static_cast<double>(x.row_as<float>(row)[column]);
}
inline void set(const TensorView& x, int64_t row, int64_t column, double value) {
  CHECK(x.dtype == DType::kF32 || x.dtype == DType::kF64);
  if (x.dtype == DType::kF64) {
    x.row_as<double>(row)[column] = value;
  } else {
    x.row_as<float>(row)[column] = static_cast<float>(value);
  }
}

// A double tensor of the shape of x, for what lies between two plain ops.
struct Between {
  std::vector<double> elements;
  TensorView view;
  explicit Between(const TensorView& x)
      : elements(static_cast<size_t>(x.n_elements())), view(elements.data(), DType::kF64, {x.n_rows(), x.row_len()}) {}
};

}  // namespace ibid::reference
