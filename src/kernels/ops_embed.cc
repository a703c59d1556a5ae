#include <cstring>

#include "kernels/cpu/row_table.h"
#include "kernels/cpu/table.h"
#include "kernels/for_rows.h"
#include "kernels/ops.h"
#include "tensor/dequantise.h"

namespace ibid::ops {

void embed(Stream& s, const TensorView& out, const Weight& table, std::span<const TokenId> tokens, float scale) {
  Dim T, C;
  expect(out, {&T, &C});
  CHECK(out.dtype == DType::kF32);
  CHECK(T.value == static_cast<int64_t>(tokens.size()) && C.value == table.n_inputs && table.raw.data != nullptr);
  for_rows(s, T.value, C.value, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t token = raw(tokens[static_cast<size_t>(t)]);
      CHECK(token >= 0 && token < table.n_outputs);
      dequantise_row(table.dtype, table.raw.row(token), out.row_as<float>(t), C.value);
      if (scale != 1.0f) cpu::table().row->scale(out.row_as<float>(t), scale, C.value);
    }
  });
}

}  // namespace ibid::ops
