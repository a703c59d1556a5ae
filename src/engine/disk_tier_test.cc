// The tiers below the device, in an engine over the fake model: blocks from a host or a disk are those that were
// computed, and failures there cost time but change no byte.
#include "engine/schedule/disk_tier.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "engine/engine.h"
#include "fake_disk.h"
#include "fake_model.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::FakeDisk;
using testing::FakeDiskScript;
using testing::FakeMedium;
using testing::FakeModel;

constexpr int32_t kContext = 512;
constexpr int32_t kLen = 8;  // B

// One process: an engine over a medium that outlives it.
class Process {
 public:
  struct Sizes {
    int32_t n_blocks = 2 * kContext / kLen, n_host = 0, n_disk = 1000;
  };
  Process(std::shared_ptr<FakeMedium> medium, const Sizes& sizes, const FakeDiskScript& script,
          const std::string& folder = "") {
    auto model = std::make_unique<FakeModel>(kContext);
    model_ = model.get();
    const int64_t block_bytes = KvStore::block_bytes(model->facts(), DType::kF32, kLen);
    const BlockFormat format = {.block_len = kLen, .payload_bytes = block_bytes};
    EngineOptions options{.block_len = kLen, .kv_dtype = DType::kF32, .step_tokens = 64, .max_sequences = 4};
    options.kv_bytes = sizes.n_blocks * block_bytes;
    options.host_bytes = sizes.n_host * block_bytes;
    options.disk_bytes = sizes.n_disk * format.image_bytes();
    options.model_digest = "fake";
    options.disk_folder = folder;
    std::unique_ptr<DurableStore> store;
    if (medium) store = std::make_unique<FakeDisk>(medium, format, script);
    engine = Engine::create(std::move(model), nullptr, stream_, options, clock, PrefixHash(), std::move(store)).value();
  }
  ~Process() { EXPECT_EQ(model_->faults(), std::vector<std::string>()); }

  Request request(int32_t prompt_len, uint64_t text = 1) {
    Request r;
    r.id = RequestId{next_id_++};
    for (int32_t i = 0; i < prompt_len; ++i)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(text, static_cast<uint64_t>(i)) % 63)});
    r.max_tokens = 3;
    r.sampling.ignore_eos = true;
    return r;
  }
  // Runs until all requests end; the cached tokens of each request.
  void drain() {
    std::vector<Output> out;
    while (step(out)) {
    }
  }
  bool step(std::vector<Output>& out) {
    out.clear();
    const bool busy = engine->step(out);
    engine->self_check();
    for (const Output& o : out) {
      if (!o.finished) continue;
      EXPECT_EQ(o.reason, FinishReason::kLength);
      cached[o.request] = o.usage.cached_tokens;
      ended.push_back(o.request);
    }
    return busy;
  }
  int32_t ask(const Request& r) {
    EXPECT_TRUE(engine->submit(r).ok());
    drain();
    return cached.at(r.id);
  }
  int32_t ask(int32_t prompt_len, uint64_t text = 1) { return ask(request(prompt_len, text)); }
  // Steps until pending writes to the disk are done.
  void idle(int n_steps = 200) {
    std::vector<Output> out;
    for (int i = 0; i < n_steps; ++i) step(out);
  }
  DiskStats disk() const { return engine->stats().disk; }

  ThreadTeam team_{1};
  Stream stream_{team_};
  ManualClock clock;
  FakeModel* model_;
  std::unique_ptr<Engine> engine;
  std::map<RequestId, int32_t> cached;
  std::vector<RequestId> ended;
  uint64_t next_id_ = 1;
};

struct Disk {
  std::shared_ptr<FakeMedium> medium = std::make_shared<FakeMedium>();
  FakeDiskScript script;
  Process::Sizes sizes;
  Process start() { return {medium, sizes, script}; }
  // A process that computes this sequence, and ends.
  void warm(int32_t prompt_len, uint64_t text = 1) {
    Process p(medium, sizes, {.n_images = 100, .most_per_turn = 100});
    p.ask(prompt_len, text);
    p.idle();
    EXPECT_EQ(p.disk().n_unsaved, 0);
  }
};

TEST(DiskTier, APrefixIsFoundAfterARestartUpToItsLastWholeBlock) {
  Disk disk;
  disk.warm(100);
  EXPECT_EQ(disk.medium->files.size(), 12u);
  Process p = disk.start();
  EXPECT_EQ(p.ask(100), 96);
  EXPECT_EQ(p.disk().n_fetched, 12);
  EXPECT_EQ(p.ask(100), 99);  // from memory now
  EXPECT_EQ(p.disk().n_fetched, 12);
  EXPECT_EQ(p.ask(100, 2), 0);
}

// A clock on which each reading takes a while, so that steps do.
struct TickingClock final : Clock {
  mutable double at = 0;
  double now() const override { return at += 1e-3; }
};

// Three long sequences in turn; the device holds two. Returns the host tier's counts.
EngineStats swapped(double host_copy_seconds) {
  ThreadTeam team(1);
  Stream stream(team);
  const TickingClock clock;
  auto model = std::make_unique<FakeModel>(kContext);
  FakeModel& fake = *model;
  const int64_t block_bytes = KvStore::block_bytes(model->facts(), DType::kF32, kLen);
  EngineOptions options{.block_len = kLen, .kv_dtype = DType::kF32, .step_tokens = 64, .max_sequences = 4};
  options.kv_bytes = kContext / kLen * block_bytes;
  options.host_bytes = 4 * options.kv_bytes;
  options.host_copy_seconds = host_copy_seconds;
  auto engine = Engine::create(std::move(model), nullptr, stream, options, clock).value();
  std::vector<Output> out;
  for (uint64_t i = 0; i < 12; ++i) {
    Request r;
    r.id = RequestId{i};
    for (int32_t k = 0; k < 200; ++k)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(i % 3, static_cast<uint64_t>(k)) % 63)});
    r.max_tokens = 2;
    EXPECT_TRUE(engine->submit(std::move(r)).ok());
    while (engine->step(out)) engine->self_check();
  }
  EXPECT_EQ(fake.faults(), std::vector<std::string>());
  return engine->stats();
}

TEST(HostTier, IsUsedWhereCopyingABlockTwiceTakesLessThanComputingIt) {
  for (const double seconds : {0.0, 1e-7}) {
    const EngineStats stats = swapped(seconds);
    EXPECT_TRUE(stats.uses_host) << seconds;
    EXPECT_GT(stats.n_blocks_down, 40) << seconds;
    EXPECT_GT(stats.n_blocks_up, 40) << seconds;
  }
}

TEST(HostTier, IsLeftAloneWhereComputingIsQuicker) {
  const EngineStats stats = swapped(1);
  EXPECT_FALSE(stats.uses_host);
  EXPECT_EQ(stats.n_blocks_down, 0);
  EXPECT_EQ(stats.n_blocks_up, 0);
}

TEST(DiskTier, ARealFolderDoesTheSame) {
  const TempFolder temp;
  {
    Process p(nullptr, {}, {}, temp.path("cache"));
    p.ask(100);
  }
  Process p(nullptr, {}, {}, temp.path("cache"));
  EXPECT_EQ(p.ask(100), 96);
  EXPECT_EQ(p.disk().n_fetched, 12);
  EXPECT_EQ(p.disk().n_corrupt + p.disk().n_foreign + p.disk().n_failed_reads, 0);
}

TEST(DiskTier, AnAnswerIsFoundToo) {
  Disk disk;
  std::vector<TokenId> said;
  {
    Process p = disk.start();
    Request r = p.request(20);
    r.max_tokens = 40;
    ASSERT_TRUE(p.engine->submit(r).ok());
    std::vector<Output> out;
    while (p.step(out)) {
      for (const Output& o : out) {
        for (const TokenRecord& t : o.tokens) said.push_back(t.chosen.token);
      }
    }
    p.idle();
  }
  Process p = disk.start();
  Request next = p.request(20);
  next.prompt.insert(next.prompt.end(), said.begin(), said.end());
  EXPECT_EQ(p.ask(next), 56);  // of 60, whose last was never computed
}

TEST(DiskTier, AnotherTenantOrSaltFindsNothing) {
  Disk disk;
  {
    Process p = disk.start();
    Request r = p.request(100);
    r.tenant = "a";
    r.cache_salt = "s";
    p.ask(r);
    p.idle();
  }
  Process p = disk.start();
  for (const auto& [tenant, salt, n] : {std::tuple("a", "", 0), {"", "s", 0}, {"b", "s", 0}, {"a", "s", 96}}) {
    Request r = p.request(100);
    r.tenant = tenant;
    r.cache_salt = salt;
    EXPECT_EQ(p.ask(r), n) << tenant << ", " << salt;
  }
}

TEST(DiskTier, PartlyPublishedPrefixContinuesWhereTheTreeEnds) {
  Disk disk;
  disk.warm(100);
  Process p = disk.start();
  EXPECT_EQ(p.ask(40), 32);
  EXPECT_EQ(p.ask(100), 96);
  EXPECT_EQ(p.disk().n_fetched, 11);     // one it had to compute for its first token
  EXPECT_EQ(p.disk().bytes_written, 0);  // everything was on the disk already
}

TEST(DiskTier, OthersRunWhileOneWaitsForTheDisk) {
  Disk disk;
  disk.warm(400);
  disk.script.most_per_turn = 1;
  disk.script.most_idle = 10;
  Process p = disk.start();
  const Request slow = p.request(400), quick = p.request(30, 2);
  ASSERT_TRUE(p.engine->submit(slow).ok());
  ASSERT_TRUE(p.engine->submit(quick).ok());
  p.drain();
  EXPECT_EQ(p.ended, (std::vector{quick.id, slow.id}));
  EXPECT_EQ(p.cached.at(slow.id), 392);
}

TEST(DiskTier, ASlowDiskIsWaitedForNoLongerThanComputingTakes) {
  Disk disk;
  disk.warm(400);
  disk.script.most_per_turn = 1;
  disk.script.most_idle = 0;
  Process p = disk.start();
  const Request r = p.request(400);
  ASSERT_TRUE(p.engine->submit(r).ok());
  std::vector<Output> out;
  for (int i = 0; i < 20; ++i) p.step(out);
  EXPECT_EQ(p.disk().n_abandoned, 0);
  EXPECT_TRUE(p.cached.empty());
  p.clock.advance(1);  // not measured yet: a millisecond a token
  p.drain();
  EXPECT_GT(p.cached.at(r.id), 100);
  EXPECT_LT(p.cached.at(r.id), 200);  // blocks that had arrived were used
  EXPECT_EQ(p.disk().n_abandoned, 1);
}

TEST(DiskTier, WhereComputingIsQuickerTheDiskIsNotAskedAndTriedAgainSomeDay) {
  Disk disk;
  for (uint64_t text = 1; text <= 40; ++text) disk.warm(100, text);
  disk.script.seconds = 0.03;  // per block, whose eight tokens are computed in 8 ms
  disk.sizes.n_disk = 10000;
  Process p = disk.start();
  EXPECT_EQ(p.ask(100, 1), 96);  // the disk's speed is not known yet
  for (uint64_t text = 2; text <= 40; ++text) p.ask(100, text);
  EXPECT_EQ(p.disk().n_fetches + p.disk().n_not_worth, 40);
  EXPECT_GE(p.disk().n_not_worth, 20);
  EXPECT_GE(p.disk().n_fetches, 2);
}

TEST(DiskTier, TwoSequencesWithTheSamePrefixFetchItOnce) {
  Disk disk;
  disk.warm(200);
  disk.script.n_images = 2;
  Process p = disk.start();
  std::vector<Request> all;
  for (int i = 0; i < 4; ++i) all.push_back(p.request(200));
  for (const Request& r : all) ASSERT_TRUE(p.engine->submit(r).ok());
  p.drain();
  EXPECT_EQ(p.disk().n_fetched, 24);
  for (const Request& r : all) EXPECT_GE(p.cached.at(r.id), 192);
}

TEST(DiskTier, SequenceCancelledWhileItWaitsLeavesNothing) {
  Disk disk;
  disk.warm(400);
  disk.script.most_idle = 10;
  Process p = disk.start();
  const Request r = p.request(400), next = p.request(400);
  ASSERT_TRUE(p.engine->submit(r).ok());
  std::vector<Output> out;
  for (int i = 0; i < 8; ++i) p.engine->step(out);
  EXPECT_EQ(p.engine->stats().n_waiting, 1);
  p.engine->cancel(r.id);
  out.clear();
  p.engine->step(out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(p.engine->cache().pool().n_in_use(), 0);
  EXPECT_EQ(p.ask(next), 392);
}

// Damages each block of a sequence in turn, in each way; the blocks before it are found, the rest is computed.
TEST(DiskTier, ABrokenFileEndsThePrefixThereAndIsWrittenAgain) {
  Disk disk;
  disk.warm(100);
  const std::vector<std::pair<DurableKey, FakeMedium::File>> whole(disk.medium->files.begin(),
                                                                   disk.medium->files.end());
  std::set<int32_t> found;
  for (const auto& [key, file] : whole) {
    for (int way = 0; way < 4; ++way) {
      disk.medium->files = {whole.begin(), whole.end()};
      FakeMedium::File& broken = disk.medium->files[key];
      if (way == 0) broken.image[broken.image.size() / 2] ^= std::byte{4};
      if (way == 1) broken.image.resize(100);
      if (way == 2) broken.image = (whole.front().first == key ? whole.back() : whole.front()).second.image;
      Process p = disk.start();
      if (way == 3) disk.medium->files.erase(key);  // unknown to the index
      const int32_t n = p.ask(100);
      found.insert(n);
      EXPECT_EQ(n % kLen, 0);
      EXPECT_LT(n, 96);
      EXPECT_EQ(p.disk().n_corrupt, way < 2);
      EXPECT_EQ(p.disk().n_foreign, way == 2);
      EXPECT_EQ(p.disk().n_missing, way == 3);
      p.idle();
      Process again = disk.start();
      EXPECT_EQ(again.ask(100), 96);
    }
  }
  EXPECT_EQ(found.size(), 12u);
}

TEST(DiskTier, WritesThatFailAreCountedAndCostNothingElse) {
  Disk disk;
  disk.script.fault_one_in = 1;
  Process p = disk.start();
  EXPECT_EQ(p.ask(100), 0);
  p.idle();
  EXPECT_EQ(p.disk().n_failed_writes + p.disk().n_no_space, 12);
  EXPECT_EQ(p.disk().n_blocks, 0);
  EXPECT_TRUE(disk.medium->files.empty());
  EXPECT_EQ(p.ask(100), 99);
}

TEST(DiskTier, ItsBytesStayWithinTheBudgetAndOldSequencesGoFirstAlsoAfterARestart) {
  Disk disk;
  disk.sizes.n_disk = 30;
  disk.warm(100, 1);
  disk.warm(100, 2);
  {
    Process p = disk.start();
    p.ask(100, 1);  // used again
    p.ask(100, 3);
    p.idle();
    EXPECT_LE(p.disk().bytes, p.engine->options().disk_bytes);
    EXPECT_EQ(p.disk().n_evicted, 6);
  }
  EXPECT_EQ(disk.medium->files.size(), 30u);
  {
    Process p = disk.start();
    EXPECT_EQ(p.ask(100, 1), 96);
    EXPECT_EQ(p.ask(100, 2), 48);  // its last blocks were evicted first
  }
  disk.sizes.n_disk = 16;  // a smaller budget than the blocks present
  Process p = disk.start();
  p.idle();
  EXPECT_LE(p.disk().bytes, p.engine->options().disk_bytes);
  EXPECT_LE(disk.medium->files.size(), 16u);
}

TEST(DiskTier, RunningSequenceTakesTheBlocksOfAWaitingOne) {
  Disk disk;
  disk.warm(400);
  disk.sizes.n_blocks = kContext / kLen;
  disk.script.most_per_turn = 1;
  disk.script.most_idle = 20;
  Process p = disk.start();
  Request running = p.request(40, 2);
  running.max_tokens = 300;
  const Request waiting = p.request(400);
  ASSERT_TRUE(p.engine->submit(running).ok());
  std::vector<Output> out;
  p.step(out);
  ASSERT_TRUE(p.engine->submit(waiting).ok());
  p.drain();
  EXPECT_EQ(p.ended.front(), running.id);
  EXPECT_EQ(p.engine->stats().n_preemptions, 0);
  EXPECT_GT(p.disk().n_abandoned, 0);
}

TEST(HostTier, APreemptedSequenceComesBackFromTheHost) {
  Process p(nullptr, {.n_blocks = kContext / kLen, .n_host = 200}, {});
  Request a = p.request(300, 1), b = p.request(150, 2);
  a.max_tokens = 100;
  b.max_tokens = 100;
  ASSERT_TRUE(p.engine->submit(a).ok());
  ASSERT_TRUE(p.engine->submit(b).ok());
  p.drain();
  const EngineStats stats = p.engine->stats();
  EXPECT_GT(stats.n_preemptions, 0);
  EXPECT_GT(stats.n_blocks_down, 0);
  EXPECT_GT(stats.n_blocks_up, 0);
  EXPECT_EQ(stats.host_blocks_total, 200);
}

TEST(HostTier, EvictedBlocksAreFoundWhole) {
  Process p(nullptr, {.n_blocks = kContext / kLen, .n_host = 200}, {});
  EXPECT_EQ(p.ask(400, 1), 0);
  EXPECT_EQ(p.ask(400, 2), 0);
  EXPECT_EQ(p.ask(400, 1), 399);
  EXPECT_EQ(p.ask(400, 2), 399);
}

TEST(DiskTier, OptionsThatCannotWorkAreRefused) {
  ThreadTeam team(1);
  Stream stream(team);
  const auto refused = [&](void (*change)(EngineOptions&)) {
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .max_sequences = 4, .model_digest = "fake"};
    options.disk_folder = "/tmp/never-made";
    options.disk_bytes = 1 << 30;
    change(options);
    auto made = Engine::create(std::make_unique<FakeModel>(64), nullptr, stream, options, steady_clock());
    return made ? "" : made.error().where;
  };
  EXPECT_EQ(refused([](EngineOptions& o) { o.disk_bytes = 1000; }), "disk_bytes");
  EXPECT_EQ(refused([](EngineOptions& o) { o.host_bytes = -1; }), "host_bytes");
  EXPECT_FALSE(std::filesystem::exists("/tmp/never-made"));
}

}  // namespace
}  // namespace ibid
