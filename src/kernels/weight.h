// Weight: a matrix W[N, K] (N outputs, K inputs) in the layout that ops::linear needs on one device. Made once at load,
// or mapped from a file that keeps what an earlier load made (model/packed_file.h); immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/k_pieces.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid {

struct Weight {
  DType dtype = DType::kF32;
  int64_t n_outputs = 0;               // N
  int64_t n_inputs = 0;                // K
  float out_scale = 1.0f;              // of each output, after its sum (GGUF's NAME.scale); embed() does not read it
  KPieces pieces;                      // in which K is summed: part of what the weight means
  TensorView raw;                      // the file's own bytes, for embed() and the reference; or a copy's, which may be
                                       // gone where `packed` is not (data null)
  const std::byte* packed = nullptr;   // what the CPU's kernels read; in `owned`, or in memory of another's
  std::shared_ptr<std::byte[]> owned;  // null: another's, or nothing is packed; small weights' memory is shared
  int64_t packed_bytes = 0;            // 0: raw is read as it lies
};

// Whether ops::linear has a product for such a weight on the stream's device; else a sentence for the user. A loader
// asks before prepare_weight, which CHECKs it.
Status weight_supported(const Stream& s, DType dtype);

// On the CPU: repacks in parallel on the stream's team. `raw` must outlive the weight. K must be a multiple of the
// dtype's block, and so must the edges of pieces (of 32 where blocks are shorter). Without pieces: one. On another
// device nothing is repacked: `raw` is read as it lies, and lies in that device's memory.
Weight prepare_weight(Stream& s, const TensorView& raw, const KPieces& pieces);
Weight prepare_weight(Stream& s, const TensorView& raw);
// The packed_bytes of such a weight: of `raw`'s type and shape alone, and the same for all instruction sets.
int64_t prepared_bytes(const Stream& s, const TensorView& raw);
// The same of packed bytes that an earlier prepare_weight made of `raw`: prepared_bytes of them, 64-byte aligned, which
// outlive the weight.
Weight weight_of_packed(const Stream& s, const TensorView& raw, const KPieces& pieces,
                        std::span<const std::byte> packed);
// The E matrices [N, K] of raw[E, N, K], packed one after the other in memory that they share; each is a weight like
// any other. prepared_bytes(raw) are those of all of them.
std::vector<Weight> prepare_weights(Stream& s, const TensorView& raw, const KPieces& pieces);
std::vector<Weight> weights_of_packed(const Stream& s, const TensorView& raw, const KPieces& pieces,
                                      std::span<const std::byte> packed);
// Tile `tile` of the packed form of raw[N, K], or of raw[E, N, K] counted through its matrices (kernels/linear.h).
void pack_tile(const TensorView& raw, int64_t tile, std::byte* to);

}  // namespace ibid
