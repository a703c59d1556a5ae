// Masks against brute force, over random grammars and such as have been wrong.
#include <gtest/gtest.h>

#include <random>

#include "sample/grammar/regex.h"
#include "sample/grammar/testing/automata.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

using testing::compiled;
using testing::from_gbnf;
using testing::kJson;
using testing::RandomGrammar;

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

// Each count of blanks is a state of its own, and all that a value may be begins in each.
TEST(GrammarMasks, AreThoseOfBruteForceWhereAnyValueMayBeginAfterBlanks) {
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

// Tokens that open a string are separated into those that stay inside and those that leave it, however many and
// whatever the string may hold: all, all but a letter that no token begins with, so many, or what is no string.
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

// A state of few items whose step would lead to too many: what ends there ends for all that wait for it.
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

// After a counter's last repeat may be more of what it counts.
TEST(GrammarMasks, GoOnAfterACounterAlsoWhereTokensRunOut) {
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
  ASSERT_NO_FATAL_FAILURE(compare_masks(masks, rng, 300));
  EXPECT_NE(masks.after(kInitial, TokenId{300}), kDead);
  EXPECT_EQ(masks.after(kInitial, TokenId{301}), kDead);
}

// What each prefix of a token leads to is a state of its own, of 1,800 items: thousands of them would be made for one
// mask, in a step of others.
TEST(GrammarMasks, OfTextsOfTooManyReadingsAreBounded) {
  testing::Words words = testing::adversarial("ab");
  for (char a = 'a'; a <= 'z'; ++a)
    for (char b = 'a'; b <= 'z'; ++b)
      for (char c = 'a'; c <= 'z'; ++c) {
        words.texts.push_back({a, b, c});
        words.texts.push_back({a, b, c, a});
      }
  std::string text = "root ::= (";
  for (char a = 'a'; a <= 'z'; ++a) text += std::string("\"") + a + "\" root \"" + a + "\" | ";
  for (int i = 0; i < 1800; ++i) text += "r" + std::to_string(i) + (i < 1799 ? " | " : ") \"!\"\n");
  for (int i = 0; i < 1800; ++i) text += "r" + std::to_string(i) + " ::= \"1\"\n";
  TokenMasks masks(from_gbnf(text), words.trie());
  std::vector<uint32_t> mask(masks.trie().mask_words());
  for (const uint32_t left : {TokenMasks::kNoLimit, 2000u}) {
    masks.fill(kInitial, mask, left);
    EXPECT_TRUE(std::ranges::all_of(mask, [](uint32_t word) { return word == 0; })) << "it is lost";
    EXPECT_LT(masks.states().n_made(), 5000u);
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
  EXPECT_EQ(masks.after(kInitial, TokenId{3}), kDead);  // after x all would be well, but x alone has no token
  Grammar none(fuel);
  ASSERT_TRUE(read_gbnf("root ::= \"abcd\"", {}, none).ok());
  EXPECT_FALSE(Automaton::compile(none, {.bytes = trie->single_bytes()}).ok());
}

}  // namespace
}  // namespace ibid::grammar
