// Snapshots of recurrent states on a disk: a sequence goes on after a restart where one was left, with the bytes that
// it has alone, and nothing on the disk is taken for what it is not.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "engine/engine.h"
#include "engine/schedule/disk_tier.h"
#include "fake_disk.h"
#include "fake_model.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::FakeDisk;
using testing::FakeMedium;
using testing::FakeModel;

constexpr int32_t kContextOfStates = 400;

// The fake with a state that has some bytes more.
class LargerState final : public ForwardPass {
 public:
  LargerState() : facts_(fake_.facts()) { facts_.state_bytes += 8; }
  const ModelFacts& facts() const override { return facts_; }
  void use_states(const StateSlots& slots) override { fake_.use_states(slots); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    fake_.run(batch, kv, logits, hidden);
  }

 private:
  FakeModel fake_{kContextOfStates, 0, 0, true};
  ModelFacts facts_;
};

// One process over a medium, or a folder, that outlives it.
class StatesProcess {
 public:
  struct Sizes {
    int32_t n_states = 16, n_host_states = 0, state_step = 64;
    int64_t disk_bytes = int64_t{1} << 24;
    bool has_larger_state = false;
  };
  StatesProcess(std::shared_ptr<FakeMedium> medium, const Sizes& sizes, const std::string& folder = "") {
    std::unique_ptr<ForwardPass> model;
    if (sizes.has_larger_state) {
      model = std::make_unique<LargerState>();
    } else {
      auto fake = std::make_unique<FakeModel>(kContextOfStates, 0, 0, true);
      fake_ = fake.get();
      model = std::move(fake);
    }
    const ModelFacts& facts = model->facts();
    const int64_t block_bytes = KvStore::block_bytes(facts, DType::kF32, 8);
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = 64, .max_sequences = 4};
    options.kv_bytes = 100 * block_bytes;
    options.states_bytes = sizes.n_states * facts.state_bytes;
    options.host_states_bytes = sizes.n_host_states * facts.state_bytes;
    options.state_step = sizes.state_step;
    options.disk_bytes = sizes.disk_bytes;
    options.disk_folder = folder;
    std::unique_ptr<DurableStore> store;
    if (medium) {
      const BlockFormat format = {.block_len = 8, .payload_bytes = block_bytes, .state_bytes = facts.state_bytes};
      store =
          std::make_unique<FakeDisk>(medium, format, testing::FakeDiskScript{.n_images = 100, .most_per_turn = 100});
    }
    engine =
        Engine::create(std::move(model), nullptr, stream_, options, clock_, PrefixHash(), std::move(store)).value();
  }
  ~StatesProcess() {
    if (fake_ != nullptr) {
      EXPECT_EQ(fake_->faults(), std::vector<std::string>());
    }
  }
  static Request request(int32_t prompt_len, uint64_t text = 1) {
    Request r;
    for (int32_t i = 0; i < prompt_len; ++i)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(text, static_cast<uint64_t>(i)) % 63)});
    r.max_tokens = 3;
    r.sampling.ignore_eos = true;
    return r;
  }
  // Runs it; how many of its prompt's tokens were found. Its answer is the one that it has alone.
  int32_t ask(Request r) {
    r.id = RequestId{next_id_++};
    EXPECT_TRUE(engine->submit(r).ok());
    int32_t n_cached = -1;
    answer.clear();
    for (std::vector<Output> out; engine->step(out); out.clear()) {
      engine->self_check();
      for (const Output& o : out) {
        for (const TokenRecord& t : o.tokens) answer.push_back(t.chosen.token);
        if (o.finished) n_cached = o.usage.cached_tokens;
      }
    }
    EXPECT_EQ(answer, testing::expected_answer(r, 0, kContextOfStates).tokens);
    std::vector<Output> out;
    for (int i = 0; i < 50; ++i) engine->step(out);  // until what it wrote is there
    return n_cached;
  }
  DiskStats disk() const { return engine->stats().disk; }

  std::unique_ptr<Engine> engine;
  std::vector<TokenId> answer;

 private:
  ThreadTeam team_{1};
  Stream stream_{team_};
  ManualClock clock_;
  FakeModel* fake_ = nullptr;
  uint64_t next_id_ = 1;
};

struct DiskOfStates {
  std::shared_ptr<FakeMedium> medium = std::make_shared<FakeMedium>();
  StatesProcess::Sizes sizes;
  StatesProcess start() const { return {medium, sizes}; }
  int64_t bytes() const {
    return std::accumulate(medium->files.begin(), medium->files.end(), int64_t{0}, [](int64_t n, const auto& file) {
      return n + static_cast<int64_t>(file.second.image.size());
    });
  }
  // Files that are larger than a block's.
  int64_t n_states() const {
    size_t least = SIZE_MAX;
    for (const auto& [key, file] : medium->files) least = std::min(least, file.image.size());
    return std::ranges::count_if(medium->files, [&](const auto& f) { return f.second.image.size() > least; });
  }
};

TEST(DiskStates, APromptIsFoundAfterARestartToItsLastToken) {
  DiskOfStates disk;
  EXPECT_EQ(disk.start().ask(StatesProcess::request(100)), 0);
  EXPECT_EQ(disk.n_states(), 3);  // after 64 tokens, before the prompt's last one, at the answer's end
  StatesProcess p = disk.start();
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 99);
  EXPECT_EQ(p.disk().n_fetched, 12);
  EXPECT_EQ(p.disk().n_states_fetched, 1);
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 99);  // from memory now
  EXPECT_EQ(p.disk().n_states_fetched, 1);
  EXPECT_EQ(p.ask(StatesProcess::request(100, 2)), 0);
}

TEST(DiskStates, AnAnswerIsFoundAfterARestartByWhatGoesOnAfterIt) {
  DiskOfStates disk;
  Request first = StatesProcess::request(50);
  first.max_tokens = 30;
  Request next = StatesProcess::request(50);
  {
    StatesProcess p = disk.start();
    p.ask(first);
    next.prompt.insert(next.prompt.end(), p.answer.begin(), p.answer.end());
  }
  next.prompt.push_back(TokenId{7});
  EXPECT_EQ(disk.start().ask(next), 79);  // the answer's last token was never computed
}

TEST(DiskStates, APromptThatEndsInAnotherWayIsFoundAtItsLastCommonSnapshot) {
  DiskOfStates disk;
  disk.start().ask(StatesProcess::request(200));
  Request other = StatesProcess::request(200);
  other.prompt[150] = TokenId{63};
  EXPECT_EQ(disk.start().ask(other), 128);
}

TEST(DiskStates, BlocksThatAreInMemoryAreNotReadAgain) {
  DiskOfStates disk;
  disk.sizes.n_states = 3;
  StatesProcess p = disk.start();
  p.ask(StatesProcess::request(100));
  for (uint64_t text = 2; text < 5; ++text) p.ask(StatesProcess::request(20, text));  // its states are gone from memory
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 99);
  EXPECT_EQ(p.disk().n_fetched, 0);
  EXPECT_EQ(p.disk().n_states_fetched, 1);
}

TEST(DiskStates, WithoutItsStateAPromptIsComputedFromTheSnapshotBefore) {
  DiskOfStates disk;
  disk.start().ask(StatesProcess::request(100));
  size_t least = SIZE_MAX;
  for (const auto& [key, file] : disk.medium->files) least = std::min(least, file.image.size());
  for (auto& [key, file] : disk.medium->files) {  // all states but that after 64 tokens are broken
    if (file.image.size() > least && tokens_of_image(file.image).size() != 8) file.image.back() ^= std::byte{1};
  }
  StatesProcess p = disk.start();
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 0);  // it was sought and did not come
  EXPECT_EQ(p.disk().n_corrupt, 1);
  EXPECT_EQ(p.disk().n_abandoned, 1);
  StatesProcess q = disk.start();
  EXPECT_EQ(q.ask(StatesProcess::request(100)), 99);  // the one before has written it again
}

TEST(DiskStates, AnotherTenantFindsNone) {
  DiskOfStates disk;
  Request secret = StatesProcess::request(100);
  secret.cache_salt = "one";
  disk.start().ask(secret);
  Request other = secret;
  other.cache_salt = "two";
  EXPECT_EQ(disk.start().ask(other), 0);
  EXPECT_EQ(disk.start().ask(StatesProcess::request(100)), 0);
  EXPECT_EQ(disk.start().ask(secret), 99);
}

TEST(DiskStates, OneOfAnotherLayoutIsNotFound) {
  DiskOfStates disk;
  disk.start().ask(StatesProcess::request(100));
  disk.sizes.has_larger_state = true;
  StatesProcess p = disk.start();
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 0);
  EXPECT_EQ(p.disk().n_fetches, 0);
}

TEST(DiskStates, CountAmongTheDisksBytes) {
  DiskOfStates disk;
  disk.sizes.disk_bytes = 60'000;
  for (uint64_t text = 1; text < 6; ++text) {
    StatesProcess p = disk.start();
    p.ask(StatesProcess::request(100, text));
    EXPECT_EQ(p.disk().bytes, disk.bytes());
    EXPECT_LE(disk.bytes(), 60'000);
  }
  EXPECT_GT(disk.n_states(), 1);
}

TEST(DiskStates, AreThoseThatThereWasASlotFor) {
  DiskOfStates disk;
  disk.sizes = {.n_states = 2, .n_host_states = 8, .state_step = 16};
  disk.start().ask(StatesProcess::request(100));
  EXPECT_EQ(disk.start().ask(StatesProcess::request(100)), 80);  // those after 96 and 99 tokens had none
}

TEST(DiskStates, ARealFolderDoesTheSame) {
  const TempFolder temp;
  StatesProcess(nullptr, {}, temp.path("cache")).ask(StatesProcess::request(100));
  StatesProcess p(nullptr, {}, temp.path("cache"));
  EXPECT_EQ(p.ask(StatesProcess::request(100)), 99);
  EXPECT_EQ(p.disk().n_states_fetched, 1);
}

TEST(DiskStates, ADiskTooSmallForOneIsRefused) {
  const TempFolder temp;
  ThreadTeam team(1);
  Stream stream(team);
  const ManualClock clock;
  auto model = std::make_unique<FakeModel>(kContextOfStates, 0, 0, true);
  const BlockFormat format = {.block_len = 8,
                              .payload_bytes = KvStore::block_bytes(model->facts(), DType::kF32, 8),
                              .state_bytes = model->facts().state_bytes};
  const auto refused = Engine::create(std::move(model), nullptr, stream,
                                      {.block_len = 8,
                                       .kv_dtype = DType::kF32,
                                       .disk_folder = temp.path("cache"),
                                       .disk_bytes = 16 * format.image_bytes()},
                                      clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().where, "disk_bytes");
  EXPECT_NE(refused.error().message.find("recurrent state"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ibid
