#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "engine/engine.h"
#include "fake_model.h"

namespace ibid {
namespace {

// The fake model with a gate: a step lasts until the test opens the gate.
class GatedModel final : public ForwardPass {
 public:
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    is_inside = true;
    is_inside.notify_all();
    is_shut.wait(true);
    model_.run(batch, kv, logits, hidden);
  }
  std::atomic<bool> is_shut{false}, is_inside{false};

 private:
  testing::FakeModel model_{64};
};

struct Service {
  explicit Service(int32_t max_waiting = 100,
                   std::unique_ptr<ForwardPass> fake = std::make_unique<testing::FakeModel>(64)) {
    EngineOptions options{.step_tokens = 16, .max_sequences = 4, .max_waiting = max_waiting};
    options.kv_dtype = DType::kF32;
    options.kv_bytes = 32 * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
    auto core = Engine::create(std::move(fake), nullptr, stream, options, steady_clock()).value();
    thread =
        std::make_unique<EngineThread>(std::move(core), [this](std::span<Output> outputs, const EngineStats& stats) {
          const std::lock_guard lock(mutex);
          if (stats.n_steps > 0) steps_told.insert(stats.n_steps);
          for (const Output& o : outputs) {
            n_tokens[o.request] += o.tokens.size();
            if (o.finished) ++n_ended[o.request], reasons[o.request] = o.reason;
          }
          changed.notify_all();
        });
  }
  Request request(int32_t max_tokens) {
    Request r;
    r.id = thread->next_id();
    r.prompt = {TokenId{1}, TokenId{2}, TokenId{static_cast<int32_t>(3 + raw(r.id) % 50)}};
    r.max_tokens = max_tokens;
    r.sampling.ignore_eos = true;
    return r;
  }
  bool wait_for(auto&& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), condition);
  }

  ThreadTeam team{1};
  Stream stream{team};
  std::mutex mutex;
  std::condition_variable changed;
  std::map<RequestId, size_t> n_tokens;
  std::map<RequestId, int> n_ended;
  std::map<RequestId, FinishReason> reasons;
  std::set<int64_t> steps_told;
  std::unique_ptr<EngineThread> thread;
};

TEST(EngineThread, RequestsFromManyThreadsAllEndOnce) {
  Service s;
  std::vector<std::thread> clients;
  std::atomic<int> n_taken{0};
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 20; ++i) n_taken += s.thread->submit(s.request(5)).ok();
    });
  }
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(n_taken, 80);
  ASSERT_TRUE(s.wait_for([&] { return s.n_ended.size() == 80; }));
  for (const auto& [id, n] : s.n_ended) EXPECT_EQ(n, 1);
  for (const auto& [id, n] : s.n_tokens) EXPECT_EQ(n, 5u);
}

// A piece of a prompt yields no token, but is still reported.
TEST(EngineThread, ReportsEveryStep) {
  Service s;
  Request r = s.request(3);
  r.prompt.assign(50, TokenId{5});  // of 16 tokens each step
  const RequestId id = r.id;
  ASSERT_TRUE(s.thread->submit(std::move(r)).ok());
  ASSERT_TRUE(s.wait_for([&] { return s.n_ended.contains(id) && s.steps_told.size() == 6; }));
  EXPECT_EQ(s.steps_told, (std::set<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(EngineThread, AWrongRequestIsRefusedAtTheDoor) {
  Service s;
  Request r = s.request(5);
  r.prompt.clear();
  const Status status = s.thread->submit(std::move(r));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().where, "prompt");
}

TEST(EngineThread, AFullQueueRefusesAndTakesAgainLater) {
  Service s(3);
  int n_taken = 0, n_refused = 0;
  for (int i = 0; i < 400; ++i) {
    const Status status = s.thread->submit(s.request(60));
    n_taken += status.ok();
    if (status) continue;
    ++n_refused;
    EXPECT_EQ(status.error().kind, ErrorKind::kExhausted);
  }
  EXPECT_GT(n_refused, 0);
  ASSERT_TRUE(s.wait_for([&] { return static_cast<int>(s.n_ended.size()) >= n_taken; }));
  EXPECT_TRUE(s.thread->submit(s.request(1)).ok());
}

TEST(EngineThread, ABurstDuringAStepFillsThePlacesAndTheQueueAndNoMore) {
  auto model = std::make_unique<GatedModel>();
  GatedModel& gate = *model;
  gate.is_shut = true;
  Service s(3, std::move(model));
  int n_taken = s.thread->submit(s.request(5)).ok();
  gate.is_inside.wait(false);  // the queue is empty, the step runs, and nothing is counted yet
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(s.thread->is_full(), n_taken == 7) << "four that run and three that wait";
    n_taken += s.thread->submit(s.request(5)).ok();
  }
  EXPECT_EQ(n_taken, 7);
  gate.is_shut = false;
  gate.is_shut.notify_all();
  ASSERT_TRUE(s.wait_for([&] { return s.n_ended.size() == 7; }));
  for (const auto& [id, reason] : s.reasons) EXPECT_EQ(reason, FinishReason::kLength) << "nobody is refused later";
  EXPECT_FALSE(s.thread->is_full());
}

// A search has one sequence per beam, even if it reports fewer.
TEST(EngineThread, ABurstOfSearchesIsCountedByItsBeams) {
  auto model = std::make_unique<GatedModel>();
  GatedModel& gate = *model;
  gate.is_shut = true;
  Service s(4, std::move(model));
  EXPECT_TRUE(s.thread->submit(s.request(5)).ok());
  gate.is_inside.wait(false);
  size_t n_taken = 1;
  for (int i = 0; i < 20; ++i) {
    Request r = s.request(5);
    r.search = {.kind = SearchKind::kBeam, .width = 3};
    n_taken += s.thread->submit(std::move(r)).ok();
  }
  EXPECT_EQ(n_taken, 3u) << "one and twice three, of four that run and four that wait";
  gate.is_shut = false;
  gate.is_shut.notify_all();
  ASSERT_TRUE(s.wait_for([&] { return s.n_ended.size() == n_taken; }));
  for (const auto& [id, reason] : s.reasons) EXPECT_NE(reason, FinishReason::kError) << "nobody is refused later";
}

TEST(EngineThread, ACancelledRequestEndsSoon) {
  Service s;
  const Request r = s.request(-1);
  const RequestId id = r.id;
  ASSERT_TRUE(s.thread->submit(r).ok());
  s.thread->cancel(id);
  ASSERT_TRUE(s.wait_for([&] { return s.n_ended.contains(id); }));
}

TEST(EngineThread, ItsEndCancelsWhatRunsAndWaits) {
  Service s;
  std::vector<RequestId> ids;
  for (int i = 0; i < 12; ++i) {
    Request r = s.request(-1);
    ids.push_back(r.id);
    ASSERT_TRUE(s.thread->submit(std::move(r)).ok());
  }
  s.thread.reset();
  for (const RequestId id : ids) EXPECT_EQ(s.n_ended[id], 1);
}

TEST(EngineThread, TheHeartBeatsWhenNothingIsToDo) {
  Service s;
  const double before = s.thread->heartbeat();
  while (s.thread->heartbeat() <= before) std::this_thread::yield();  // without a beat the suite's own limit ends it
  EXPECT_EQ(s.thread->stats().n_running, 0);
}

}  // namespace
}  // namespace ibid
