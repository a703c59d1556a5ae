// The body of every instruction set's linear.cc: which kernel reads which format.
#include "kernels/cpu/linear_float.inl"
#include "kernels/cpu/linear_int8.inl"
#include "kernels/cpu/linear_rows.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

void product(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  switch (task.dtype) {
    case DType::kF32:
      return product_packed<StepF32>(task, task.x, task.x_stride, row, row_end, tile, tile_end);
    case DType::kF16:
      return product_packed<StepF16>(task, task.x, task.x_stride, row, row_end, tile, tile_end);
    case DType::kBF16:
      return product_bf16(task, row, row_end, tile, tile_end);
    case DType::kQ4_0:
      return product_int8<DType::kQ4_0>(task, row, row_end, tile, tile_end);
    case DType::kQ4_1:
      return product_int8<DType::kQ4_1>(task, row, row_end, tile, tile_end);
    case DType::kQ5_0:
      return product_int8<DType::kQ5_0>(task, row, row_end, tile, tile_end);
    case DType::kQ5_1:
      return product_int8<DType::kQ5_1>(task, row, row_end, tile, tile_end);
    case DType::kQ8_0:
      return product_int8<DType::kQ8_0>(task, row, row_end, tile, tile_end);
    case DType::kQ2_K:
      return product_int8<DType::kQ2_K>(task, row, row_end, tile, tile_end);
    case DType::kQ3_K:
      return product_int8<DType::kQ3_K>(task, row, row_end, tile, tile_end);
    case DType::kQ4_K:
      return product_int8<DType::kQ4_K>(task, row, row_end, tile, tile_end);
    case DType::kQ5_K:
      return product_int8<DType::kQ5_K>(task, row, row_end, tile, tile_end);
    case DType::kQ6_K:
      return product_int8<DType::kQ6_K>(task, row, row_end, tile, tile_end);
    case DType::kIQ4_NL:
      return product_int8<DType::kIQ4_NL>(task, row, row_end, tile, tile_end);
    case DType::kIQ4_XS:
      return product_int8<DType::kIQ4_XS>(task, row, row_end, tile, tile_end);
    case DType::kMXFP4:
      return product_int8<DType::kMXFP4>(task, row, row_end, tile, tile_end);
    case DType::kIQ1_S:
      return product_int8<DType::kIQ1_S>(task, row, row_end, tile, tile_end);
    case DType::kIQ1_M:
      return product_int8<DType::kIQ1_M>(task, row, row_end, tile, tile_end);
    case DType::kIQ2_XXS:
      return product_int8<DType::kIQ2_XXS>(task, row, row_end, tile, tile_end);
    case DType::kIQ2_XS:
      return product_int8<DType::kIQ2_XS>(task, row, row_end, tile, tile_end);
    case DType::kIQ2_S:
      return product_int8<DType::kIQ2_S>(task, row, row_end, tile, tile_end);
    case DType::kIQ3_XXS:
      return product_int8<DType::kIQ3_XXS>(task, row, row_end, tile, tile_end);
    case DType::kIQ3_S:
      return product_int8<DType::kIQ3_S>(task, row, row_end, tile, tile_end);
    case DType::kTQ1_0:
      return product_int8<DType::kTQ1_0>(task, row, row_end, tile, tile_end);
    case DType::kTQ2_0:
      return product_int8<DType::kTQ2_0>(task, row, row_end, tile, tile_end);
    case DType::kNVFP4:
      return product_int8<DType::kNVFP4>(task, row, row_end, tile, tile_end);
    case DType::kQ1_0:
      return product_int8<DType::kQ1_0>(task, row, row_end, tile, tile_end);
    case DType::kQ2_0:
      return product_int8<DType::kQ2_0>(task, row, row_end, tile, tile_end);
    case DType::kI8:  // no weights: block_layout() has refused them
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return;
  }
}

}  // namespace

extern const LinearTable kLinear;
const LinearTable kLinear = {quantise_rows, round_rows, product};

}  // namespace ibid::cpu::IBID_ISA
