// OneSequence: one growing list of tokens over blocks of its own, the simplest user of a Model. For scoring a text, for
// comparing with other engines and for tests; requests go through engine/.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/batch_arrays.h"
#include "model/model.h"
#include "tensor/stream.h"

namespace ibid {

struct OneSequenceOptions {
  KvTypes kv_dtype;
  int32_t block_len = 16;
  int64_t capacity = 0;    // tokens; 0: the model's context
  int32_t adapter = -1;    // its slot in the model's table; -1: none
  bool backwards = false;  // hands out physical blocks from the last to the first
};

class OneSequence {
 public:
  // Called with rows of log-probabilities or logits, [R, V], of positions first, first + 1, ...
  using OnRows = std::function<void(int64_t first, const TensorView& rows)>;

  // model and stream outlive it.
  OneSequence(Model& model, Stream& stream, const OneSequenceOptions& options);

  // Computes `tokens` after those already there, in steps of at most `max_step` tokens (0: what the model allows), and
  // gives the logits of every one. CHECKs that they fit; without on_rows no logits are computed.
  void append(std::span<const TokenId> tokens, const OnRows& on_rows, int64_t max_step = 0);

  int64_t n_tokens() const { return n_tokens_; }
  int64_t kv_bytes() const { return static_cast<int64_t>(memory_.size()); }
  const std::vector<PagedKv>& kv() const { return kv_; }
  // The state after all tokens, the one slot of these; without recurrent layers none.
  StateSlots states() { return {state_.data(), model_.state_layout().slot_bytes(), state_.empty() ? 0 : 1}; }
  // Forgets what lies after the first n tokens; of a model with recurrent layers all or none of it.
  void truncate(int64_t n);

 private:
  Model& model_;
  Stream& stream_;
  OneSequenceOptions options_;
  int64_t n_tokens_ = 0;
  std::vector<std::byte> memory_;
  std::vector<PagedKv> kv_;
  std::vector<std::byte> state_;  // of a model with recurrent layers, after all tokens
  std::vector<BlockId> table_;
  std::vector<float> logits_;
  BatchArrays arrays_;
};

}  // namespace ibid
