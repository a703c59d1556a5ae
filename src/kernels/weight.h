// Weight: a matrix W[N, K] (N outputs, K inputs) in the layout that ops::linear wants on one device and instruction
// set. Made once at load; immutable. May share the file's mapped bytes or own repacked ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/k_pieces.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid {

struct Weight {
  DType dtype = DType::kF32;
  int64_t n_outputs = 0;               // N
  int64_t n_inputs = 0;                // K
  KPieces pieces;                      // in which K is summed: part of what the weight means
  TensorView raw;                      // the file's own bytes; for embed() and for export
  const std::byte* packed = nullptr;   // what the kernel reads; points into raw or into `owned`
  std::shared_ptr<std::byte[]> owned;  // repacked bytes, null where raw is used as it is
  int64_t owned_bytes = 0;
};

// Whether ops::linear has a product for such a weight on the stream's device; else a sentence that says what would do.
// Whoever reads a file asks before prepare_weight, which CHECKs it.
Status weight_supported(const Stream& s, DType dtype, const KPieces& pieces);

// On the CPU: repacks in parallel on the stream's team. `raw` must outlive the weight. K must be a multiple of the
// dtype's block, and so must the edges of pieces (of 32 where blocks are shorter). Without pieces: one. On another
// device nothing is repacked: `raw` is read as it lies, and lies in that device's memory.
Weight prepare_weight(Stream& s, const TensorView& raw, const KPieces& pieces);
Weight prepare_weight(Stream& s, const TensorView& raw);
// The owned_bytes of such a weight.
int64_t prepared_bytes(const Stream& s, const TensorView& raw);

}  // namespace ibid
