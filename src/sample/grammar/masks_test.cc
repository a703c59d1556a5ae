// Masks and states against brute force and against a recogniser from the textbook, over random grammars.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "sample/grammar/languages.h"
#include "sample/grammar/regex.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

std::bitset<256> all_bytes() { return std::bitset<256>().set(); }

std::shared_ptr<const Automaton> compiled(const Grammar& grammar) {
  auto made = Automaton::compile(grammar, {.bytes = all_bytes()});
  EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

std::shared_ptr<const Automaton> from_gbnf(std::string_view text) {
  Fuel fuel;
  Grammar grammar(fuel);
  const Status read = read_gbnf(text, {}, grammar);
  EXPECT_TRUE(read.ok()) << (read ? "" : read.error().message);
  return compiled(grammar);
}

bool matches(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  States states(automaton);
  const StateId end = states.after(kInitial, text);
  return end != kDead && states.accepts(end);
}

constexpr char kJson[] = R"(
root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (member ("," ws member)*)? "}"
member ::= string ":" ws value ws
array ::= "[" ws (value ws ("," ws value ws)*)? "]"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
ws ::= [ \n]{0,20}
)";

// Random grammars as data, so that both sides can read them: alternatives of symbols, negative ones terminals.
struct RandomGrammar {
  static constexpr const char* kTerminals[] = {"a", "b", "\xC3\xA9"};
  std::vector<std::vector<std::vector<int>>> rules;

  explicit RandomGrammar(std::mt19937& rng) {
    auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
    rules.resize(static_cast<size_t>(1 + below(6)));
    for (auto& rule : rules) {
      rule.resize(static_cast<size_t>(1 + below(3)));
      for (auto& alternative : rule) {
        alternative.resize(static_cast<size_t>(below(4)));
        for (int& symbol : alternative) symbol = below(2) == 0 ? -1 - below(3) : below(static_cast<int>(rules.size()));
      }
    }
  }

  void build(Grammar& g) const {
    for (size_t r = 0; r < rules.size(); ++r) g.add_rule("r");
    for (size_t r = 0; r < rules.size(); ++r) {
      std::vector<ExprId> choices;
      for (const auto& alternative : rules[r]) {
        std::vector<ExprId> parts;
        for (int s : alternative) parts.push_back(s < 0 ? g.text(kTerminals[-1 - s]) : g.call(static_cast<RuleId>(s)));
        choices.push_back(g.sequence(std::move(parts)));
      }
      g.define(static_cast<RuleId>(r), g.choice(std::move(choices)));
    }
    g.set_root(0);
  }
};

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

// Null where it has no text.
std::shared_ptr<const Automaton> compiled(const RandomGrammar& random) {
  Fuel fuel;
  Grammar grammar(fuel);
  random.build(grammar);
  auto made = Automaton::compile(grammar, {.bytes = all_bytes()});
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

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

// Random walks under masks, each compared with brute force.
void compare_masks(TokenMasks& masks, std::mt19937& rng, int n_steps) {
  std::vector<uint32_t> mask(masks.trie().mask_words());
  StateId state = kInitial;
  for (int step = 0; step < n_steps; ++step) {
    const uint32_t left = rng() % 3 == 0 ? static_cast<uint32_t>(rng() % 40) : TokenMasks::kNoLimit;
    masks.fill(state, mask, left);
    ASSERT_EQ(mask, testing::brute_force(masks, state, left)) << "step " << step << " left " << left;
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < masks.trie().vocab_size(); ++t)
      if (mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) allowed.push_back(t);
    if (allowed.empty()) {
      EXPECT_TRUE(masks.states().accepts(state) || left <= 1);
      state = kInitial;
    } else {
      state = masks.after(state, TokenId{allowed[rng() % allowed.size()]});
      ASSERT_NE(state, kDead);
    }
    if (rng() % 16 == 0) masks.forget_others(std::span<const StateId>(&state, 1));
  }
}

TEST(GrammarMasks, AreThoseOfBruteForceOnRandomGrammars) {
  std::mt19937 rng(6);
  auto trie = testing::adversarial("ab\xC3\xA9").trie();
  for (int round = 0; round < 150; ++round) {
    const RandomGrammar random(rng);
    const auto automaton = compiled(random);
    if (automaton == nullptr) continue;
    TokenMasks masks(automaton, trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 30)) << "round " << round;
  }
}

TEST(GrammarMasks, AreThoseOfBruteForceOnJsonAndCounters) {
  std::mt19937 rng(7);
  auto trie = testing::adversarial("{}[]\",:a1 \n").trie();
  for (const char* text :
       {kJson, "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]{3,300} \"\\\"\"",
        "root ::= [a-z]+ | [A-Z] [a-z0-9_-]{0,200} \"!\"", "root ::= (\"a\" | \"ab\" | [é日])* \".\"",
        "root ::= ([a-b]{2,40} \",\"){10,60}", "root ::= .*", "root ::= x{0,100000} \"b\"\nx ::= [a-z] | [^a-z\"]",
        "root ::= [0-9]{1,3} (\".\" [0-9]{2})?", "root ::= \"<\" [a-z]+ \"://\" [a-z.]+ (\":\" [0-9]{1,5})? \"a:\"",
        "root ::= [A-Z] [a-zA-Z0-9-]{0,60} [-,] [a-z]* \"!\"", "root ::= [a-z]{40,200} [a-z]* \"x\" [^a-z]{3}",
        "root ::= \"a\" | \"abb\" [^\"\\\\\\x00-\\x1f]* \"]\" | [^a\"\\\\\\x00-\\x1f] [^\"\\\\\\x00-\\x1f]* [\"]",
        "root ::= ([^/]+ \"/\"?)+", "root ::= [a-z0-9]* [^\\x00-\\x7f]{1,40} [a-z]+",
        "root ::= root \"a\" | \"b\" root | \"c\"", "root ::= (\"ab\" [a-z]{20,}){1,500}"}) {
    TokenMasks masks(from_gbnf(text), trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 150)) << text;
  }
}

// Blanks that stay where they are among letters that count, and dots, which take all but ends of lines.
TEST(GrammarMasks, AreThoseOfBruteForceOnPatternsWithBlanksAndDots) {
  testing::Words words = testing::adversarial("ab =/");
  for (const char* blank :
       {" ", "\n", "\xC2\xA0", "\xE2\x80\xA8", "\xE3\x80\x80", "\xE1\x9A\x80", "\xEF\xBB\xBF", "\xE2\x81\x9F"})
    for (const char* text : {"", "ab", "a b", "é", "\xE2\x80\xA7", "=", "abcabc", "\""}) {
      words.texts.push_back(std::string(text) + blank);
      words.texts.push_back(blank + std::string(text));
      words.texts.push_back(text + std::string(blank) + "ab" + text + blank + "abab");
    }
  const auto trie = words.trie();
  std::mt19937 rng(12);
  for (const char* text :
       {R"((?:\s*[A-Za-z]){5}=)", R"((?: *[a-zA-Z0-9+/]){43}(?:\s*=):)", R"(.+/.+\.a)", R"([^\s]+=(\S| )*)",
        R"(([a-z]+\s)*a{3})", R"([a-zé]{2,6}[ \u3000]?[a-z\u2028]*=)", R"((\s*[a-z]){3,}\s+/)"}) {
    Fuel fuel;
    Grammar grammar(fuel);
    const Status read_it = read_regex(text, grammar);
    ASSERT_TRUE(read_it.ok()) << text;
    TokenMasks masks(compiled(grammar), trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 200)) << text;
  }
}

// Each count of blanks is a state of its own, and all that a value may be begins in each.
// As many tokens begin with a mark as with letters, so what it leads to is worth a look of its own.
TEST(GrammarMasks, AreThoseOfBruteForceWhereMarksLeadElsewhere) {
  testing::Words words = testing::adversarial("ab.", 2);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 7; ++i)
    for (char c : std::string_view("ab.")) texts.push_back(texts[i] + c);
  for (const std::string& text : texts) {
    words.texts.push_back(text);
    if (text.size() < 4) words.texts.push_back(text + "\""), words.texts.push_back(text + " \n");
    if (text.size() == 3) words.texts.push_back(text + std::string(30, 'a')), words.texts.push_back(text + "\xC3");
  }
  const auto trie = words.trie();
  std::mt19937 rng(14);
  for (const char* text :
       {R"("[^". ]{1,6}(\.[^". ]{1,4}){1,3}")", R"([a-z]+(\.[a-f]*)*\.\n)", R"((\s*[a-z]){3}(\.[a-z]{2} ?){4})",
        R"([a-z.]{2,40}")", R"([a-z]*(\.[^b]{0,3})?")", R"(([a-z]|\.[a-z]){0,5}\.{3} \n)"}) {
    Fuel fuel;
    Grammar grammar(fuel);
    ASSERT_TRUE(read_regex(text, grammar).ok()) << text;
    TokenMasks masks(compiled(grammar), trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 60)) << text;
  }
}

TEST(GrammarMasks, AreThoseOfBruteForceWhereAnyValueMayBeginBehindBlanks) {
  testing::Words words = testing::adversarial("{[\",:a1 \n");
  for (size_t n = 1; n < 24; ++n)
    for (const char* lead : {"", "\n", "\n\n", ":", "[\n", "{\n", "1,\n", "\",\n"})
      for (const char* rest : {"", "\"", "[", "{\"", "12", "]", "true"})
        words.texts.push_back(lead + std::string(n, ' ') + rest);
  const auto trie = words.trie();
  std::mt19937 rng(13);
  for (const char* text : {R"(root ::= "[" ws value ("," ws value)* ws "]"
value ::= "{" ws "\"a\"" ":" ws value ("," ws "\"a" [a-z]* "\":" ws value)* ws "}" | root | string | number | "true"
string ::= "\"" [^"\\\x00-\x1F]* "\""
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})?
ws ::= (" " | "\n"{1,2} [ \t]{0,20})?)",
                           R"(root ::= ws value
value ::= [a1]{1,12} value | "[" ws value ws "]" | "\"" [a ]{0,40} "\""
ws ::= [ \n]{0,200})",
                           R"(root ::= "a"* root "x" | "b" | " "{0,30} root "1")"}) {
    TokenMasks masks(from_gbnf(text), trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 300)) << text;
  }
}

// What stays inside a string is told from what leaves it, of tokens that open one, however many and whatever the string
// may hold: all, all but a letter that no token begins with, so many, or what is no string.
TEST(GrammarMasks, AreThoseOfBruteForceWhereTokensOpenStrings) {
  testing::Words words;
  for (int b = 0; b < 256; ++b) words.texts.push_back(std::string(1, static_cast<char>(b)));
  const std::vector<std::string> parts = {"a", "é", "ü", "\xC3", "\x80", "\"", "\\n", "\n", ",", " ", "\x7F"};
  for (const char* lead : {"\"", " \"", "[\"", "\",\"", "a\"", "\n\""})
    for (const std::string& one : parts) {
      words.texts.push_back(lead + one);
      for (const std::string& two : parts) {
        words.texts.push_back(lead + one + two);
        for (const std::string& three : parts) words.texts.push_back(lead + one + two + three);
      }
    }
  const auto trie = words.trie();
  std::mt19937 rng(14);
  for (const char* text :
       {R"(root ::= "[" (" "? string ("," " "? string)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" [n"])* "\"")",
        R"(root ::= [ \n]* "\"" [^"\\\x00-\x1fü]* "\"" root | "]")",
        R"(root ::= (" "? "\"" [^"\\\x00-\x1f]{0,2} "\"" ","?)*)", R"(root ::= [^\x00]*)",
        R"(root ::= ([^"é] | "\"" [^"\x00-\x1f]* "\n")*)", R"(root ::= (" "? "\"" [a-z,é]* "\"")*)"}) {
    TokenMasks masks(from_gbnf(text), trie);
    ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 100)) << text;
  }
}

TEST(GrammarMasks, OfCountedTextsAtEachCount) {
  auto trie = testing::adversarial("ab\" ").trie();
  TokenMasks masks(from_gbnf(R"(root ::= "<" ([^"\\\x00-\x1f] | "\\" [nt"]){3,45} ">")"), trie);
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = masks.states().after(kInitial, "<");
  for (int n = 0; n <= 45; ++n, state = masks.states().next(state, 'a')) {
    masks.fill(state, mask);
    ASSERT_EQ(mask, testing::brute_force(masks, state)) << n;
  }
  TokenMasks digits(from_gbnf(R"(root ::= "<" [0-9]{3,150} ">")"), trie);
  state = digits.states().after(kInitial, "<");
  for (int n = 0; n <= 150; ++n, state = digits.states().next(state, '1')) {
    digits.fill(state, mask);
    ASSERT_EQ(mask, testing::brute_force(digits, state)) << n;
  }
}

// A state of few items, behind whose step there would be too many: what ends there ends for all that wait for it.
TEST(GrammarMasks, OfGrammarsOfManyReadingsForeseeStepsToTooManyPlaces) {
  auto trie = testing::adversarial("{}[]\",:a1 \n", 2).trie();
  TokenMasks masks(from_gbnf("root ::= root root | x{032} \n \" \"|x ::= root | \"a\""), trie);
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = kInitial;
  bool was_large = false;
  for (const char c : " " + std::string(4, ' ') + " a a" + std::string(4, ' ') + std::string(40, 'a')) {
    state = masks.states().next(state, static_cast<uint8_t>(c));
    ASSERT_NE(state, kDead);
    masks.fill(state, mask);
    ASSERT_EQ(mask, testing::brute_force(masks, state));
    was_large |= !masks.states().is_small(state);
  }
  EXPECT_TRUE(was_large);
}

// Behind a counter's last repeat may be more of what it counts.
TEST(GrammarMasks, GoOnBehindACounterAlsoWhereTokensRunOut) {
  auto trie = testing::adversarial("ab!").trie();
  TokenMasks masks(from_gbnf("root ::= [a-z]{200} [a-z]* (\"x\" | \"!yyyyyyyyyy\")"), trie);
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = masks.states().after(kInitial, std::string(185, 'a'));
  for (int n = 185; n <= 203; ++n, state = masks.states().next(state, 'a'))
    for (uint32_t left : {5u, 9u, TokenMasks::kNoLimit}) {
      masks.fill(state, mask, left);
      ASSERT_EQ(mask, testing::brute_force(masks, state, left)) << n;
    }
}

TEST(GrammarMasks, OfTokensThatTheGrammarNames) {
  std::mt19937 rng(8);
  auto trie = testing::adversarial("ab").trie();
  TokenMasks masks(from_gbnf("root ::= \"a\"* <[300]> (!<[301]> | \"ab\")* <[302]>"), trie);
  compare_masks(masks, rng, 300);
  EXPECT_NE(masks.after(kInitial, TokenId{300}), kDead);
  EXPECT_EQ(masks.after(kInitial, TokenId{301}), kDead);
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
TEST(GrammarStates, TellBytesApartInWhateverOrderTheyAreAsked) {
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

TEST(GrammarMasks, NeverLeadWhereTheVocabularyCannotGo) {
  testing::Words words;
  for (char c : std::string_view("abc")) words.texts.push_back(std::string(1, c));
  words.texts.push_back("ax");
  auto trie = words.trie();
  Fuel fuel;
  Grammar grammar(fuel);
  ASSERT_TRUE(read_gbnf("root ::= \"a\" (\"x\" | \"b\") \"c\" | \"d\"", {}, grammar).ok());
  auto made = Automaton::compile(grammar, {.bytes = trie->single_bytes()});
  ASSERT_TRUE(made.ok());
  TokenMasks masks(std::make_shared<const Automaton>(*std::move(made)), trie);
  EXPECT_EQ(masks.after(kInitial, TokenId{3}), kDead);  // behind x all would be well, but x alone has no token
  Grammar none(fuel);
  ASSERT_TRUE(read_gbnf("root ::= \"abcd\"", {}, none).ok());
  EXPECT_FALSE(Automaton::compile(none, {.bytes = trie->single_bytes()}).ok());
}

}  // namespace
}  // namespace ibid::grammar
