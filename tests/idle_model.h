// IdleModel: computes nothing, so that what is left is the engine's own. Each answer is the token 1 for ever.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "worker/forward_pass.h"

namespace ibid::testing {

class IdleModel final : public ForwardPass {
 public:
  static constexpr int32_t kVocabSize = 8;
  // Notes on `clock` how long it ran.
  IdleModel(int32_t context_len, const Clock& clock, int32_t vocab_size = kVocabSize) : clock_(clock) {
    facts_ = {.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8}},
              .vocab_size = vocab_size,
              .context_len = context_len,
              .digest = "idle",
              .rope = "none"};
  }
  const ModelFacts& facts() const override { return facts_; }
  void run(const ForwardBatch& b, std::span<const PagedKv>, const TensorView& logits, const HiddenStates&) override {
    const double begin = clock_.now();
    for (int32_t row = 0; row < b.n_rows; ++row) {
      const std::span<float> out = {logits.row_as<float>(row), static_cast<size_t>(facts_.vocab_size)};
      std::ranges::fill(out, 0.0f);
      out[1] = 1;
    }
    seconds_ = clock_.now() - begin;
  }
  double seconds() const { return seconds_; }  // of the last step

 private:
  const Clock& clock_;
  ModelFacts facts_;
  double seconds_ = 0;
};

}  // namespace ibid::testing
