// The engine's thread without any memory: still each choice of each request that was taken ends, and once.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "allocation_hook.h"
#include "engine/engine.h"
#include "engine/engine_thread.h"
#include "fake_model.h"

namespace ibid {
namespace {

using testing::PlantedFault;
using testing::Spared;

// Slow enough that its requests are under way for the whole test.
class SlowSparedModel final : public ForwardPass {
 public:
  const ModelFacts& facts() const override { return fake_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    const Spared spared;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    fake_.run(batch, kv, logits, hidden);
  }

 private:
  testing::FakeModel fake_{4096};
};

TEST(EngineThreadFaults, EachChoiceEndsOnceAlsoOutOfMemory) {
  const Spared spared;  // this thread; the engine's is struck
  ThreadTeam team(1);
  Stream stream(team);
  auto model = std::make_unique<SlowSparedModel>();
  EngineOptions options{.step_tokens = 16, .max_sequences = 3};
  options.kv_dtype = DType::kF32;
  options.kv_bytes = 600 * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  auto core = Engine::create(std::move(model), nullptr, stream, options, steady_clock()).value();
  std::mutex mutex;
  std::map<std::pair<RequestId, int32_t>, int> n_ended;
  std::atomic<int> n_told = 0;
  auto thread = std::make_unique<EngineThread>(std::move(core), [&](std::span<Output> outputs, const EngineStats&) {
    const Spared also;
    const std::lock_guard lock(mutex);
    for (const Output& o : outputs) n_ended[{o.request, o.choice}] += o.finished;
    ++n_told;
  });
  std::map<std::pair<RequestId, int32_t>, int> wanted;
  const auto submit = [&](int32_t n) {
    Request r;
    r.id = thread->next_id();
    r.prompt.assign(4, TokenId{3});
    r.n = n;
    r.sampling.ignore_eos = true;
    for (int32_t choice = 0; choice < n; ++choice) wanted[{r.id, choice}] = 1;
    ASSERT_TRUE(thread->submit(std::move(r)).ok());
  };
  const auto wait_for_steps = [&](int n) {
    for (const int end = n_told + n; n_told < end;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  submit(2);
  submit(1);
  wait_for_steps(3);
  PlantedFault fault(0, INT64_MAX / 2);
  for (const int32_t n : {1, 128, 2}) {
    submit(n);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  submit(3);  // may be in the queue when the end comes
  thread = nullptr;
  fault.uproot();
  EXPECT_EQ(n_ended, wanted);
}

}  // namespace
}  // namespace ibid
