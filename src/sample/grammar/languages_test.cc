// What grammars in Lark and structural tags accept and refuse, and that errors name the place.
#include "sample/grammar/languages.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "sample/grammar/matcher.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

// Which of these texts are whole ones of a grammar.
class Read {
 public:
  Read(Language language, std::string text) {
    Fuel fuel;
    Grammar grammar(fuel);
    const FindToken find = [](std::string_view name) { return name == "<end>" ? TokenId{7} : TokenId::kNone; };
    const Status done = read({.language = language, .text = std::move(text)}, find, grammar);
    if (!done) {
      error_ = done.error().message;
      return;
    }
    auto made = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
    if (made) {
      automaton_ = std::make_shared<const Automaton>(*std::move(made));
    } else {
      error_ = made.error().message;
    }
  }
  const std::string& error() const { return error_; }
  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  bool holds(std::string_view text) const {
    if (automaton_ == nullptr) return false;
    States states(automaton_);
    const StateId end = states.after(kInitial, text);
    return end != kDead && states.accepts(end);
  }

 private:
  std::shared_ptr<const Automaton> automaton_;
  std::string error_;
};

void expect(const Read& grammar, std::initializer_list<std::string_view> held,
            std::initializer_list<std::string_view> others) {
  EXPECT_EQ(grammar.error(), "");
  for (std::string_view text : held) EXPECT_TRUE(grammar.holds(text)) << text;
  for (std::string_view text : others) EXPECT_FALSE(grammar.holds(text)) << text;
}

TEST(GrammarLark, IgnoresBetweenTerminalsAndNotInThem) {
  const Read sum(Language::kLark, R"x(
// sums
start: sum
?sum: product
    | sum "+" product   -> add   # left recursion
product: atom | product "*" atom
!atom: NUMBER | "(" sum ")" | "max"i [ "!" ]
NUMBER: DIGIT+ ("." DIGIT+)?
%import common.DIGIT
%import common.(WS, LETTER)
%ignore WS
)x");
  expect(sum, {"1", "1+2", " 1.5 * ( 2+3 ) ", "MaX!+1", "max"}, {"", "1 2", "1. 5", "m ax", "1+", "(1"});
}

TEST(GrammarLark, HasRangesRepeatsExpressionsAndAlternatives) {
  expect(
      Read(Language::kLark, "start: \"a\"..\"c\"~2 /[0-9]{2}/ (\"x\" | \"\\u00e9\")~1..2 | \"\\\"\" A{2,3}\nA: \"q\""),
      {"ab12x", "cc00éx", "\"qq", "\"qqq"}, {"a12x", "ab1x", "ab12", "ab12xxx", "\"q", "qq"});
  expect(Read(Language::kLark,
              "start: %json {\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[\"}\"]}},"
              "\"required\":[\"a\"],\"additionalProperties\":false} \";\""),
         {"{\"a\":\"}\"};"}, {"{};", "{\"a\":\"}\"}"});
}

TEST(GrammarLark, CapturesDoNotChangeTheLanguage) {
  expect(
      Read(Language::kLark, "%llguidance {}\n\nstart: a b\na[capture]: \"x\"\nb[ capture = \"it\" , capture]: \"y\""),
      {"xy"}, {"x", "xyy"});
  for (const char* wrong :
       {"start: a\na[max_tokens=5]: \"x\"", "start: a\na[capture, lazy]: \"x\"", "start[: \"x\"",
        "start[capture: \"x\"", "start[capture=it]: \"x\"", "start[]: \"x\"", "start[capture=\"x]: \"x\""})
    EXPECT_EQ(Read(Language::kLark, wrong).automaton(), nullptr) << wrong;
}

TEST(GrammarLark, NamesTokens) {
  const Read grammar(Language::kLark, "start: <end> <[1-3,5]> <[^5]> <[*]>");
  ASSERT_NE(grammar.automaton(), nullptr) << grammar.error();
  TokenMasks masks(grammar.automaton(), testing::adversarial("ab").trie());
  EXPECT_EQ(masks.after(kInitial, TokenId{5}), kDead);
  StateId state = masks.after(kInitial, TokenId{7});
  ASSERT_NE(state, kDead);
  EXPECT_EQ(masks.after(state, TokenId{4}), kDead);
  state = masks.after(state, TokenId{5});
  ASSERT_NE(state, kDead);
  EXPECT_EQ(masks.after(state, TokenId{5}), kDead);
  EXPECT_NE(masks.after(state, TokenId{4}), kDead);
}

// The same language in two spellings has the same masks.
TEST(GrammarLark, HasTheMasksOfTheSameInGbnf) {
  const auto trie = testing::adversarial("{}\"a1, ").trie();
  const Read lark(Language::kLark,
                  "start: v\nv: \"{\" (p (\",\" p)*)? \"}\" | N\np: S \":\" v\nS: /\"[a-z]{1,40}\"/\n"
                  "N: \"1\"..\"9\" /[0-9]/*\n%ignore \" \"");
  const Read gbnf(Language::kGbnf,
                  "root ::= v w\nv ::= w \"{\" (p (w \",\" p)*)? w \"}\" | w n\np ::= w s w \":\" v\n"
                  "s ::= \"\\\"\" [a-z]{1,40} \"\\\"\"\nn ::= [1-9] [0-9]*\nw ::= \" \"*");
  ASSERT_NE(lark.automaton(), nullptr) << lark.error();
  ASSERT_NE(gbnf.automaton(), nullptr) << gbnf.error();
  TokenMasks a(lark.automaton(), trie), b(gbnf.automaton(), trie);
  std::vector<uint32_t> mask(trie->mask_words()), other(trie->mask_words());
  const std::string text = " {\"ab\" :{}, \"aaaa\": 120 } ";
  for (size_t n = 0; n <= text.size(); ++n) {
    const StateId at = a.states().after(kInitial, text.substr(0, n)),
                  same = b.states().after(kInitial, text.substr(0, n));
    ASSERT_NE(at, kDead) << n;
    a.fill(at, mask), b.fill(same, other);
    EXPECT_EQ(mask, other) << text.substr(0, n);
    EXPECT_EQ(a.states().accepts(at), b.states().accepts(same)) << n;
  }
}

TEST(GrammarLark, NamesUnsupportedSyntax) {
  for (const char* text : {"",
                           "start: a",
                           "start \"a\"",
                           "start: \"a",
                           "start: /a",
                           "start: (\"a\"",
                           "start[lazy]: \"a\"",
                           "start.2: \"a\"",
                           "start: /a/i",
                           "start: A\nA: b\nb: \"c\"",
                           "start: \"a\"\nstart: \"b\"",
                           "%import python.NAME\nstart: NAME",
                           "%import common.NONE\nstart: NONE",
                           "start: \"b\"..\"a\"",
                           "start: \"a\"~3..2",
                           "start: <nobody>",
                           "start: @a",
                           "%declare X\nstart: X",
                           "start: %json {",
                           "start: t{\"a\"}\nt{x}: x",
                           "start: \"\\q\"",
                           "start: \"a\" & \"b\"",
                           "start: a\na: a \"x\""})
    EXPECT_NE(Read(Language::kLark, text).error(), "") << text;
}

TEST(GrammarStructuralTag, IsFreeTextUpToATriggerAndATagAfterIt) {
  const Read calls(Language::kStructuralTag, R"x({"format":{"type":"triggered_tags","triggers":["<f="],"tags":[
    {"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"},
    {"begin":"<f=b>","content":{"type":"regex","pattern":"x+"},"end":"</f>"}]}})x");
  expect(calls, {"", "free text < f=", "<f=a>12</f>", "so: <f=b>xx</f> and <f=a>0</f>.", "<<f=a>1</f>", "<f"},
         {"<f=", "<f=c>", "<f=a>x</f>", "<f=b>xx", "<f=a>12</f><f=b></f>"});
  const Read one(Language::kStructuralTag,
                 R"x({"format":{"type":"triggered_tags","triggers":["<t>"],"at_least_one":true,
    "stop_after_first":true,"tags":[{"begin":"<t>","content":{"type":"any_text"},"end":"</t>"}],"excludes":["no"]}})x");
  expect(one, {"<t></t>", "yes <t>no < /t></t>"}, {"", "yes", "<t></t>.", "no <t></t>", "<t>"});
  const Read many(Language::kStructuralTag,
                  R"x({"format":{"type":"triggered_tags","triggers":["<t>"],"at_least_one":true,
    "tags":[{"begin":"<t>","content":{"type":"const_string","value":"1"},"end":["a","b"]}]}})x");
  expect(many, {"<t>1a", "x<t>1b y <t>1a z"}, {"", "x", "<t>1c"});
}

// A trigger may end within the begin of another.
TEST(GrammarStructuralTag, TheTriggerThatEndsFirstCounts) {
  expect(Read(Language::kStructuralTag, R"x({"format":{"type":"triggered_tags","triggers":["ab1","b"],"tags":[
    {"begin":"ab12","content":{"type":"const_string","value":""},"end":"."},
    {"begin":"b","content":{"type":"const_string","value":"x"},"end":";"}]}})x"),
         {"a", "abx;", "aabx;a", "bx;bx;"}, {"ab", "ab12.", "ab1", "b", "abx"});
}

TEST(GrammarStructuralTag, HasTheOlderForm) {
  expect(Read(Language::kStructuralTag, R"x({"type":"structural_tag","structures":[{"begin":"<function=f>",
    "schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},
    "end":"</function>"}],"triggers":["<function="]})x"),
         {"hello", "<function=f>{\"a\":1}</function> done"}, {"<function=g>", "<function=f>{}</function>"});
}

TEST(GrammarStructuralTag, HasAllFormats) {
  expect(Read(Language::kStructuralTag, R"x({"type":"sequence","elements":[{"type":"const_string","value":"<"},
    {"type":"or","elements":[{"type":"grammar","grammar":"root ::= [ab]{2}"},{"type":"regex","pattern":"[0-9]"}]},
    {"type":"optional","content":{"type":"const_string","value":"?"}},
    {"type":"repeat","min":1,"max":2,"content":{"type":"const_string","value":"!"}},
    {"type":"tags_with_separator","separator":",","at_least_one":true,"tags":[
      {"type":"tag","begin":"(","content":{"type":"sequence","elements":[{"type":"const_string","value":"t"},
        {"type":"any_text"}]},"end":")"}]
}]
})x"),
         {"<ab!(t)", "<7?!!(tx y),(t()"}, {"<ab(t)", "<ab!", "<a!(t)", "<ab!!!(t)", "<ab!(t),", "<ab!(x)"});
  expect(Read(Language::kStructuralTag, R"x({"type":"any_text"})x"), {"", "\xFF any", "é"}, {});
}

TEST(GrammarStructuralTag, ErrorsNameTheFault) {
  for (
      const char* text :
      {"", "[]", "{}", R"x({"type":"nothing"})x", R"x({"format":{"type":"tag","begin":"a","end":"b"}})x",
       R"x({"type":"triggered_tags","triggers":["x"],"tags":[{"begin":"y","content":{"type":"any_text"},"end":"z"}]})x",
       R"x({"type":"triggered_tags","triggers":[""],"tags":[{"begin":"y","content":{"type":"any_text"},"end":"z"}]})x",
       R"x({"type":"sequence","elements":[]})x", R"x({"type":"regex","pattern":"("})x",
       R"x({"type":"json_schema","json_schema":{},"style":"qwen_xml"})x", R"x({"type":"const_string","value":1})x",
       R"x({"type":"repeat","content":{"type":"any_text"},"min":3,"max":2})x",
       R"x({"structures":[],"triggers":["a"]})x"})
    EXPECT_NE(Read(Language::kStructuralTag, text).error(), "") << text;
}

// Masks after every byte of free text and tags are those of brute force.
TEST(GrammarStructuralTag, MasksAreThoseOfBruteForce) {
  const Read calls(Language::kStructuralTag, R"x({"format":{"type":"triggered_tags","triggers":["{\"a", "aa1"],"tags":[
    {"begin":"{\"a\":","content":{"type":"json_schema","json_schema":{"type":"string"}},"end":"}"},
    {"begin":"aa11","content":{"type":"any_text"},"end":"}}"}]}})x");
  ASSERT_NE(calls.automaton(), nullptr) << calls.error();
  TokenMasks masks(calls.automaton(), testing::adversarial("{}\"a1").trie());
  std::vector<uint32_t> mask(masks.trie().mask_words());
  const std::string text = "a a{\"a\":\"é1\"}} \xC3 aaa11}é}} {\"";
  for (size_t n = 0; n <= text.size(); ++n) {
    const StateId at = masks.states().after(kInitial, text.substr(0, n));
    ASSERT_NE(at, kDead) << n;
    masks.fill(at, mask);
    EXPECT_EQ(mask, testing::brute_force(masks, at)) << text.substr(0, n);
  }
}

// Names of members in every spelling of JSON: a listed one is never taken for another.
TEST(GrammarSchema, MembersThatAreNotListedHaveOtherNames) {
  const std::vector<std::string> pieces = {"a", "ab", "\\\"", "\\\\", "\\n", "\\u0001", "\\u001f", "é", "ê", "日", "u"};
  std::mt19937 rng(9);
  for (int round = 0; round < 100; ++round) {
    std::set<std::string> listed;
    const auto name = [&] {
      std::string made;
      for (auto n = rng() % 4; n > 0; --n) made += pieces[rng() % pieces.size()];
      return made;
    };
    std::string properties;
    for (auto n = 1 + rng() % 5; n > 0; --n) {
      const std::string made = name();
      if (!listed.insert(made).second) continue;
      properties += (properties.empty() ? "\"" : ",\"") + made + R"(":{"const":1})";
    }
    const Read object(Language::kJsonSchema, "{\"type\":\"object\",\"properties\":{" + properties +
                                                 "},\"additionalProperties\":{\"const\":2}}");
    for (int i = 0; i < 60; ++i) {
      const std::string member = i < static_cast<int>(listed.size()) ? *std::next(listed.begin(), i) : name();
      expect(object, {"{\"" + member + "\":" + (listed.contains(member) ? "1}" : "2}")},
             {"{\"" + member + "\":" + (listed.contains(member) ? "2}" : "1}")});
    }
  }
}

}  // namespace
}  // namespace ibid::grammar
