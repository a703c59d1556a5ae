#include "text/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ibid {
namespace {

// The definition, word for word: the lowest rank anywhere, the leftmost of equals, again and again.
std::vector<int32_t> merge_by_definition(const BpeMerger& merger, std::vector<int32_t> symbols) {
  while (true) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* m = merger.find(symbols[i], symbols[i + 1]);
      if (m && (!best || m->rank < best->rank)) best = m, at = i;
    }
    if (!best) return symbols;
    symbols[at] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

struct Case {
  int n_letters;
  int n_merges;
  bool trained;  // results are new symbols, ranks ascend; else anything goes, with equal ranks
};

void compare(const Case& c, uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&random](int n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n)); };
  std::vector<Merge> merges;
  int n_symbols = c.n_letters;
  for (int r = 0; r < c.n_merges; ++r) {
    int32_t result = c.trained ? n_symbols++ : below(c.n_letters + c.n_merges);
    int known = c.trained ? n_symbols - 1 : c.n_letters + c.n_merges;
    merges.push_back({below(known), below(known), c.trained ? r : below(c.n_merges / 2 + 1), result});
  }
  Result<BpeMerger> merger = BpeMerger::build(merges);
  ASSERT_TRUE(merger.ok());
  BpeScratch scratch;
  for (int k = 0; k < 20; ++k) {
    std::vector<int32_t> word(1 + random() % 120);
    bool run = random() % 3 == 0;
    for (int32_t& symbol : word) symbol = run ? 0 : below(c.n_letters);
    std::vector<int32_t> expected = merge_by_definition(*merger, word);
    scratch.symbols = word;
    merger->merge_short(scratch);
    ASSERT_EQ(scratch.symbols, expected) << "short, seed " << seed;
    scratch.symbols = word;
    merger->merge_long(scratch);
    ASSERT_EQ(scratch.symbols, expected) << "long, seed " << seed;
  }
}

TEST(BpeMerger, ShortAndLongWordsFollowTheDefinition) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    compare({2 + static_cast<int>(seed % 5), 30, true}, seed);
    compare({2 + static_cast<int>(seed % 3), 12, false}, seed);
  }
}

TEST(BpeMerger, OfEqualPairsTheLastRuleCounts) {
  Result<BpeMerger> merger = BpeMerger::build(std::vector<Merge>{{0, 1, 0, 2}, {0, 1, 1, 3}});
  ASSERT_TRUE(merger.ok());
  BpeScratch scratch;
  scratch.symbols = {0, 1};
  merger->merge(scratch);
  EXPECT_EQ(scratch.symbols, std::vector<int32_t>{3});
}

}  // namespace
}  // namespace ibid
