// ModelPass: a real model as a worker sees it.
#pragma once

#include <span>
#include <string>

#include "model/model.h"
#include "tensor/stream.h"
#include "worker/forward_pass.h"

namespace ibid {

class ModelPass final : public ForwardPass {
 public:
  // Both outlive this. `digest` names the weights; empty where nothing outlives the process.
  ModelPass(Model& model, Stream& stream, std::span<const TokenId> end_of_generation, std::string digest);
  const ModelFacts& facts() const override { return facts_; }
  void use_states(const StateSlots& slots) override { states_ = slots; }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    model_.forward(stream_, batch, kv, logits, hidden, states_);
  }

 private:
  Model& model_;
  Stream& stream_;
  ModelFacts facts_;
  StateSlots states_;
};

}  // namespace ibid
