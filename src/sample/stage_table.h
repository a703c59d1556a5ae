// The stages of a draw, one row each: its name, when a request enables it, and what it does. The table's order is the
// policy (stage_order.h); the sampler walks it, `ibid inspect --samplers` prints it, traces record it.
// docs/developers/adding_a_stage.md lists what a new row needs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "sample/sampler.h"
#include "sample/stage_order.h"

namespace ibid {

// A stage's input beside the row or the support. Valid during one draw.
struct StageInput {
  const SamplingParams& params;
  const SampleHistory& history;
  const SamplerState& state;
  uint64_t seed = 0;  // of this choice
  int32_t vocab_size = 0;
  std::span<const uint8_t> allowed;            // per token, where params.allowed are not all
  std::span<const TokenId> end_of_generation;  // within the vocabulary
  SamplerScratch& scratch;
};

// A stage changes logits or cuts the support: one of the last two is set, of the draw neither. It reads each token of
// the vocabulary and of the history a bounded number of times.
struct Stage {
  std::string_view name;  // in traces: never changed
  bool (*is_asked)(const SamplingParams& params);
  bool (*acts)(const StageInput& in) = nullptr;  // whether it acts in this draw; null: in every draw
  void (*change_row)(std::span<float> row, const StageInput& in) = nullptr;
  void (*cut_support)(stages::Support& support, const StageInput& in) = nullptr;
};

std::span<const Stage> stage_table();
const Stage& stage(StageId id);

}  // namespace ibid
