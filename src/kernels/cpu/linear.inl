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
    case PackedFormat::kNibble:
      return product_int8<Format<4, 32, false, false, Codes::kSmallMinus8>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kNibbleMin:
      return product_int8<Format<4, 32, false, true, Codes::kSmall>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kNibbleMinWide:
      return product_int8<Format<4, 32, true, true, Codes::kSmall>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kNibbleTable:
      return product_int8<Format<4, 32, true, false, Codes::kFull, true>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kByte:
      return product_int8<Format<8, 32, false, false, Codes::kFull>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kByteMin:
      return product_int8<Format<8, 32, false, true, Codes::kSmall>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kByteMinWide:
      return product_int8<Format<8, 32, true, true, Codes::kSmall>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kByte16Wide:
      return product_int8<Format<8, 16, true, false, Codes::kFull>>(task, row, row_end, tile, tile_end);
    case PackedFormat::kByteMin16Wide:
      return product_int8<Format<8, 16, true, true, Codes::kSmall>>(task, row, row_end, tile, tile_end);
  }
}

}  // namespace

extern const LinearTable kLinear;
const LinearTable kLinear = {quantise_rows, round_rows, product};

}  // namespace ibid::cpu::IBID_ISA
