// Linear: one product of a forward pass and all that belongs to it: the weight, its bias, the part of it that this
// process holds, and a seat for an adapter. A pass applies products that share an input in one call.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/forward_batch.h"
#include "kernels/weight.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid {

// What the rows of an activation stand for: row i is token tokens[i] of the batch. All T of them, or after the last
// layer's attention those whose logits are wanted.
struct StepRows {
  const ForwardBatch* batch = nullptr;
  std::span<const int32_t> tokens;  // ascending
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

// What sits in a Linear's seat and adds to its output: LoRA will be one. Immutable while a pass runs, allocates
// nothing; what it adds to a row is a function of that row and of the token it stands for.
class Adapter {
 public:
  virtual ~Adapter() = default;
  // out[rows, N] += the adapter's term of x[rows, K].
  virtual void add(Stream& s, const StepRows& rows, const TensorView& out, const TensorView& x) const = 0;
};

struct Linear {
  Weight weight;                     // W[N, K]
  TensorView bias;                   // [N] F32; rank 0: none
  const Adapter* adapter = nullptr;  // not owned, outlives the passes; null: none
  Slice slice;
};

inline constexpr size_t kMaxLinears = 8;  // of one call

// out[j][rows, N_j] = x[rows, K] W_j^T for each j in one ops::linear, so that x is quantised once; then bias j is
// added, then what adapter j adds. The bits of out[j] do not depend on the other products of the call.
void linear(Stream& s, const StepRows& rows, std::span<const TensorView> out, const TensorView& x,
            std::span<const Linear* const> linears);

}  // namespace ibid
