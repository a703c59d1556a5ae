// ForwardPass: what a worker needs of a model. A real one is in model_pass.h; tests put fakes here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kernels/forward_batch.h"
#include "kernels/kv_layout.h"
#include "kernels/paged_kv.h"
#include "kernels/state_slots.h"
#include "model/pass.h"
#include "tensor/tensor.h"

namespace ibid {

// Of a model that reads a sequence whole, in one step and both ways, and makes no tokens.
struct EncoderFacts {
  int32_t n_layers = 0;  // L
  int32_t n_labels = 0;  // that its head scores, in a row's first columns; 0: it has no head
};

struct ModelFacts {
  std::vector<KvGeometry> layers;  // [L] what each keeps in the cache; of an encoder none
  std::optional<EncoderFacts> encoder;
  // Of the state that its recurrent layers keep of a sequence, all of them together; 0: it has none.
  int64_t state_bytes = 0;
  std::string state_layout;          // names the layout of these bytes where they outlive the process
  int32_t vocab_size = 0;            // V
  int32_t width = 0;                 // C
  int32_t picture_row_len = 0;       // floats of a picture's cell (PictureRows); 0: it takes no pictures
  bool turns_by_axes = false;        // RoPE counts a picture's rows and columns (ForwardBatch::axes)
  bool sees_whole_pictures = false;  // a picture's cells are computed in one step (ForwardBatch::ends)
  int32_t window = 0;                // no layer reads further back than so many positions; 0: some layer reads all
  // Why its keys and values cannot be evicted (model/eviction.h); empty: they can.
  std::string no_eviction;
  int32_t n_experts = 0;  // of a layer's mixture, by whose router n_experts_used each token is sent; 0: it is dense
  int32_t n_experts_used = 0;
  int32_t context_len = 0;  // positions that a sequence may have; fixed at load
  std::string digest;       // of the header and all weights
  std::string rope;         // all that positions depend on
  std::vector<TokenId> end_of_generation;

  int32_t n_layers() const { return encoder ? encoder->n_layers : static_cast<int32_t>(layers.size()); }
};

class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  virtual const ModelFacts& facts() const = 0;
  // Of a model with recurrent layers, once, before any run(): where the states lie that batches speak of.
  virtual void use_states(const StateSlots&) {}
  // Computes the batch: writes its keys and values to kv[L], its states to the slots that it names, the wanted rows to
  // logits[R, V] (R may be 0), and the hidden states that are asked for.
  virtual void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
                   const HiddenStates& hidden) = 0;
};

}  // namespace ibid
