// TensorView: a shape, a dtype and a pointer; never owns. Dimensions run from the outermost to the innermost one
// (x[T, C]: C is contiguous), which is the reverse of ggml's order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"

namespace ibid {

struct TensorView {
  static constexpr int kMaxRank = 4;

  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> dim = {1, 1, 1, 1};  // outermost first
  int64_t row_stride_bytes = 0;  // bytes from one innermost row to the next; rows may be slices of wider ones

  TensorView() = default;
  // A contiguous tensor.
  TensorView(void* bytes, DType type, std::initializer_list<int64_t> dims)
      : data(static_cast<std::byte*>(bytes)), dtype(type), rank(static_cast<int>(dims.size())) {
    CHECK(rank >= 1 && rank <= kMaxRank);
    int i = 0;
    for (int64_t d : dims) dim[static_cast<size_t>(i++)] = d;
    row_stride_bytes = row_bytes(dtype, row_len());
  }

  int64_t row_len() const { return rank == 0 ? 0 : dim[static_cast<size_t>(rank - 1)]; }
  int64_t n_rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= dim[static_cast<size_t>(i)];
    return n;
  }
  int64_t n_elements() const { return n_rows() * row_len(); }
  bool is_contiguous() const { return row_stride_bytes == row_bytes(dtype, row_len()); }
  std::byte* row(int64_t i) const { return data + i * row_stride_bytes; }

  template <typename T>
  T* row_as(int64_t i) const {
    return reinterpret_cast<T*>(row(i));
  }
  // The first n rows of a rank-2 view: scratch tensors are sized for the largest step and cut to this one's.
  TensorView first_rows(int64_t n) const {
    CHECK(rank == 2 && n <= dim[0]);
    TensorView v = *this;
    v.dim[0] = n;
    return v;
  }
  // Matrix i of a contiguous rank-3 view.
  TensorView matrix(int64_t i) const {
    CHECK(rank == 3 && i >= 0 && i < dim[0]);
    TensorView v = *this;
    v.rank = 2;
    v.dim = {dim[1], dim[2], 1, 1};
    v.data += i * dim[1] * row_stride_bytes;
    return v;
  }
  // Columns [begin, begin + len) of a rank-2 view of a plain dtype (q, k, v inside a fused qkv).
  TensorView columns(int64_t begin, int64_t len) const {
    CHECK(rank == 2 && !is_quantised(dtype) && begin + len <= dim[1]);
    TensorView v = *this;
    v.data += begin * traits(dtype).block_bytes;
    v.dim[1] = len;
    return v;
  }
};

// Dim names a length, so that shapes are checked by naming them: Dim T, C; expect(x, {&T, &C}); expect(w, {&C});
struct Dim {
  int64_t value = -1;
};
inline void expect(const TensorView& x, std::initializer_list<Dim*> dims) {
  CHECK(x.rank == static_cast<int>(dims.size()), "a tensor of another rank was expected");
  size_t i = 0;
  for (Dim* d : dims) {
    if (d->value < 0) d->value = x.dim[i];
    CHECK(d->value == x.dim[i], "shapes disagree");
    ++i;
  }
}

}  // namespace ibid
