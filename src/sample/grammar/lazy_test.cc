// What may follow a text in a grammar, against the grammar itself; and answers that are free up to a trigger.
#include "sample/grammar/lazy.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <regex>

#include "sample/grammar/languages.h"
#include "sample/grammar/matcher.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

// Rules that call each other as they like, left-recursive and nullable ones among them; the last rule is the root.
RuleId random_rules(std::mt19937& rng, Grammar& g) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
  const uint32_t n_rules = 1 + below(4);
  std::vector<RuleId> rules;
  for (uint32_t r = 0; r < n_rules; ++r) rules.push_back(g.add_rule("r" + std::to_string(r)));
  const auto letter = [&] { return g.text(std::string(1 + below(2), static_cast<char>('a' + below(3)))); };
  const auto part = [&](auto& self, int depth) -> ExprId {
    switch (below(depth == 0 ? 3 : 7)) {
      case 0:
        return letter();
      case 1:
        return g.call(rules[below(n_rules)]);
      case 2:
        return g.byte('a', static_cast<uint8_t>('a' + below(3)));
      case 3:
        return g.sequence({self(self, depth - 1), self(self, depth - 1), letter()});
      case 4:
        return g.choice({self(self, depth - 1), self(self, depth - 1), letter()});
      case 5: {
        const uint32_t min = below(3);
        return g.repeat(self(self, depth - 1), min, below(2) == 0 ? kUnbounded : min + below(3));
      }
      default: {
        Graph graph;
        graph.n_states = 3;
        for (int edges = 4; edges > 0; --edges) {
          if (below(2) == 0) {
            graph.edges.push_back({below(3), below(3), 'a', static_cast<uint8_t>('a' + below(3))});
          } else {
            graph.edges.push_back({below(3), below(3), 0, 0, self(self, depth - 1)});
          }
        }
        graph.accepting = {below(3)};
        return g.graph(std::move(graph));
      }
    }
  };
  for (const RuleId rule : rules) g.define(rule, g.choice({part(part, 2), letter()}));
  g.set_root(rules.back());
  return rules.back();
}

std::shared_ptr<const Automaton> automaton(const Grammar& g) {
  auto made = Automaton::compile(g, {.bytes = std::bitset<256>().set()});
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

bool holds(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  if (automaton == nullptr) return false;
  States states(automaton);
  const StateId end = states.after(kInitial, text);
  return end != kDead && states.accepts(end);
}

TEST(GrammarLazy, FollowingATextIsTheDerivativeOfTheGrammar) {
  std::mt19937 rng(11);
  int n_held = 0;
  for (int round = 0; round < 400; ++round) {
    Fuel fuel;
    Grammar g(fuel);
    random_rules(rng, g);
    const auto whole = automaton(g);
    std::string text;
    for (uint32_t n = 1 + static_cast<uint32_t>(rng() % 4); n > 0; --n) text += static_cast<char>('a' + rng() % 3);
    g.set_root(g.rule("after", following(text, g)));
    const auto derived = automaton(g);
    for (int i = 0; i < 60; ++i) {
      std::string rest;
      for (auto n = rng() % 6; n > 0; --n) rest += static_cast<char>('a' + rng() % 3);
      const bool is_held = holds(whole, text + rest);
      ASSERT_EQ(holds(derived, rest), is_held) << "round " << round << ": " << text << " + " << rest;
      n_held += is_held;
    }
  }
  EXPECT_GT(n_held, 1000);
}

TEST(GrammarLazy, AnAnswerIsFreeUpToATriggerAndOfTheGrammarFromItOn) {
  Fuel fuel;
  Grammar g(fuel);
  ASSERT_TRUE(read_gbnf("root ::= \"<call>\" name \"(\" [0-9]{1,3} \")\"\nname ::= \"f\" | \"go\"", {}, g).ok());
  ASSERT_TRUE(wait_for({{.text = "<call>"}, {.text = "<call>g"}, {.text = "<no>"}}, g).ok());
  const auto lazy = automaton(g);
  for (const char* text : {"", "free", "<cal", "a<call>f(1)", "<<call>go(12)", "<call><", "x<call>f(123)"}) {
    const std::string_view answer = text;
    const size_t at = answer.find("<call>");
    EXPECT_EQ(holds(lazy, answer), at == answer.npos || answer.ends_with(')')) << text;
  }
  for (const char* text : {"<call>h(1)", "<call>f()", "<call>f(1) and more", "<no>", "<call>f(1234)"})
    EXPECT_FALSE(holds(lazy, text)) << text;
}

// Repeats nest without brackets: what goes through a grammar by calls is not begun with.
TEST(GrammarLazy, RefusesWhatIsNestedTooDeeply) {
  Fuel fuel;
  Grammar g(fuel);
  ASSERT_TRUE(read_gbnf("root ::= \"a\"" + std::string(60'000, '?'), {}, g).ok());
  const Status waits = wait_for({{.text = "a"}}, g);
  ASSERT_FALSE(waits.ok());
  EXPECT_NE(waits.error().message.find("nested too deeply"), std::string::npos);
}

// Whatever of another trigger, or of itself, stands before one.
TEST(GrammarLazy, FindsATriggerWhereverItBegins) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 9; ++i) texts.push_back(texts[i] + 'a'), texts.push_back(texts[i] + 'b');
  const std::vector<std::vector<std::string>> all = {{"aab"}, {"abab"}, {"bbab", "aaa"}, {"abba", "bab"}, {"babaa"}};
  for (const auto& words : all) {
    Fuel fuel;
    Grammar g(fuel);
    std::string rules = "root ::= \"" + words[0] + "!\"";
    if (words.size() > 1) rules += " | \"" + words[1] + "!\"";
    ASSERT_TRUE(read_gbnf(rules, {}, g).ok());
    std::vector<Trigger> triggers;
    for (const std::string& word : words) triggers.push_back({.text = word});
    ASSERT_TRUE(wait_for(triggers, g).ok());
    const auto lazy = automaton(g);
    for (const std::string& text : texts) {
      size_t first = text.size() + 1;  // the end of the first to end
      for (const std::string& word : words)
        if (const size_t at = text.find(word); at != text.npos) first = std::min(first, at + word.size());
      ASSERT_EQ(holds(lazy, text), first > text.size()) << words[0] << " in " << text;
      ASSERT_EQ(holds(lazy, text + '!'), first >= text.size()) << words[0] << " in " << text << '!';
    }
  }
}

// Every text of a few letters, by length.
std::vector<std::string> texts_of(size_t longest) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < longest; ++i)
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  return texts;
}

// Against a pattern, read part by part: the first place where it ends, and each way to end there.
TEST(GrammarLazy, APatternAnnouncesTheGrammarWhereItIsFound) {
  const std::vector<std::string> texts = texts_of(5);
  const char* const parts[] = {"", "a*", "b?", "[ab]", "c", "(?:a|bc)", "[^c]*?", "(?:ab)+", "[\\s\\S]*"};
  const char* const groups[] = {"a+", "b", "c[ab]?", "a|bc", "[ab]{2}"};
  std::mt19937 rng(3);
  int n_found = 0, n_held = 0;
  for (int round = 0; round < 60; ++round) {
    Fuel fuel;
    Grammar g(fuel);
    random_rules(rng, g);
    const auto whole = automaton(g);
    const std::string piece[] = {parts[rng() % std::size(parts)], groups[rng() % std::size(groups)],
                                 parts[rng() % std::size(parts)]};
    const bool has_group = rng() % 3 > 0, is_search = rng() % 2 == 0;
    const std::string pattern = piece[0] + (has_group ? "(" : "(?:") + piece[1] + ")" + piece[2];
    std::map<std::string, std::array<bool, 3>> is_of;  // by text and piece
    std::array<std::regex, 3> regexes = {std::regex(piece[0]), std::regex(piece[1]), std::regex(piece[2])};
    std::map<std::string, bool> is_held;
    for (const std::string& text : texts) {
      for (size_t i = 0; i < 3; ++i) is_of[text][i] = std::regex_match(text, regexes[i]);
      is_held[text] = holds(whole, text);
    }
    const Status waits = wait_for(
        {{.text = pattern, .kind = is_search ? Trigger::Kind::kPattern : Trigger::Kind::kWhole}, {.text = "ccc"}}, g);
    ASSERT_TRUE(waits.ok()) << pattern << ": " << waits.error().message;
    const auto lazy = automaton(g);
    for (const std::string& text : texts) {
      bool is_found = false, expected = false;
      for (size_t end = 1; end <= text.size() && !is_found; ++end) {
        if (text.substr(0, end).ends_with("ccc")) is_found = true, expected = is_held[text.substr(end - 3)];
        for (size_t begin = 0; begin <= (is_search ? end : 0); ++begin)
          for (size_t i = begin; i <= end; ++i)
            for (size_t j = i; j <= end; ++j) {
              if (!is_of[text.substr(begin, i - begin)][0] || !is_of[text.substr(i, j - i)][1] ||
                  !is_of[text.substr(j, end - j)][2])
                continue;
              is_found = true;
              expected = expected || is_held[text.substr(has_group ? i : begin)];
            }
      }
      if (!is_found) expected = true;
      ASSERT_EQ(holds(lazy, text), expected) << pattern << (is_search ? " in " : " is ") << text;
      n_found += is_found, n_held += is_found && expected;
    }
  }
  EXPECT_GT(n_found, 5000);
  EXPECT_GT(n_held, 200);
}

TEST(GrammarLazy, APatternThatCannotBeWaitedForIsRefused) {
  const auto waits = [](const std::string& pattern, Trigger::Kind kind = Trigger::Kind::kPattern) {
    Fuel fuel;
    Grammar g(fuel);
    EXPECT_TRUE(read_gbnf("root ::= [a-z]*", {}, g).ok());
    Status made = wait_for({{.text = pattern, .kind = kind}}, g);
    return made ? std::string() : made.error().message;
  };
  for (const char* pattern :
       {"a", "^a", "a$", "^(?:x|y(a)|b)$", "x(a)?b", "[\\s\\S]*?(<tool_call>)[\\s\\S]*", "(a)|(b)"})
    EXPECT_EQ(waits(pattern), "") << pattern;
  for (const char* pattern :
       {"", "a*", "(a*)b", "(a)*b", "(?:x(a)){2}", "a^b", "a$b", "(?!a)b", "\\bx", "a(", "(a)\\1"})
    EXPECT_NE(waits(pattern), "") << pattern;
  std::string ways;
  for (int i = 0; i < 7; ++i) ways += "(?:(?:a(b)|c)?d|e)";
  EXPECT_NE(waits(ways), "");
  EXPECT_NE(waits("(a|b)*a(?:a|b){24}c"), "");  // its steps
}

// Tokens over the trigger's end are masked by what stands after it.
TEST(GrammarLazy, MasksAreThoseOfBruteForce) {
  const testing::Words words = testing::adversarial("ab[");
  const auto trie = words.trie();
  const std::vector<Trigger> waits[] = {
      {{.text = "ab"}, {.text = "b[", .token = 3}},
      {{.text = "[^b]*(a+b)", .kind = Trigger::Kind::kPattern}, {.text = "b[", .token = 3}},
      {{.text = "\\s*(?:\\[é?)?(ab|b)[^]*", .kind = Trigger::Kind::kWhole}, {.text = "[["}}};
  std::mt19937 rng(5);
  for (int round = 0; round < 90; ++round) {
    Fuel fuel;
    Grammar g(fuel);
    ASSERT_TRUE(read_gbnf("root ::= \"a\"* \"b\" ([a] root | \"[\" root? \"]\")", {}, g).ok());
    ASSERT_TRUE(wait_for(waits[round % 3], g).ok());
    TokenMasks masks(compile(g, *trie).value(), trie);
    StateId state = kInitial;
    for (int step = 0; step < 12 && state != kDead; ++step) {
      std::vector<uint32_t> mask(trie->mask_words(), 0);
      masks.fill(state, mask, TokenMasks::kNoLimit);
      ASSERT_EQ(mask, testing::brute_force(masks, state)) << round << ", step " << step;
      std::vector<TokenId> allowed;
      for (int32_t t = 0; t < trie->vocab_size(); ++t)
        if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(TokenId{t});
      if (allowed.empty()) break;
      state = masks.after(state, allowed[rng() % allowed.size()]);
    }
  }
}

// A place of a word has the target of each byte.
TEST(GrammarLazy, TextThatMayBecomeATriggerIsHeldBack) {
  constexpr int64_t kLetters = 2000, kPlace = 256 * 4;
  Fuel fuel, little(kCompileSteps, kLetters * kPlace);
  for (Fuel* given : {&fuel, &little}) {
    Grammar grammar(*given);
    ASSERT_TRUE(read_gbnf("root ::= \"<" + std::string(kLetters, 'a') + "\" [b]", {}, grammar).ok());
    const bool is_ok = wait_for({{.text = "<" + std::string(kLetters, 'a')}}, grammar).ok() && !given->is_empty();
    EXPECT_EQ(is_ok, given == &fuel);
  }
  EXPECT_GE(fuel.most_held(), kLetters * kPlace);
  EXPECT_EQ(fuel.bytes_left(), kCompileBytes) << "all is given back";
}

}  // namespace
}  // namespace ibid::grammar
