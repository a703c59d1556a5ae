// What a subscriber knows from KV events is what the prefix tree has: after every step of random lives, in each tier.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/engine.h"
#include "fake_model.h"

namespace ibid {
namespace {

using testing::FakeModel;

// A subscriber's index: of each tier the hashes of blocks, with their tokens and the block before.
class Index final : public PrefixObserver {
 public:
  struct Block {
    uint64_t parent = 0;
    std::vector<TokenId> tokens;
    bool operator==(const Block&) const = default;
  };

  void settled(const PrefixTree& tree, NodeId node, Tier tier) noexcept override {
    ++n_stored;
    const NodeId parent = tree.parent_of(node);
    const auto tokens = tree.tokens_of(node);
    const Block block = {parent == NodeId::kNone ? 0 : tree.hash_of(parent), {tokens.begin(), tokens.end()}};
    const bool is_new = blocks[raw_tier(tier)].emplace(tree.hash_of(node), block).second;
    EXPECT_TRUE(is_new) << "a block is stored twice";
    n_tiers[raw_tier(tier)] += 1;
  }
  void left(const PrefixTree& tree, NodeId node, Tier tier) noexcept override {
    ++n_removed;
    EXPECT_EQ(blocks[raw_tier(tier)].erase(tree.hash_of(node)), 1U) << "a block is removed that was not stored";
  }
  void stepped() noexcept override { ++n_steps; }

  std::map<uint64_t, Block> blocks[kTiers];
  int64_t n_stored = 0, n_removed = 0, n_steps = 0, n_tiers[kTiers] = {};
};

void expect_equal(const Index& index, const BlockCache& cache) {
  const PrefixTree& tree = cache.tree();
  for (const Tier tier : kAllTiers) {
    std::map<uint64_t, Index::Block> there;
    for (int32_t i = 0; i < cache.pool(tier).n_total(); ++i) {
      const NodeId node = cache.pool(tier).node_of(BlockId{i});
      if (!tree.is_whole(node)) continue;
      const NodeId parent = tree.parent_of(node);
      const auto tokens = tree.tokens_of(node);
      there[tree.hash_of(node)] = {parent == NodeId::kNone ? 0 : tree.hash_of(parent), {tokens.begin(), tokens.end()}};
    }
    ASSERT_EQ(index.blocks[raw_tier(tier)], there) << "tier " << raw_tier(tier);
  }
}

TEST(KvEventIndex, IsWhatTheTreeHasAfterEveryStepOfRandomLives) {
  int64_t n_host = 0, n_removed = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    ThreadTeam team(1);
    Stream stream(team);
    ManualClock clock;
    auto fake = std::make_unique<FakeModel>(64);
    EngineOptions options{.block_len = 8, .step_tokens = 8 + up_to(40), .max_sequences = 1 + up_to(6)};
    options.kv_dtype = DType::kF32;
    const int64_t block_bytes = KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
    options.kv_bytes = (8 + up_to(20)) * block_bytes;
    options.host_bytes = up_to(3) * 8 * block_bytes;
    const auto engine = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
    Index index;
    engine->observe_cache(index);
    std::vector<Output> out;
    int64_t n_turns = 0;
    for (uint64_t id = 1; id <= 60; ++id) {
      Request r;
      r.id = RequestId{id};
      for (int32_t i = 1 + up_to(40), stem = up_to(3); i > 0; --i)
        r.prompt.push_back(TokenId{1 + (up_to(12) == 0 ? up_to(63) : stem)});
      r.max_tokens = up_to(12);
      r.n = 1 + up_to(2);
      r.sampling.seed = id;
      if (up_to(3) == 0) r.cache_salt = "salt";
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
      for (int turns = up_to(6); turns > 0; --turns, ++n_turns) {
        engine->step(out);
        ASSERT_NO_FATAL_FAILURE(expect_equal(index, engine->cache())) << "seed " << seed;
        if (up_to(8) == 0) engine->preempt(RequestId{1 + random() % id});
        if (up_to(8) == 0) engine->cancel(RequestId{1 + random() % id});
      }
    }
    while (engine->step(out)) ASSERT_NO_FATAL_FAILURE(expect_equal(index, engine->cache())) << "seed " << seed;
    EXPECT_GT(index.n_stored, 0);
    EXPECT_GE(index.n_steps, n_turns);
    n_host += index.n_tiers[raw_tier(Tier::kHost)];
    n_removed += index.n_removed;
  }
  EXPECT_GT(n_host, 0);
  EXPECT_GT(n_removed, 0);
}

}  // namespace
}  // namespace ibid
