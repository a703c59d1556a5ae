#include "engine/step/measure_steps.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "engine/state/sequence.h"
#include "engine/state/step_plan.h"

namespace ibid {
namespace {

constexpr double kEnough = 0.05;  // seconds; a step that is under way then is still finished

struct Size {
  int32_t n_sequences, n_tokens;  // of each
  int32_t n_before;               // that its attention reads too
};
// One after a long sequence, as what a position costs to read differs most between models: beside a token's products it
// is next to nothing in large ones.
constexpr Size kFarDecode = {1, 1, 1023};
constexpr Size kNearDecodes = {kMeasuredBlocks, 1, 15};
// Steps of a shape are timed twice, so that one stall is not taken for the machine's pace.
constexpr std::array<Size, 10> kSizes = {{{1, 1, 15},
                                          {1, 1, 15},
                                          kFarDecode,
                                          kFarDecode,
                                          kNearDecodes,
                                          kNearDecodes,
                                          {1, 32, 0},
                                          {1, 32, 0},
                                          {1, 128, 0},
                                          {1, 128, 0}}};
static_assert(kSizes.size() <= kMostMeasuredSteps);

// Of sequences that no request has made: their tokens are all the vocabulary's first, and they draw nothing.
class Steps {
 public:
  Steps(Worker& worker, const BatchLimits& limits, int32_t n_blocks, const Clock& clock)
      : worker_(worker), limits_(limits), n_blocks_(n_blocks), clock_(clock), builder_(limits) {}

  // No seconds: the engine takes no such step.
  MeasuredStep run(const Size& size) {
    const int32_t len = size.n_before + size.n_tokens, n_each = (len + limits_.block_len - 1) / limits_.block_len;
    const int32_t n_tokens = size.n_sequences * size.n_tokens;
    if (size.n_sequences > limits_.n_sequences || size.n_sequences > limits_.n_rows || n_tokens > limits_.n_tokens ||
        len > limits_.context_len || size.n_sequences * n_each > n_blocks_ ||
        (limits_.keeps_states && size.n_sequences > worker_.states().slots().n_slots))
      return {};
    StepPlan plan;
    std::vector<Sequence> sequences(static_cast<size_t>(size.n_sequences));
    int32_t next_block = 0, next_state = 0;
    for (Sequence& s : sequences) {
      s.request = request_;
      s.tokens.assign(static_cast<size_t>(len), TokenId{0});
      s.prompt_len = len;
      BlockTable blocks;
      for (int32_t i = 0; i < n_each; ++i) blocks.push_back(BlockId{next_block++});
      StateTable states, next_states;
      if (limits_.keeps_states) {
        states = {{size.n_before, StateId{next_state}}};
        next_states = {{len, StateId{next_state++}}};
      }
      s.place = {std::move(blocks), size.n_before, std::move(states), std::move(next_states)};
      plan.add({.sequence = &s, .n_tokens = size.n_tokens, .n_rows = 1});
    }
    list_rows(plan);
    const double begin = clock_.now();
    const ForwardBatch batch = builder_.build(plan);
    worker_.wait(worker_.launch({.batch = &batch}));
    return {.load = plan.load, .seconds = clock_.now() - begin};
  }

 private:
  Worker& worker_;
  const BatchLimits& limits_;
  const int32_t n_blocks_;
  const Clock& clock_;
  BatchBuilder builder_;
  const std::shared_ptr<const Request> request_ = std::make_shared<const Request>();
};

}  // namespace

std::vector<MeasuredStep> measure_steps(Worker& worker, const BatchLimits& limits, int32_t n_blocks,
                                        const Clock& clock) {
  Steps steps(worker, limits, n_blocks, clock);
  const double begin = clock.now();
  // Pages are faulted in: of weights, and of keys that have not been written.
  for (int32_t i = 0; i < std::min(kMeasuredBlocks, n_blocks); ++i) worker.bring(BlockId{i});
  if (steps.run(kFarDecode).seconds <= 0) steps.run(kSizes.front());
  std::vector<MeasuredStep> out;
  for (const Size& size : kSizes) {
    if (!out.empty() && clock.now() - begin > kEnough) break;
    const MeasuredStep step = steps.run(size);
    if (step.seconds > 0) out.push_back(step);
  }
  return out;
}

}  // namespace ibid
