// What KV events cost the engine's thread: allocations, counted while steps of 64 decoding sequences run with events
// and without. Encoding and sending are another thread's. The counter is encode_test.cc's program's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "allocation_hook.h"
#include "engine/engine.h"
#include "idle_model.h"
#include "server/observe/kv_events.h"

namespace ibid {
namespace {

thread_local bool counting = false;
thread_local int64_t n_allocations = 0;

class Steps {
 public:
  static constexpr int32_t kSequences = 64, kBlockLen = 16, kContext = 4096;

  // `distance` between the sequences' places in their blocks.
  explicit Steps(int32_t distance) {
    auto model = std::make_unique<testing::IdleModel>(kContext, steady_clock());
    EngineOptions options;
    options.block_len = kBlockLen;
    options.step_tokens = 8192;
    options.max_sequences = kSequences;
    options.kv_bytes = 20'000 * KvStore::block_bytes(model->facts(), options.kv_dtype, kBlockLen);
    engine_ = Engine::create(std::move(model), nullptr, stream_, options, steady_clock()).value();
    for (int32_t i = 0; i < kSequences; ++i) {
      Request r;
      r.id = RequestId{static_cast<uint64_t>(i) + 1};
      r.prompt.assign(static_cast<size_t>(33 + i % kBlockLen * distance % kBlockLen), TokenId{2});
      for (int32_t bit = 0; bit < 6; ++bit) r.prompt[static_cast<size_t>(bit)] = TokenId{2 + (i >> bit & 1)};
      r.sampling.temperature = 0;
      r.max_tokens = kContext;
      EXPECT_TRUE(engine_->submit(*engine_->admit(std::move(r))).ok());
    }
  }
  Engine& engine() { return *engine_; }
  // Of so many steps, each.
  std::vector<int64_t> run(int n_steps) {
    std::vector<int64_t> out;
    for (int i = 0; i < n_steps; ++i) {
      outputs_.clear();
      n_allocations = 0;
      counting = true;
      engine_->step(outputs_);
      counting = false;
      out.push_back(n_allocations);
    }
    return out;
  }

 private:
  ThreadTeam team_{1};
  Stream stream_{team_};
  std::unique_ptr<Engine> engine_;
  std::vector<Output> outputs_;
};

class KvEventAllocations : public ::testing::Test {
 protected:
  KvEventAllocations() : before_(testing::may_allocate) {
    testing::may_allocate = []() noexcept {
      n_allocations += counting;
      return true;
    };
  }
  ~KvEventAllocations() override { testing::may_allocate = before_; }
  std::unique_ptr<KvEvents> open() {
    Result<std::unique_ptr<KvEvents>> events = KvEvents::open({.endpoint = "inproc://allocations"}, Steps::kBlockLen);
    return events ? *std::move(events) : nullptr;
  }

 private:
  bool (*before_)() noexcept;
};

TEST_F(KvEventAllocations, AreThreeABlockAndNoneOfAStepThatCompletesNone) {
  if (dlopen("libzmq.so.5", RTLD_NOW) == nullptr) GTEST_SKIP() << "libzmq5 is not installed";
  constexpr int kSteps = 320;
  for (const int32_t distance : {1, 0}) {  // four blocks are completed in each step, or 64 in each sixteenth
    std::unique_ptr<KvEvents> events = open();
    ASSERT_NE(events, nullptr);
    Steps with(distance), without(distance);
    with.engine().observe_cache(*events);
    with.run(48), without.run(48);
    const std::vector<int64_t> n_with = with.run(kSteps), n_without = without.run(kSteps);
    int64_t n_more = 0, n_quiet = 0;
    for (int i = 0; i < kSteps; ++i) {
      const int64_t more = n_with[static_cast<size_t>(i)] - n_without[static_cast<size_t>(i)];
      n_more += more;
      n_quiet += more == 0;
    }
    const int64_t n_blocks = int64_t{kSteps} * Steps::kSequences / Steps::kBlockLen;
    RecordProperty(distance > 0 ? "spread" : "together", std::to_string(n_more));
    EXPECT_LE(n_more, 3 * n_blocks);
    EXPECT_GE(n_more, 2 * n_blocks) << "each block's tokens and hash are kept";
    EXPECT_GE(n_quiet, distance > 0 ? 0 : kSteps - kSteps / Steps::kBlockLen);
  }
}

}  // namespace
}  // namespace ibid
