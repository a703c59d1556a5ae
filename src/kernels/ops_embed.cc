#include "kernels/cpu/cpu_ops.h"
#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace ibid::ops {

void embed(Stream& s, const TensorView& out, const Weight& table, std::span<const TokenId> tokens, float scale) {
  Dim T, C;
  expect(out, {&T, &C});
  CHECK(out.dtype == DType::kF32);
  CHECK(T.value == static_cast<int64_t>(tokens.size()) && C.value == table.n_inputs && table.raw.data != nullptr);
  on_device(
      s, "embed", [&] { cpu::embed(s, out, table, tokens, scale); }, kSameAsCpu, kNoBody);
}

}  // namespace ibid::ops
