// The seam of tiers, with a fake memory below it: one letter a slot, copies done as the cache plans them. Whatever is
// found must lie on the device with the letters that it stands for.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "cache/block_cache.h"

namespace ibid {
namespace {

constexpr int32_t kLen = 4;  // B

std::vector<TokenId> ids(std::string_view letters) {
  std::vector<TokenId> out;
  for (const char c : letters) out.push_back(TokenId{c});
  return out;
}

struct Sizes {
  int32_t device, host;
};

class Memory {
 public:
  explicit Memory(Sizes n)
      : cache({.n_blocks = n.device, .n_host_blocks = n.host, .block_len = kLen, .hash = PrefixHash(128, 7)}),
        scope(cache.tree().hold({})) {
    for (size_t t = 0; t < kTiers; ++t)
      bytes_[t].assign(static_cast<size_t>(cache.pool(kAllTiers[t]).n_total()), std::string(kLen, '?'));
  }

  // A sequence that computes `sequence`: one step that matches, reserves and writes.
  BlockTable compute(std::string_view text, bool with_tail = true) {
    BlockTable table;
    std::vector<BlockCopy> copies;
    const auto tokens = ids(text);
    const auto n_tokens = static_cast<int32_t>(text.size());
    n_matched = cache.match(scope, tokens, table, copies);
    const bool has_room = cache.reserve(table, n_matched, n_tokens, copies);
    run(copies);
    if (!has_room) {
      cache.release(table);
      return {};
    }
    expect(text.substr(0, static_cast<size_t>(n_matched)), table);
    for (int32_t i = n_matched; i < n_tokens; ++i) slot(table, i) = text[static_cast<size_t>(i)];
    const int32_t n_published = cache.publish(scope, tokens, n_tokens, n_matched / kLen, table);
    if (with_tail) cache.publish_tail(scope, tokens, n_tokens, n_published, table);
    cache.self_check();
    return table;
  }
  void write(std::string_view text) {
    BlockTable table = compute(text);
    ASSERT_FALSE(table.empty());
    cache.release(table);
  }
  // Finds, brings up, looks at every letter and lets go.
  int32_t found(std::string_view text) {
    BlockTable table;
    std::vector<BlockCopy> copies;
    const int32_t n = cache.match(scope, ids(text), table, copies);
    run(copies);
    expect(text.substr(0, static_cast<size_t>(n)), table);
    cache.release(table);
    cache.self_check();
    return n;
  }
  int32_t n_copies(Tier from, Tier to) { return n_copies_[{from, to}]; }

  BlockCache cache;
  ScopeId scope;
  int32_t n_matched = 0;

 private:
  char& slot(const BlockTable& table, int32_t position) {
    const BlockId block = table[static_cast<size_t>(position / kLen)];
    return bytes_[0][static_cast<size_t>(raw(block))][static_cast<size_t>(position % kLen)];
  }
  void expect(std::string_view text, const BlockTable& table) {
    for (size_t i = 0; i < text.size(); ++i) {
      ASSERT_EQ(slot(table, static_cast<int32_t>(i)), text[i]) << "position " << i << " of " << text;
    }
  }
  void run(const std::vector<BlockCopy>& copies) {
    for (const BlockCopy& c : copies) {
      ++n_copies_[{c.from_tier, c.to_tier}];
      bytes_[raw_tier(c.to_tier)][static_cast<size_t>(raw(c.to))] =
          bytes_[raw_tier(c.from_tier)][static_cast<size_t>(raw(c.from))];
    }
    cache.transferred(copies);
  }

  std::vector<std::string> bytes_[kTiers];
  std::map<std::pair<Tier, Tier>, int32_t> n_copies_;
};

TEST(Tiers, EvictedBlocksMoveToTheHostAndComeBack) {
  Memory m({2, 4});
  m.write("aaaabbbb");
  m.write("ccccdddd");  // takes both blocks
  EXPECT_EQ(m.n_copies(Tier::kDevice, Tier::kHost), 2);
  EXPECT_EQ(m.cache.tree().n_nodes(), 4);
  EXPECT_EQ(m.found("aaaabbbb"), 8);
  EXPECT_EQ(m.n_copies(Tier::kHost, Tier::kDevice), 2);
  EXPECT_EQ(m.found("ccccdddd"), 8);
}

TEST(Tiers, ATailDoesNotStandForAWholeBlockThatLiesOnTheHost) {
  Memory m({3, 4});
  BlockTable held = m.compute("aaaab", false);
  m.write("aaaabbbb");
  m.write("cccc");  // takes the block of bbbb
  ASSERT_EQ(m.n_copies(Tier::kDevice, Tier::kHost), 1);
  m.cache.publish_tail(m.scope, ids("aaaab"), 5, 1, held);
  m.cache.release(held);
  EXPECT_EQ(m.found("aaaabbbb"), 8);  // and looks at every letter
}

TEST(Tiers, BlocksOnTheHostAreNotCopiedThereAgain) {
  Memory m({2, 4});
  m.write("aaaabbbb");
  m.write("ccccdddd");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(m.found("aaaabbbb"), 8);
    EXPECT_EQ(m.found("ccccdddd"), 8);
  }
  EXPECT_EQ(m.n_copies(Tier::kDevice, Tier::kHost), 4);
}

TEST(Tiers, AFullHostForgetsWhatWasLeastRecentlyThere) {
  Memory m({1, 2});
  for (const char* text : {"aaaa", "bbbb", "cccc", "dddd"}) m.write(text);
  EXPECT_EQ(m.n_copies(Tier::kDevice, Tier::kHost), 3);
  EXPECT_EQ(m.cache.tree().n_nodes(), 3);
  EXPECT_EQ(m.found("aaaa"), 0);
  EXPECT_EQ(m.found("bbbb"), 4);
  EXPECT_EQ(m.found("dddd"), 4);
}

TEST(Tiers, AnUnfinishedTailTravelsToo) {
  Memory m({2, 4});
  m.write("aaaabb");
  m.write("ccccdd");
  EXPECT_EQ(m.found("aaaabb"), 6);
  EXPECT_EQ(m.found("ccccdd"), 6);
}

TEST(Tiers, PrefixThatDoesNotFitIsFoundUpToTheRoom) {
  Memory m({3, 8});
  m.write("aaaabbbbcccc");
  BlockTable held = m.compute("xxxxyyyy");
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(m.found("aaaabbbbcccc"), 4);
  m.cache.release(held);
  EXPECT_EQ(m.found("aaaabbbbcccc"), 12);
}

TEST(Tiers, BlockInTransferIsNotHandedOut) {
  BlockCache cache({.n_blocks = 2, .n_host_blocks = 1, .block_len = kLen, .hash = PrefixHash(128, 7)});
  const ScopeId scope = cache.tree().hold({});
  BlockTable a, b;
  std::vector<BlockCopy> copies;
  const auto tokens = ids("aaaabbbb");
  ASSERT_TRUE(cache.reserve(a, 0, 8, copies));
  cache.publish(scope, tokens, 8, 0, a);
  cache.release(a);
  ASSERT_TRUE(cache.reserve(b, 0, 8, copies));
  ASSERT_EQ(copies.size(), 1u);  // the leaf went down; for its parent there was no room
  EXPECT_EQ(cache.pool(Tier::kHost).n_in_transfer(), 1);
  EXPECT_EQ(cache.pool(Tier::kHost).n_available(), 0);
  cache.transferred(copies);
  EXPECT_EQ(cache.pool(Tier::kHost).n_in_transfer(), 0);
  cache.release(b);
  cache.self_check();
}

// Random sequences over two letters with held tables, answers that grow, forks and two small tiers. Every letter found
// is looked at, and what was found must come from both.
TEST(Tiers, RandomSequencesKeepTheirLettersWhereverTheyHaveBeen) {
  std::map<std::pair<Tier, Tier>, int32_t> n_copies;
  int64_t n_found = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Memory m({6 + static_cast<int32_t>(random() % 6), static_cast<int32_t>(random() % 20)});
    std::vector<BlockTable> held;
    for (int step = 0; step < 300; ++step) {
      std::string text(1 + random() % 16, 'a');
      for (char& c : text) c = "ab"[random() % 2];
      BlockTable table = m.compute(text, random() % 2 == 0);
      ASSERT_FALSE(testing::Test::HasFatalFailure());
      n_found += m.n_matched;
      if (!table.empty() && random() % 3 == 0) {
        held.push_back(std::move(table));
      } else {
        m.cache.release(table);
      }
      if (!held.empty() && (held.size() > 2 || random() % 3 == 0)) {
        const size_t i = random() % held.size();
        m.cache.release(held[i]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(i));
      }
    }
    for (BlockTable& t : held) m.cache.release(t);
    for (const Tier tier : kAllTiers) {
      EXPECT_EQ(m.cache.pool(tier).n_in_use(), 0);
      EXPECT_EQ(m.cache.pool(tier).n_in_transfer(), 0);
    }
    for (const Tier from : kAllTiers) {
      for (const Tier to : kAllTiers) n_copies[{from, to}] += m.n_copies(from, to);
    }
  }
  EXPECT_GT(n_found, 1000);
  EXPECT_GT((n_copies[{Tier::kDevice, Tier::kHost}]), 100);
  EXPECT_GT((n_copies[{Tier::kHost, Tier::kDevice}]), 100);
}

}  // namespace
}  // namespace ibid
