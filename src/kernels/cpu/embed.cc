#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "tensor/dequantise.h"

namespace ibid::cpu {

void embed(Stream& s, const TensorView& out, const Weight& weight, std::span<const TokenId> tokens, float scale) {
  const int64_t C = out.row_len();
  for_rows(s, out.n_rows(), C, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t token = raw(tokens[static_cast<size_t>(t)]);
      CHECK(token >= 0 && token < weight.n_outputs);
      dequantise_row(weight.dtype, weight.raw.row(token), out.row_as<float>(t), C);
      if (scale != 1.0f) table().row->scale(out.row_as<float>(t), scale, C);
    }
  });
}

}  // namespace ibid::cpu
