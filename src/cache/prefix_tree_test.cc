#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string_view>
#include <vector>

#include "cache/block_cache.h"

namespace ibid {
namespace {

std::vector<TokenId> ids(std::string_view letters) {
  std::vector<TokenId> out;
  for (const char c : letters) out.push_back(TokenId{c});
  return out;
}

// A cache of blocks of four letters. write() computes a sequence as a sequence would and releases it.
class Letters {
 public:
  explicit Letters(int32_t n_blocks, int hash_bits = 128)
      : cache({.n_blocks = n_blocks, .block_len = 4, .hash = PrefixHash(hash_bits, 7)}), scope(cache.tree().hold({})) {}

  BlockTable keep(std::string_view text) {
    BlockTable table;
    std::vector<BlockCopy> copies;
    const auto tokens = ids(text);
    const int32_t n = cache.match(scope, tokens, table, copies);
    EXPECT_TRUE(cache.reserve(table, n, static_cast<int32_t>(tokens.size()), copies));
    cache.publish(scope, tokens, static_cast<int32_t>(tokens.size()), n / 4, table);
    cache.self_check();
    return table;
  }
  void write(std::string_view text) {
    BlockTable table = keep(text);
    cache.release(table);
  }
  int32_t found(std::string_view text) { return found_in(scope, text); }
  int32_t found_in(ScopeId s, std::string_view text) {
    BlockTable table;
    std::vector<BlockCopy> copies;
    const int32_t n = cache.match(s, ids(text), table, copies);
    cache.release(table);
    return n;
  }

  BlockCache cache;
  ScopeId scope;
};

TEST(PrefixTree, FindsWholeBlocksAndThePartOfTheNextOne) {
  Letters l(8);
  l.write("abcdefghijkl");
  EXPECT_EQ(l.found("abcdefghijkl"), 12);
  EXPECT_EQ(l.found("abcdefghijklmnop"), 12);
  EXPECT_EQ(l.found("abcdefgXijkl"), 7);
  EXPECT_EQ(l.found("abXX"), 2);
  EXPECT_EQ(l.found("abcde"), 5);
  EXPECT_EQ(l.found("Xbcd"), 0);
  EXPECT_EQ(l.found(""), 0);
}

TEST(PrefixTree, TheLongestAgreementAmongManyChildrenWins) {
  Letters l(16);
  l.write("abcdAAAA");
  l.write("abcdABAA");
  l.write("abcdABBA");
  l.write("abcdBBBB");
  EXPECT_EQ(l.found("abcdABBBB"), 7);
  EXPECT_EQ(l.found("abcdABAB"), 7);
  EXPECT_EQ(l.found("abcdB"), 5);
  EXPECT_EQ(l.found("abcdC"), 4);
}

TEST(PrefixTree, AnUnfinishedBlockIsVisibleOnceItsTailIsPublished) {
  Letters l(8);
  BlockTable table = l.keep("abcdef");
  EXPECT_EQ(l.found("abcdef"), 4);
  l.cache.publish_tail(l.scope, ids("abcdef"), 6, 1, table);
  EXPECT_EQ(l.found("abcdef"), 6);
  EXPECT_EQ(l.found("abcdeX"), 5);
  EXPECT_EQ(l.found("abcdefgh"), 6);
  EXPECT_EQ(l.cache.tree().n_nodes(), 2);
  l.cache.self_check();
  l.cache.release(table);
  EXPECT_EQ(l.found("abcdef"), 6);
}

TEST(PrefixTree, ATailGivesWayToWhatItsBlockBecomes) {
  Letters l(8);
  BlockTable table = l.keep("abcdef");
  std::vector<BlockCopy> copies;
  l.cache.publish_tail(l.scope, ids("abcdef"), 6, 1, table);
  // Its owner writes after it without a copy.
  ASSERT_TRUE(l.cache.reserve(table, 6, 7, copies));
  EXPECT_TRUE(copies.empty());
  l.cache.publish_tail(l.scope, ids("abcdefg"), 7, 1, table);
  EXPECT_EQ(l.found("abcdefg"), 7);
  EXPECT_EQ(l.cache.tree().n_nodes(), 2);
  l.cache.publish(l.scope, ids("abcdefgh"), 8, 1, table);
  EXPECT_EQ(l.found("abcdefgh"), 8);
  EXPECT_EQ(l.cache.tree().n_nodes(), 2);
  l.cache.self_check();
  l.cache.release(table);
}

TEST(PrefixTree, TailIsCopiedBeforeWritingUnlessUnsharedAndKeptWhole) {
  Letters l(8);
  BlockTable owner = l.keep("abcdef"), reader;
  std::vector<BlockCopy> copies;
  l.cache.publish_tail(l.scope, ids("abcdef"), 6, 1, owner);
  ASSERT_EQ(l.cache.match(l.scope, ids("abcdefXY"), reader, copies), 6);
  ASSERT_TRUE(l.cache.reserve(reader, 6, 8, copies));  // beside the owner
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].from, owner[1]);
  copies.clear();
  ASSERT_TRUE(l.cache.reserve(owner, 6, 8, copies));  // not shared any more
  EXPECT_TRUE(copies.empty());
  l.cache.release(reader);
  l.cache.release(owner);
  ASSERT_EQ(l.cache.match(l.scope, ids("abcde"), reader, copies), 5);
  ASSERT_TRUE(l.cache.reserve(reader, 5, 6, copies));  // f would be written over
  EXPECT_EQ(copies.size(), 1u);
  l.cache.release(reader);
  copies.clear();
  ASSERT_EQ(l.cache.match(l.scope, ids("abcdefZZ"), reader, copies), 6);
  ASSERT_TRUE(l.cache.reserve(reader, 6, 8, copies));
  EXPECT_TRUE(copies.empty());
  l.cache.release(reader);
  l.cache.self_check();
}

TEST(PrefixTree, ATailThatALongerOneBeginsWithIsNotKeptTwice) {
  Letters l(8);
  BlockTable a = l.keep("ab"), b = l.keep("abc"), c = l.keep("ab");
  l.cache.publish_tail(l.scope, ids("ab"), 2, 0, a);
  l.cache.publish_tail(l.scope, ids("abc"), 3, 0, b);
  EXPECT_EQ(l.cache.tree().n_nodes(), 1);
  l.cache.publish_tail(l.scope, ids("ab"), 2, 0, c);
  EXPECT_EQ(l.cache.tree().n_nodes(), 1);
  EXPECT_EQ(l.found("abc"), 3);
  for (BlockTable* t : {&a, &b, &c}) l.cache.release(*t);
  EXPECT_EQ(l.cache.pool().n_cached(), 1);
  l.cache.self_check();
}

TEST(PrefixHash, AKeptKeyGivesTheSameValues) {
  const PrefixHash hash;
  const PrefixHash again(hash.key()), other;
  EXPECT_EQ(again.of_scope("s"), hash.of_scope("s"));
  EXPECT_EQ(again.of_block(again.of_scope("s"), ids("abcd")), hash.of_block(hash.of_scope("s"), ids("abcd")));
  EXPECT_FALSE(other.of_scope("s") == hash.of_scope("s"));
}

TEST(PrefixTree, EqualPrefixesAreStoredOnce) {
  Letters l(8);
  BlockTable first = l.keep("abcdefgh");
  // A second sequence that began before the first was published holds blocks of its own until it publishes.
  BlockTable second;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(l.cache.reserve(second, 0, 8, copies));
  EXPECT_NE(second, first);
  l.cache.publish(l.scope, ids("abcdefgh"), 8, 0, second);
  EXPECT_EQ(second, first);
  EXPECT_EQ(l.cache.pool().n_in_use(), 2);
  EXPECT_EQ(l.cache.pool().n_shared(), 2);
  l.cache.release(first);
  l.cache.release(second);
  EXPECT_EQ(l.cache.pool().n_cached(), 2);
  l.cache.self_check();
}

TEST(PrefixTree, EvictionTakesLeavesFirstAndTheLeastRecentlyUsedPrefix) {
  Letters l(6);
  l.write("aaaabbbb");
  l.write("ccccdddd");
  EXPECT_EQ(l.found("aaaabbbb"), 8);  // used again: now the other one is older
  l.write(
      "eeee"
      "ffff"
      "gggg");  // two free blocks, then one evicted: d, the leaf
  EXPECT_EQ(l.found("ccccdddd"), 4);
  EXPECT_EQ(l.found("aaaabbbb"), 8);
  l.cache.self_check();
}

TEST(PrefixTree, EvictingALeafMakesItsParentEvictable) {
  Letters l(2);
  l.write("aaaabbbb");
  l.write("cccc");
  EXPECT_EQ(l.found("aaaabbbb"), 4);
  BlockTable kept = l.keep("ddddeeee");
  EXPECT_EQ(l.found("aaaa"), 0);
  EXPECT_EQ(l.cache.tree().n_nodes(), 2);
  l.cache.release(kept);
}

TEST(PrefixTree, AFoundBlockIsPinnedInTheSameCall) {
  Letters l(2);
  l.write("aaaabbbb");
  BlockTable table, other;
  std::vector<BlockCopy> copies;
  ASSERT_EQ(l.cache.match(l.scope, ids("aaaa"), table, copies), 4);
  EXPECT_FALSE(l.cache.reserve(other, 0, 8, copies));  // only b's block can be had
  EXPECT_TRUE(other.empty());
  EXPECT_TRUE(l.cache.reserve(other, 0, 4, copies));
  EXPECT_NE(other[0], table[0]);
  EXPECT_EQ(l.found("aaaa"), 4);
  l.cache.release(table);
  l.cache.release(other);
}

TEST(PrefixTree, ForgettingANodeForgetsWhatHangsBelowItButNotItsReferences) {
  Letters l(8);
  BlockTable kept = l.keep("aaaabbbbcccc");
  l.write("aaaabbbbdddd");
  l.cache.tree().forget(l.cache.pool().node_of(kept[1]));
  EXPECT_EQ(l.cache.tree().n_nodes(), 1);
  EXPECT_EQ(l.found("aaaabbbbcccc"), 4);
  EXPECT_EQ(l.cache.pool().n_in_use(), 3);
  // A block after a forgotten one cannot be published any more.
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(l.cache.reserve(kept, 12, 16, copies));
  EXPECT_EQ(l.cache.publish(l.scope, ids("aaaabbbbcccceeee"), 16, 3, kept), 4);
  EXPECT_EQ(l.cache.tree().n_nodes(), 1);
  l.cache.release(kept);
  l.cache.self_check();
}

TEST(PrefixTree, EachFieldOfTheScopeSeparates) {
  Letters l(64);
  const CacheScope base = {
      .arithmetic = "2", .model = "m", .adapter = "a", .kv_dtype = "F16", .rope = "r", .salt = "s"};
  std::vector<CacheScope> scopes(7, base);
  scopes[1].model = "m2";
  scopes[2].adapter = "";
  scopes[3].kv_dtype = "F32";
  scopes[4].rope = "r2";
  scopes[5].salt = "t";
  scopes[6].arithmetic = "3";
  // Fields that run together spell alike without their lengths.
  scopes.push_back({.arithmetic = "2", .model = "ma", .adapter = "", .kv_dtype = "F16", .rope = "r", .salt = "s"});
  scopes.push_back({.arithmetic = "2", .model = "m", .adapter = "a", .kv_dtype = "F16", .rope = "rs", .salt = ""});
  scopes.push_back({.arithmetic = "2m", .model = "", .adapter = "a", .kv_dtype = "F16", .rope = "r", .salt = "s"});
  std::vector<ScopeId> held;
  for (const CacheScope& s : scopes) held.push_back(l.cache.tree().hold(s));
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(l.found_in(held[i], "abcdefgh"), 0) << i;
    BlockTable table;
    std::vector<BlockCopy> copies;
    ASSERT_TRUE(l.cache.reserve(table, 0, 8, copies));
    l.cache.publish(held[i], ids("abcdefgh"), 8, 0, table);
    l.cache.release(table);
    EXPECT_EQ(l.found_in(held[i], "abcdefgh"), 8) << i;
    EXPECT_EQ(l.cache.tree().hold(scopes[i]), held[i]);
  }
}

TEST(PrefixTree, AScopeLivesAsLongAsItsBlocks) {
  Letters l(1);
  const ScopeId tenant = l.cache.tree().hold({.salt = "t"});
  BlockTable table;
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(l.cache.reserve(table, 0, 4, copies));
  l.cache.publish(tenant, ids("abcd"), 4, 0, table);
  l.cache.release(table);
  l.cache.tree().let_go(tenant);
  const ScopeId again = l.cache.tree().hold({.salt = "t"});
  EXPECT_EQ(again, tenant);
  EXPECT_EQ(l.found_in(again, "abcd"), 4);
  l.cache.tree().let_go(again);
  l.write("wxyz");  // evicts the tenant's only block, and its scope with it
  EXPECT_EQ(l.found_in(l.cache.tree().hold({.salt = "u"}), "abcd"), 0);
}

TEST(PrefixTree, CollidingHashesCostTimeAndNothingElse) {
  for (const int bits : {0, 1, 8}) {
    Letters l(40, bits);
    for (char a = 'a'; a < 'k'; ++a) l.write(std::string(4, a) + std::string(4, 'z'));
    for (char a = 'a'; a < 'k'; ++a) {
      EXPECT_EQ(l.found(std::string(4, a) + std::string(4, 'z')), 8);
      EXPECT_EQ(l.found(std::string(4, a) + "zzzy"), 7);
    }
    if (bits < 8) {
      EXPECT_GT(l.cache.tree().n_collisions(), 0);
    }
  }
}

// Random sequences over two letters against the longest match by brute force (row X3), with eviction, held tables and
// hashes cut to 8 bits.
TEST(PrefixTree, RandomSequencesAgreeWithBruteForce) {
  int64_t n_collisions = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Letters l(24, 8);
    std::vector<BlockTable> held;
    for (int step = 0; step < 250; ++step) {
      std::string text(1 + random() % 16, 'a');
      for (char& c : text) c = "ab"[random() % 2];
      // What the tree holds, read through its nodes: for each, its path.
      int32_t expected = 0;
      const auto path = [&](auto&& self, std::string_view rest, int32_t matched, NodeId parent) -> void {
        expected = std::max(expected, matched);
        for (int32_t i = 0; i < 24; ++i) {
          const NodeId node{i};
          if (!l.cache.tree().is_node(node) || l.cache.tree().parent_of(node) != parent) continue;
          const auto tokens = l.cache.tree().tokens_of(node);
          size_t n = 0;
          while (n < tokens.size() && n < rest.size() && raw(tokens[n]) == rest[n]) ++n;
          if (n == 4) {
            self(self, rest.substr(4), matched + 4, node);
          } else {
            expected = std::max(expected, matched + static_cast<int32_t>(n));
          }
        }
      };
      path(path, text, 0, NodeId::kNone);
      ASSERT_EQ(l.found(text), expected) << text;
      if (l.cache.pool().n_available() >= 5) {
        BlockTable table = l.keep(text);
        const auto n_tokens = static_cast<int32_t>(text.size());
        if (random() % 2 == 0) l.cache.publish_tail(l.scope, ids(text), n_tokens, n_tokens / 4, table);
        if (random() % 3 == 0) {
          held.push_back(table);
        } else {
          l.cache.release(table);
        }
      }
      if (!held.empty() && (held.size() > 4 || random() % 4 == 0)) {
        l.cache.release(held.back());
        held.pop_back();
      }
      l.cache.self_check();
    }
    n_collisions += l.cache.tree().n_collisions();
    for (BlockTable& t : held) l.cache.release(t);
    EXPECT_EQ(l.cache.pool().n_in_use(), 0);
  }
  EXPECT_GT(n_collisions, 0);
}

}  // namespace
}  // namespace ibid
