// Expressions against ECMAScript's own engine of the standard library, on short texts.
#include "sample/grammar/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "sample/grammar/states.h"

namespace ibid::grammar {
namespace {

TEST(GrammarRegex, MeansWhatEcmaScriptMeans) {
  std::mt19937 rng(3);
  const char* atoms[] = {"a",        "b",   ".",   "[ab]",  "[^a]", "^", "$", "(a|b)",
                         "(?:ab|c)", "\\d", "\\w", "[a-c]", "()",   "c", "x?"};
  const char* repeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}"};
  int n_found = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int n = 1 + static_cast<int>(rng() % 4); n > 0; --n) {
      const std::string atom = atoms[rng() % std::size(atoms)];
      text += atom + (atom == "^" || atom == "$" || atom == "x?" ? "" : repeats[rng() % std::size(repeats)]);
      if (n > 1 && rng() % 5 == 0) text += "|";
    }
    std::regex expected(text, std::regex::ECMAScript);
    Fuel fuel;
    auto search = read_regex(text, RegexUse::kSearch, fuel);
    auto whole = read_regex(text, RegexUse::kWhole, fuel);
    Grammar grammar(fuel);
    ASSERT_TRUE(search.ok() && whole.ok() && read_regex(text, grammar).ok()) << text;
    auto automaton = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
    std::unique_ptr<States> states;
    if (automaton) states = std::make_unique<States>(std::make_shared<const Automaton>(*std::move(automaton)));
    for (int i = 0; i < 30; ++i) {
      std::string sample;
      for (int n = static_cast<int>(rng() % 6); n > 0; --n) sample += "abcx1"[rng() % 5];
      ASSERT_EQ(search->accepts(sample), std::regex_search(sample, expected)) << text << " in " << sample;
      const bool is_whole = std::regex_match(sample, expected);
      ASSERT_EQ(whole->accepts(sample), is_whole) << text << " is " << sample;
      const StateId end = states ? states->after(kInitial, sample) : kDead;
      ASSERT_EQ(end != kDead && states->accepts(end), is_whole) << text << " derives " << sample;
      n_found += is_whole;
    }
  }
  EXPECT_GT(n_found, 3000);
}

bool found(std::string_view regex, std::string_view text) {
  Fuel fuel;
  auto dfa = read_regex(regex, RegexUse::kSearch, fuel);
  EXPECT_TRUE(dfa.ok()) << regex << (dfa ? "" : dfa.error().message);
  return dfa && dfa->accepts(text);
}

TEST(GrammarRegex, ClassesAreThoseOfTheStandard) {
  EXPECT_FALSE(found("^\\d$", "\u0663"));
  EXPECT_TRUE(found("^\\s$", "\uFEFF"));
  EXPECT_FALSE(found("^\\S$", "\u00A0"));
  EXPECT_FALSE(found("^.$", "\u2028"));
  EXPECT_TRUE(found("^.$", "😀"));
  EXPECT_FALSE(found("^a$", "a\n"));
  EXPECT_TRUE(found("^\\p{L}+$", "Übergröße"));
  EXPECT_FALSE(found("^\\p{Lu}$", "ü"));
  EXPECT_TRUE(found("^\\u{1F600}$", "😀"));
  EXPECT_TRUE(found("^\\ud83d\\ude00$", "😀"));
  EXPECT_TRUE(found("^[\\w.-]+@[^\\s@]+$", "a.b-c@d.e"));
  EXPECT_TRUE(found("a{,3}", "a{,3}"));
  EXPECT_TRUE(found("^a{2,x}$", "a{2,x}"));
  // A half of a pair begins or ends a range as others do, and is in no text.
  EXPECT_TRUE(found("^[^\\ud800-\\udfff]$", "-"));
  EXPECT_FALSE(found("[\\ud800-\\udfff]", "-"));
  EXPECT_FALSE(found("^[\\ud800-\\udbff][\\udc00-\\udfff]$", "--"));
  for (const char* text : {"a", "-", "\u20AC", "\uD7FF"}) EXPECT_TRUE(found("^[\\u0000-\\udfff]$", text)) << text;
  EXPECT_FALSE(found("^[\\u0000-\\udfff]$", "\uE000"));
  EXPECT_TRUE(found("^[\\ud800-\\uffff]$", "\uE000"));
  // After a class there is no range: both and the hyphen are meant.
  EXPECT_FALSE(found("^[\\w-.-z]$", "@"));
  for (const char* text : {"a", "-", "."}) EXPECT_TRUE(found("^[\\w-.-z]$", text)) << text;
  EXPECT_TRUE(found("^[\\d--a]$", "-"));
  EXPECT_TRUE(found("^[\\d--a]$", "a"));
  EXPECT_FALSE(found("^[\\d--a]$", "."));
  EXPECT_TRUE(found("^(?!foo)[a-z]+$", "fob"));
  EXPECT_FALSE(found("^(?!foo)[a-z]+$", "foobar"));
}

TEST(GrammarRegex, RefusesWhatIsNotRegularAndWhatIsNoExpression) {
  for (const char* text : {"(a)\\1",
                           "a(?=b)",
                           "(?<=a)b",
                           "\\bword",
                           "(",
                           ")",
                           "a**",
                           "foo**",
                           "[a",
                           "\\",
                           "+a",
                           "a{2,1}",
                           "\\q",
                           "[b-a]",
                           "\\p{Greek}",
                           "a{99999999}",
                           "(?i)a",
                           "\xFF",
                           "a{3000000000}",
                           "a{1,99999999999999999999}",
                           "a{2}{3}",
                           "a*{3}",
                           "a{2}?{3}",
                           "{3}",
                           "^{2}",
                           "\\P{Alphabetic}"}) {
    Fuel fuel;
    EXPECT_FALSE(read_regex(text, RegexUse::kSearch, fuel).ok()) << text;
  }
}

TEST(GrammarRegex, ALookAheadHoldsOfOneChoiceAlone) {
  Fuel fuel;
  const std::string text("^(?!a)\0b|c", 10);
  EXPECT_FALSE(read_regex(text, RegexUse::kSearch, fuel).ok());
}

TEST(GrammarRegex, CostsItsAutomatonAndNotItsBacktracking) {
  EXPECT_FALSE(found("^(a+)+b$", std::string(5000, 'a')));
  Fuel fuel;
  Grammar grammar(fuel);  // 2^20 subsets, were it made deterministic
  ASSERT_TRUE(read_regex("(a|b)*a(a|b){20}", grammar).ok());
  auto automaton = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
  ASSERT_TRUE(automaton.ok());
  States states(std::make_shared<const Automaton>(*std::move(automaton)));
  EXPECT_TRUE(states.accepts(states.after(kInitial, "bbbbabbbbbbbbbbbbbbbbbbbb")));
  EXPECT_FALSE(states.accepts(states.after(kInitial, "bbbabbbbbbbbbbbbbbbbbbbbb")));
}

}  // namespace
}  // namespace ibid::grammar
