// Products of BF16, by an instruction of their own; all others are those of avx512_vnni, which take minutes to compile.
#define IBID_ISA avx512_bf16
#include "kernels/cpu/linear_float.inl"
#include "kernels/cpu/linear_rows.inl"

namespace ibid::cpu::avx512_vnni {
extern const LinearTable kLinear;
}

namespace ibid::cpu::avx512_bf16 {
namespace {
void product(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  if (task.dtype == DType::kBF16) return product_bf16(task, row, row_end, tile, tile_end);
  avx512_vnni::kLinear.product(task, row, row_end, tile, tile_end);
}
}  // namespace

extern const LinearTable kLinear;
const LinearTable kLinear = {quantise_rows, round_rows, product};

}  // namespace ibid::cpu::avx512_bf16
