#include "spec/lookup/suffix_automaton.h"

#include <gtest/gtest.h>

#include <random>

namespace ibid {
namespace {

using Text = std::vector<TokenId>;

// The longest suffix of text[..n) that occurs earlier, by exhaustive search.
int32_t longest(const Text& text, size_t n) {
  int32_t most = 0;
  for (size_t end = 1; end < n; ++end) {
    size_t len = 0;
    while (len < end && text[end - len - 1] == text[n - len - 1]) ++len;
    most = std::max(most, static_cast<int32_t>(len));
  }
  return most;
}

bool is_match(const Text& text, size_t n, int32_t end, int32_t len) {
  const auto at = text.begin() + end - len;
  return end >= len && static_cast<size_t>(end) < n &&
         std::equal(at, at + len, text.begin() + static_cast<std::ptrdiff_t>(n) - len);
}

TEST(SuffixAutomaton, FindsTheLongestEndThatOccursBeforeOfAnySequence) {
  std::mt19937_64 random(1);
  for (int turn = 0; turn < 120; ++turn) {
    const auto n = static_cast<int32_t>(1 + random() % 150);
    const int32_t n_ids = turn % 3 == 0 ? 2 : turn % 3 == 1 ? 4 : 40;
    SuffixAutomaton automaton(150);
    if (turn % 2 == 1) {  // what was there before is forgotten
      for (int i = 0; i < 150; ++i) automaton.add(TokenId{static_cast<int32_t>(random() % 2)});
      automaton.clear();
    }
    Text text;
    for (int32_t i = 0; i < n; ++i) {
      const bool is_copy = i > 10 && random() % 4 != 0;
      text.push_back(is_copy ? text[static_cast<size_t>(i) - 7]
                             : TokenId{static_cast<int32_t>(random() % static_cast<uint64_t>(n_ids))});
      automaton.add(text.back());
      const SuffixAutomaton::Match& match = automaton.match();
      ASSERT_EQ(match.len, longest(text, text.size())) << turn << " " << i;
      if (match.len == 0) continue;
      ASSERT_TRUE(is_match(text, text.size(), match.first_end, match.len));
      ASSERT_TRUE(is_match(text, text.size(), match.last_end, match.len));
      ASSERT_LE(match.first_end, match.last_end);
    }
    EXPECT_EQ(Text(automaton.tokens().begin(), automaton.tokens().end()), text);
  }
}

// abcabxabc: after the second "abc" follows "ab"; the later "ab" has an x after it.
TEST(SuffixAutomaton, ReportsTheFirstOccurrenceAndALateOne) {
  SuffixAutomaton automaton(16);
  for (const char c : std::string("abcabxab")) automaton.add(TokenId{c});
  EXPECT_EQ(automaton.match().len, 2);
  EXPECT_EQ(automaton.match().first_end, 2);
  EXPECT_EQ(automaton.match().last_end, 5);
}

// Edges and states stay within the reserved memory, for the sequences that have the most of them.
TEST(SuffixAutomaton, HasRoomForTheWorstSequences) {
  constexpr int32_t kN = 3000;
  for (int kind = 0; kind < 3; ++kind) {
    SuffixAutomaton automaton(kN);
    for (int32_t i = 0; i < kN; ++i) {
      // abbb..., which has 2n states; abb...bc, which has 3n edges; all different
      const int32_t token = kind == 2 ? i : i == 0 ? 1 : kind == 1 && i + 1 == kN ? 3 : 2;
      automaton.add(TokenId{token});
    }
    EXPECT_TRUE(automaton.is_full());
  }
}

}  // namespace
}  // namespace ibid
