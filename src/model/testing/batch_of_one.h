// One sequence whose token i lies in slot i, fed in batches that a test cuts as it likes: any tokens, any rows of
// logits, any hidden states. OneSequence is for those who want every row's logits or none's.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "model/model.h"
#include "model/one_sequence.h"

namespace ibid::testing {

struct StepOutput {
  std::vector<float> logits;               // [R, V]
  std::vector<std::vector<float>> hidden;  // [T, C] for each layer that was asked for
};

class BatchOfOne {
 public:
  BatchOfOne(Model& model, Stream& stream)
      : model_(model),
        stream_(stream),
        memory_(model, stream, {.kv_dtype = DType::kF32}),
        arrays_(memory_.kv()[0].block_len, {}) {
    for (int32_t i = 0; i < memory_.kv()[0].n_blocks; ++i) table_.push_back(BlockId{i});
  }

  // The next tokens; `rows` are indices into them, ascending.
  StepOutput step(std::span<const TokenId> tokens, std::span<const int32_t> rows, std::span<const int32_t> layers) {
    const auto n = static_cast<int32_t>(tokens.size());
    arrays_.clear();
    arrays_.add_run(tokens, n_tokens_, table_);
    for (const int32_t row : rows) arrays_.want(row);
    arrays_.add_blocks(table_);
    for (int32_t i = 0; i < n; ++i) arrays_.add_state_out(i + 1 < n ? -1 : 0);
    arrays_.add_state_in(n_tokens_ == 0 ? -1 : 0);
    arrays_.end_sequence();
    n_tokens_ += n;
    const ForwardBatch batch = arrays_.batch();
    const int64_t V = model_.config().vocab_size, C = model_.config().width;
    StepOutput out;
    out.logits.resize(static_cast<size_t>(std::max<int64_t>(1, batch.n_rows) * V));
    out.hidden.resize(layers.size());
    std::vector<TensorView> views;
    for (std::vector<float>& hidden : out.hidden) {
      hidden.resize(static_cast<size_t>(n * C));
      views.emplace_back(hidden.data(), DType::kF32, std::initializer_list<int64_t>{n, C});
    }
    model_.forward(stream_, batch, memory_.kv(), TensorView(out.logits.data(), DType::kF32, {batch.n_rows, V}),
                   {.layers = layers, .out = views}, memory_.states());
    out.logits.resize(static_cast<size_t>(batch.n_rows * V));
    return out;
  }

 private:
  Model& model_;
  Stream& stream_;
  OneSequence memory_;  // whose blocks are used
  std::vector<BlockId> table_;
  BatchArrays arrays_;
  int32_t n_tokens_ = 0;
};

}  // namespace ibid::testing
