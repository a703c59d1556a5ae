#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/math.h"

namespace ibid::cpu {

void rope_angles(Stream& s, const TensorView& cos_sin, const ops::Rope& rope, std::span<const int32_t> positions) {
  constexpr int kSinCosWeight = 64;
  const bool has_axes = static_cast<int64_t>(positions.size()) > cos_sin.n_rows();
  const int64_t stride = has_axes ? ops::kRopeAxes : 1;
  for_rows(s, cos_sin.n_rows(), cos_sin.row_len(), kSinCosWeight, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* const position = positions.data() + t * stride;
      const double magnitude = rope.magnitude;
      float* out = cos_sin.row_as<float>(t);
      for (int i = 0; i < rope.n_pairs; ++i) {
        const double angle = position[has_axes && rope.axes != nullptr ? rope.axes[i] : 0] * rope.frequency[i];
        out[i] = static_cast<float>(math::cos(angle) * magnitude);
        out[rope.n_pairs + i] = static_cast<float>(math::sin(angle) * magnitude);
      }
    }
  });
}

void rope(Stream& s, const TensorView& x, int head_len, const ops::Rope& rope, const TensorView& cos_sin) {
  const auto row = table().row->rope;
  const int64_t N = x.row_len();
  for_rows(s, x.n_rows(), N, 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      row(x.row_as<float>(t) + rope.first, N / head_len, head_len, rope.n_pairs, rope.interleaved,
          cos_sin.row_as<float>(t));
    }
  });
}

}  // namespace ibid::cpu
