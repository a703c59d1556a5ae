// The body of every instruction set's linear.cc: which kernel reads which format.
#include "kernels/cpu/linear_float.inl"
#include "kernels/cpu/linear_int8.inl"
#include "kernels/cpu/linear_rows.inl"

namespace ibid::cpu::IBID_ISA {
namespace {

void product(const LinearTask& task, int64_t row, int64_t row_end, int64_t tile, int64_t tile_end) {
  switch (task.format) {
    case PackedFormat::kF32:
      return product_packed<StepF32>(task, task.x, task.x_stride, row, row_end, tile, tile_end);
    case PackedFormat::kF16:
      return product_packed<StepF16>(task, task.x, task.x_stride, row, row_end, tile, tile_end);
    case PackedFormat::kBF16:
      return product_bf16(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ4_0:
      return product_int8<PackedFormat::kQ4_0>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ4_1:
      return product_int8<PackedFormat::kQ4_1>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ5_0:
      return product_int8<PackedFormat::kQ5_0>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ5_1:
      return product_int8<PackedFormat::kQ5_1>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ8_0:
      return product_int8<PackedFormat::kQ8_0>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ2_K:
      return product_int8<PackedFormat::kQ2_K>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ3_K:
      return product_int8<PackedFormat::kQ3_K>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ4_K:
      return product_int8<PackedFormat::kQ4_K>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ5_K:
      return product_int8<PackedFormat::kQ5_K>(task, row, row_end, tile, tile_end);
    case PackedFormat::kQ6_K:
      return product_int8<PackedFormat::kQ6_K>(task, row, row_end, tile, tile_end);
    case PackedFormat::kIQ4_NL:
      return product_int8<PackedFormat::kIQ4_NL>(task, row, row_end, tile, tile_end);
    case PackedFormat::kIQ4_XS:
      return product_int8<PackedFormat::kIQ4_XS>(task, row, row_end, tile, tile_end);
    case PackedFormat::kMXFP4:
      return product_int8<PackedFormat::kMXFP4>(task, row, row_end, tile, tile_end);
  }
}

}  // namespace

extern const LinearTable kLinear;
const LinearTable kLinear = {quantise_rows, round_rows, product};

}  // namespace ibid::cpu::IBID_ISA
