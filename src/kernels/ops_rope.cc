// Rotary position embedding (Su et al., 2021, section 3.4.2).
#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {

void rope_angles(Stream& s, const TensorView& cos_sin, const Rope& rope, std::span<const int32_t> positions) {
  Dim T, N;
  expect(cos_sin, {&T, &N});
  CHECK(cos_sin.dtype == DType::kF32);
  const auto n_positions = static_cast<int64_t>(positions.size());
  CHECK(N.value == 2 * rope.n_pairs && (T.value == n_positions || T.value * kRopeAxes == n_positions));
  on_device(
      s, "rope_angles", [&] { cpu::rope_angles(s, cos_sin, rope, positions); },
      [&] { reference::rope_angles(cos_sin, rope, positions); }, kNoBody);
}

void rope(Stream& s, const TensorView& x, int head_len, const Rope& rope, const TensorView& cos_sin) {
  Dim T, N;
  expect(x, {&T, &N});
  CHECK(x.dtype == DType::kF32 && cos_sin.dtype == DType::kF32);
  CHECK(cos_sin.rank == 2 && cos_sin.dim[0] >= T.value && cos_sin.dim[1] == 2 * rope.n_pairs);
  CHECK(head_len > 0 && N.value % head_len == 0, "a row is a whole number of heads");
  CHECK(rope.first >= 0 && rope.first + 2 * rope.n_pairs <= head_len, "what turns is of the head");
  on_device(
      s, "rope", [&] { cpu::rope(s, x, head_len, rope, cos_sin); },
      [&] { reference::rope(x, head_len, rope, cos_sin); }, kNoBody);
}

}  // namespace ibid::ops
