// States against a recogniser from the textbook, over random grammars; and what they keep and forget.
#include <gtest/gtest.h>

#include <ctime>
#include <set>

#include "sample/grammar/testing/automata.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

using testing::compiled;
using testing::from_gbnf;
using testing::kJson;
using testing::matches;
using testing::RandomGrammar;

// The same by fixpoints over all parts of a text: slow, and short enough to be believed.
class Textbook {
 public:
  Textbook(const RandomGrammar& g, std::string text) : g_(g), s_(std::move(text)), n_(s_.size()) {
    const size_t n_rules = g_.rules.size();
    whole_.assign(n_rules, std::set<std::pair<size_t, size_t>>());
    productive_.assign(n_rules, false);
    begun_.assign(n_rules, std::vector<bool>(n_ + 1, false));
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < n_rules; ++r)
        for (const auto& alternative : g_.rules[r]) {
          bool all = true;
          for (int s : alternative) all &= s < 0 || productive_[static_cast<size_t>(s)];
          if (all && !productive_[r]) productive_[r] = changed = true;
          for (size_t i = 0; i <= n_; ++i)
            for (size_t j : ends(alternative, alternative.size(), i)) changed |= whole_[r].insert({i, j}).second;
        }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < n_rules; ++r)
        for (const auto& alternative : g_.rules[r])
          for (size_t i = 0; i <= n_; ++i)
            if (!begun_[r][i] && begins(alternative, i)) begun_[r][i] = changed = true;
    }
  }
  bool accepts() const { return whole_[0].contains({0, n_}); }
  bool is_prefix() const { return begun_[0][0]; }

 private:
  std::set<size_t> ends(const std::vector<int>& alternative, size_t count, size_t i) const {
    std::set<size_t> at = {i};
    for (size_t k = 0; k < count; ++k) {
      std::set<size_t> next;
      for (size_t p : at) {
        if (alternative[k] < 0) {
          const std::string t = RandomGrammar::kTerminals[-1 - alternative[k]];
          if (s_.compare(p, t.size(), t) == 0) next.insert(p + t.size());
        } else {
          for (auto [from, to] : whole_[static_cast<size_t>(alternative[k])])
            if (from == p) next.insert(to);
        }
      }
      at = next;
    }
    return at;
  }
  // Whether it derives some text that begins with s[i..].
  bool begins(const std::vector<int>& alternative, size_t i) const {
    for (int s : alternative)
      if (s >= 0 && !productive_[static_cast<size_t>(s)]) return false;
    if (ends(alternative, alternative.size(), i).contains(n_)) return true;
    for (size_t k = 0; k < alternative.size(); ++k)
      for (size_t p : ends(alternative, k, i)) {
        if (p == n_) return true;
        if (alternative[k] >= 0) {
          if (begun_[static_cast<size_t>(alternative[k])][p]) return true;
        } else if (std::string(RandomGrammar::kTerminals[-1 - alternative[k]]).starts_with(s_.substr(p))) {
          return true;
        }
      }
    return false;
  }

  const RandomGrammar& g_;
  std::string s_;
  size_t n_;
  std::vector<std::set<std::pair<size_t, size_t>>> whole_;
  std::vector<bool> productive_;
  std::vector<std::vector<bool>> begun_;
};

TEST(GrammarStates, AgreeWithATextbookOnRandomGrammars) {
  std::mt19937 rng(5);
  int n_alive = 0, n_accepted = 0;
  for (int round = 0; round < 600; ++round) {
    const RandomGrammar random(rng);
    const auto automaton = compiled(random);
    if (automaton == nullptr) {
      EXPECT_FALSE(Textbook(random, "").is_prefix());
      continue;
    }
    States states(automaton);
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (int n = static_cast<int>(rng() % 7); n > 0; --n) text += RandomGrammar::kTerminals[rng() % 3];
      if (rng() % 8 == 0) text += '\xC3';
      const Textbook expected(random, text);
      const StateId state = states.after(kInitial, text);
      ASSERT_EQ(state != kDead, expected.is_prefix()) << "round " << round << " text " << text;
      ASSERT_EQ(state != kDead && states.accepts(state), expected.accepts()) << "round " << round << " text " << text;
      n_alive += state != kDead, n_accepted += expected.accepts();
    }
  }
  EXPECT_GT(n_alive, 3000);
  EXPECT_GT(n_accepted, 1000);
}

TEST(GrammarStates, CountRepeats) {
  const auto automaton = from_gbnf("root ::= \"<\" ([a-z] | \"é\"){3,500} \">\" (\"x\" \"y\"?){70,} ");
  auto text = [](int n, int m) {
    std::string made = "<";
    for (int i = 0; i < n; ++i) made += i % 3 == 0 ? "é" : "q";
    made += ">";
    for (int i = 0; i < m; ++i) made += i % 2 == 0 ? "xy" : "x";
    return made;
  };
  for (int n : {0, 2, 3, 4, 499, 500, 501})
    for (int m : {0, 69, 70, 71, 200}) EXPECT_EQ(matches(automaton, text(n, m)), n >= 3 && n <= 500 && m >= 70);
}

// A transition is made for all bytes that the same edges read, and for no other.
TEST(GrammarStates, TransitionsDoNotDependOnTheOrderOfQueries) {
  const auto automaton = from_gbnf(R"(root ::= x | y | z
x ::= [a-m] x? "1"
y ::= [f-z]+ "2"
z ::= [b-cj-kx] root? "3")");
  const std::string letters = "abcefjklmnwxyz";
  for (char first : letters) {
    States asked(automaton);
    EXPECT_NE(asked.next(kInitial, static_cast<uint8_t>(first)), kDead);
    for (char second : letters) {
      for (const char* tail : {"1", "2", "3", "b1", "n2", "x3", "x33"}) {
        const std::string text = second + std::string(tail);
        const StateId end = asked.after(kInitial, text);
        EXPECT_EQ(end != kDead && asked.accepts(end), matches(automaton, text)) << first << " before " << text;
      }
    }
  }
}

TEST(GrammarStates, NeverGrowInLoopsAndInRightRecursion) {
  const auto automaton = from_gbnf("root ::= list\nlist ::= item | item \",\" list\nitem ::= \"a\" | \"[\" list \"]\"");
  States states(automaton);
  StateId state = states.after(kInitial, "a,a,a,[a,a,a,");
  const size_t n_states = states.n_states();
  for (int i = 0; i < 1000; ++i) state = states.after(state, "a,");
  EXPECT_EQ(states.n_states(), n_states);
  EXPECT_TRUE(states.accepts(states.after(state, "a]")));
}

TEST(GrammarStates, KeepTheirIdsWhileOthersAreForgotten) {
  std::mt19937 rng(9);
  TokenMasks masks(from_gbnf(kJson), testing::adversarial("{}[]\",:a1 \n").trie());
  States fresh(from_gbnf(kJson));
  const std::string text = R"({"a": [1, {"b": "x", "c": [[true]]}], "d": "e"})";
  std::vector<StateId> kept = {kInitial};
  for (size_t i = 0; i < text.size(); ++i) {
    kept.push_back(masks.states().next(kept.back(), static_cast<uint8_t>(text[i])));
    ASSERT_NE(kept.back(), kDead);
    if (rng() % 4 == 0) masks.forget_others(kept);
  }
  for (size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(masks.states().accepts(masks.states().after(kept[i], text.substr(i))), true);
    EXPECT_EQ(masks.states().shortest(kept[i]), fresh.shortest(fresh.after(kInitial, text.substr(0, i))));
  }
}

// A chain of calls against their numbers, each of which waits for the one before.
TEST(GrammarStates, MeasureAChainOfRulesInOneGo) {
  std::string text = "root ::= \"a\" root \"a\" | r1900 \"x\"\nr1 ::= \"1\"\n";
  for (int i = 2; i <= 1900; ++i) text += "r" + std::to_string(i) + " ::= r" + std::to_string(i - 1) + " \"x\"\n";
  const auto automaton = from_gbnf(text);
  ASSERT_NE(automaton, nullptr);
  States states(automaton);
  const double begin = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  StateId state = kInitial;
  for (uint32_t n = 0; n < 100; ++n) {
    ASSERT_EQ(states.shortest(state), 1901 + 2 * n - n);
    state = states.next(state, 'a');
    ASSERT_NE(state, kDead);
  }
  EXPECT_LT(static_cast<double>(std::clock()) / CLOCKS_PER_SEC - begin, 5) << "0.2 s a state, were it by rounds";
  EXPECT_TRUE(states.accepts(states.after(kInitial, "a1" + std::string(1900, 'x') + "a")));
}

TEST(GrammarStates, KnowTheShortestWayToAnEnd) {
  std::mt19937 rng(10);
  for (int round = 0; round < 200; ++round) {
    const RandomGrammar random(rng);
    const auto automaton = compiled(random);
    if (automaton == nullptr) continue;
    States states(automaton);
    std::string text;
    for (int n = static_cast<int>(rng() % 4); n > 0; --n) text += RandomGrammar::kTerminals[rng() % 3];
    const StateId begin = states.after(kInitial, text);
    if (begin == kDead) continue;
    std::set<StateId> level = {begin};
    uint32_t length = 0;
    for (; length < 12; ++length) {
      if (std::any_of(level.begin(), level.end(), [&](StateId s) { return states.accepts(s); })) break;
      std::set<StateId> next;
      for (StateId s : level)
        for (uint32_t b : {0x61u, 0x62u, 0xC3u, 0xA9u})
          if (states.next(s, b) != kDead) next.insert(states.next(s, b));
      level = next;
    }
    if (length < 12) {
      EXPECT_EQ(states.shortest(begin), length) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace ibid::grammar
