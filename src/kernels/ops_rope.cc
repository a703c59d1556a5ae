// Rotary position embedding (Su et al., 2021, section 3.4.2).
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/for_rows.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace ibid::ops {

void rope_angles(Stream& s, const TensorView& cos_sin, const Rope& rope, std::span<const int32_t> positions) {
  Dim T, N;
  expect(cos_sin, {&T, &N});
  CHECK(cos_sin.dtype == DType::kF32);
  CHECK(N.value == 2 * rope.n_pairs && T.value == static_cast<int64_t>(positions.size()));
  if (reference::selected()) return reference::rope_angles(cos_sin, rope, positions);
  constexpr int kSinCosWeight = 64;
  for_rows(s, T.value, N.value, kSinCosWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const double position = positions[static_cast<size_t>(t)];
      const double magnitude = rope.magnitude;
      float* out = cos_sin.row_as<float>(t);
      for (int i = 0; i < rope.n_pairs; ++i) {
        const double angle = position * rope.frequency[i];
        out[i] = static_cast<float>(math::cos(angle) * magnitude);
        out[rope.n_pairs + i] = static_cast<float>(math::sin(angle) * magnitude);
      }
    }
  });
}

void rope(Stream& s, const TensorView& x, int head_len, const Rope& rope, const TensorView& cos_sin) {
  Dim T, N;
  expect(x, {&T, &N});
  CHECK(x.dtype == DType::kF32 && cos_sin.dtype == DType::kF32);
  CHECK(cos_sin.rank == 2 && cos_sin.dim[0] >= T.value && cos_sin.dim[1] == 2 * rope.n_pairs);
  CHECK(head_len > 0 && N.value % head_len == 0 && 2 * rope.n_pairs <= head_len, "a row is a whole number of heads");
  if (reference::selected()) return reference::rope(x, head_len, rope, cos_sin);
  const auto row = cpu::table().row->rope;
  for_rows(s, T.value, N.value, 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      row(x.row_as<float>(t), N.value / head_len, head_len, rope.n_pairs, rope.interleaved, cos_sin.row_as<float>(t));
    }
  });
}

}  // namespace ibid::ops
