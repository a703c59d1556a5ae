// Linear: one product of a forward pass and all that belongs to it: the weight, its bias, the part of it that this
// process holds, and the seat where adapters add. A pass applies products that share an input in one call.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/forward_batch.h"
#include "kernels/weight.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid {

class AdapterTable;  // model/adapters.h

// What the rows of an activation stand for: row i is token tokens[i] of the batch. All T of them, or after the last
// layer's attention those whose logits are wanted.
struct StepRows {
  const ForwardBatch* batch = nullptr;
  std::span<const int32_t> tokens;   // ascending
  AdapterTable* adapters = nullptr;  // of a step whose batch names some
};

// Along what tensor parallelism cuts a weight: its outputs (q, k, v, gate, up), or its inputs (the output and down
// projections, summed in pieces of K: kernels/k_pieces.h).
enum class Cut : uint8_t { kNone, kOutputs, kInputs };

// The part of W[N, K] that this process holds: the `rank`th of `n_ranks` along `cut`. Whole today: linear() CHECKs it,
// as no collective adds the sums of ranks yet.
struct Slice {
  Cut cut = Cut::kNone;
  int32_t rank = 0;
  int32_t n_ranks = 1;
};

inline constexpr int32_t kNoSeat = -1;

struct Linear {
  Weight weight;           // W[N, K]
  TensorView bias;         // [N] F32; rank 0: none
  int32_t seat = kNoSeat;  // by which adapters name it (model/adapters.h); kNoSeat: none can
  Slice slice;
  float scale = 1.0f;  // of the output, bias and adapter included
};

inline constexpr size_t kMaxLinears = 8;  // of one call

// out[j][rows, N_j] = x[rows, K] W_j^T for each j in one ops::linear, so that x is quantised once; then bias j is
// added, then what the rows' adapters add there, and the sum is multiplied by scale j. The bits of out[j] do not depend
// on the other products of the call.
void linear(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
            std::span<const Linear* const> linears);

}  // namespace ibid
