// Grammars that try to hang the server or eat its memory: what went wrong in other engines, in every language. Each is
// read and compiled, or refused with a sentence, within 250 ms of CPU and 36 MiB of heap (all but one within 32); the
// verdict is the same in many threads at once. Masks of what compiles are bounded too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hostile/limits.h"
#include "sample/grammar/source.h"
#include "sample/grammar/testing/vocabularies.h"
#include "sample/grammar/token_masks.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "replaced_new.h"  // for peak_bytes
#else
#include "allocation_hook.h"
#endif

namespace ibid::grammar {
namespace {

struct Bomb {
  std::string name;
  Source source;
};

std::string number(size_t n) { return std::to_string(n); }

// `begin` n times, then the middle, then `end` n times.
std::string nested(const std::string& begin, const std::string& middle, const std::string& end, size_t n) {
  return repeated(begin, n) + middle + repeated(end, n);
}

// part(0) part(1) ... part(n - 1), with commas between.
template <typename Part>
std::string listed(size_t n, Part&& part) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += (i > 0 ? "," : "") + part(i);
  return all;
}

std::vector<Bomb> expressions() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& text) {
    bombs.push_back(
        {"expression " + text.substr(0, 40) + " of " + number(text.size()), {Language::kRegex, false, text, {}}});
  };
  for (const char* text : {"foo**",
                           "(a+)+b",
                           "(a*)*",
                           "((a*)*)*",
                           "(a|a)*b",
                           "(a|aa)+$",
                           "(.*)*x",
                           "(.*.*)*x",
                           "(?=a)b",
                           "(?<=a)b",
                           "\\1(a)",
                           "(a)\\1",
                           "a{2,1}",
                           "a{,5}",
                           "*",
                           "+a",
                           "?",
                           "{1}",
                           "(",
                           ")",
                           "[",
                           "[]",
                           "[^]",
                           "[z-a]",
                           "\\",
                           "\\u{110000}",
                           "\\ud800",
                           "[\\ud800-\\udfff]",
                           "(?:",
                           "(?<",
                           "(?<n>a)(?<n>b)",
                           "a||b",
                           "(|)*",
                           "(|a)+",
                           "^^a$$",
                           "a^b",
                           "a$b",
                           "\\p{L}+",
                           "\\p{Nothing}",
                           "\\bword\\b",
                           ".{0,1000000000}",
                           "a{1000000000}",
                           "(a{1000}){1000}",
                           "((a{100}){100}){100}",
                           "(((a{0,99}){0,99}){0,99}){0,99}",
                           "(a?){500}a{500}",
                           "([a-z]{1,99}[0-9]{0,99}){1,99}",
                           "(x+x+)+y",
                           "^(([a-z])+.)+$",
                           "(.{1,500}|.{1,501}){1,50}"})
    add(text);
  for (size_t n : {100, 3000, 60000}) {
    add(nested("(", "a", ")", n));
    add(nested("(", "a", ")*", n));
    add(nested("(?:", "a", "|b)", n));
    add(nested("(", "a", "){2}", n));
    add(repeated("a?", n) + repeated("a", n));
    add(repeated("(a|b)*", n));
    add(repeated("[^a]{1,9}", n));
    add(repeated("a|", n) + "b");
    add(repeated(".*", n));
  }
  return bombs;
}

std::vector<Bomb> schemas() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& text) {
    for (bool is_strict : {false, true}) {
      if (is_strict && text.size() > 1000) break;
      bombs.push_back({"schema " + text.substr(0, 60) + " of " + number(text.size()),
                       {Language::kJsonSchema, is_strict, text, {}}});
    }
  };
  for (const char* text :
       {R"({"x-guidance":{"item_separator":"([ ]{0,1000}[\n]{0,1000}){1000},"}})",
        R"({"x-guidance":{"item_separator":"( ?){20}.{100}( ?){20},( |.){300}"},"type":"array"})",
        R"({"x-guidance":{"key_separator":"(( *)*)*:(( *)*)*"},"type":"object"})",
        R"({"x-guidance":{"whitespace_pattern":"( |\n|\t)*[^a]{1,1000000}"}})",
        R"({"x-guidance":{"whitespace_pattern":"(?: ?){5000}"},"type":"array","items":{"type":"array"}})",
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        "true",
        "false",
        "{\"$ref\":\"#\"}",
        "{\"allOf\":[{\"$ref\":\"#\"}]}",
        "{\"not\":{\"$ref\":\"#\"}}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
        "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
        "{\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
        "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
        "{\"minLength\":1000000000,\"type\":\"string\"}",
        "{\"maxLength\":1e300}",
        "{\"minItems\":1e9,\"type\":\"array\"}",
        "{\"type\":\"array\",\"maxItems\":1000000000,\"items\":{\"type\":\"array\",\"maxItems\":1000000000}}",
        "{\"minimum\":-1e308,\"maximum\":1e308,\"type\":\"integer\"}",
        "{\"multipleOf\":1e-300}",
        "{\"multipleOf\":0}",
        "{\"multipleOf\":0.000000123,\"minimum\":1e15}",
        "{\"minProperties\":1000000000}",
        "{\"maxProperties\":1000000000}",
        "{\"uniqueItems\":true,\"type\":\"array\"}",
        "{\"pattern\":\"(a+)+b\",\"maxLength\":100000}",
        "{\"pattern\":\"^(.{1,500}|.{1,501}){1,50}$\",\"minLength\":77}",
        "{\"format\":\"uri\",\"maxLength\":99,\"type\":\"string\"}",
        "{\"enum\":[]}",
        "{\"const\":\"\\u0000\"}",
        "{\"const\":\"\\ud800\"}",
        "{\"type\":[]}",
        "{\"type\":\"\"}",
        "{\"patternProperties\":{\"(a*)*\":{}},\"additionalProperties\":false}",
        "{\"contains\":{},\"minContains\":1000000000}"})
    add(text);
  for (size_t n : {10, 100, 3000}) {
    const std::string choice = "{\"type\":\"string\",\"maxLength\":";
    add("{\"enum\":[" + listed(10 * n, [](size_t i) { return "\"value " + number(i * 7919) + "\""; }) + "]}");
    const std::string values =
        "{\"enum\":[" + listed(10 * n, [](size_t i) { return "\"" + number(i * 31) + "\""; }) + "]}";
    add("{\"allOf\":[" + values + "," + values + "]}");
    for (const char* word : {"anyOf", "oneOf", "allOf"}) {
      add("{\"" + std::string(word) + "\":[" + listed(n, [&](size_t i) { return choice + number(i) + "}"; }) + "]}");
      add(nested("{\"" + std::string(word) + "\":[", "{}", "]}", n));
      add(nested("{\"" + std::string(word) + "\":[{\"maxLength\":9},", "{}", "]}", n));
    }
    add("{\"oneOf\":[" +
        listed(n,
               [](size_t i) {
                 return "{\"properties\":{\"p" + number(i) + "\":{\"pattern\":\"a.*" + number(i) + "\"}}}";
               }) +
        "]}");
    add("{\"properties\":{" + listed(n, [](size_t i) { return "\"tool" + number(i) + "\":{\"type\":\"object\"}"; }) +
        "}}");
    add("{\"patternProperties\":{" + listed(n, [](size_t i) { return "\"a.*" + number(i) + "\":{}"; }) + "}}");
    add(nested("{\"items\":", "{}", "}", n));
    add(nested("{\"not\":", "{}", "}", n));
    add(nested("{\"if\":{\"minLength\":3},\"then\":", "{}", "}", n));
    add("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" +
        listed(n,
               [&](size_t i) {
                 const std::string next = "{\"$ref\":\"#/$defs/d" + number((i + 1) % n) + "\"}";
                 return "\"d" + number(i) + "\":{\"properties\":{\"a\":" + next + ",\"b\":" + next + "}}";
               }) +
        "}}");
  }
  return bombs;
}

std::vector<Bomb> grammars() {
  std::vector<Bomb> bombs;
  const auto add = [&](Language language, const std::string& text) {
    bombs.push_back({"grammar " + text.substr(0, 40) + " of " + number(text.size()), {language, false, text, {}}});
  };
  for (const char* text :
       {"root ::= root", "root ::= root root | \"a\"", "root ::= a\na ::= b\nb ::= a", "root ::= \"a\"{1000000000}",
        "root ::= (\"a\"{1000}){1000}", "root ::= [^]", "root ::= [", "root ::=", "::=", "root ::= \"", "root ::= x",
        "root ::= root | root | root | \"\"", "root ::= (\"\"*)*", "root ::= \"\\xFF\"", "root ::= <[99999999999]>",
        "root ::= . root . | root root root | \"\"", "root ::= (.{0,99} root?){0,99}"})
    add(Language::kGbnf, text);
  for (const char* text :
       {"start: start", "start: start start | \"a\"", "start: A\nA: A", "start: /(a+)+b/", "start: \"a\"~1000000000",
        "start: %json {\"$ref\":\"#\"}", "start:", ":", "%ignore", "start: /(?=a)/", "%ignore /(.*)*/\nstart: \"a\"*"})
    add(Language::kLark, text);
  for (const char* text :
       {"{}", "{\"format\":{}}", "[]", "{\"format\":{\"type\":\"any_text\"}}",
        "{\"format\":{\"type\":\"star\",\"content\":{\"type\":\"star\",\"content\":{\"type\":\"any_text\"}}}}"})
    add(Language::kStructuralTag, text);
  for (size_t n : {100, 3000, 60000}) {
    add(Language::kGbnf, "root ::= " + nested("(", "\"a\"", ")", n));
    add(Language::kGbnf, "root ::= " + nested("(", "\"a\"", ")*", n));
    add(Language::kGbnf, "root ::= " + nested("[", "a", "]", n));
    add(Language::kLark, "start: " + nested("(", "\"a\"", ")", n));
    add(Language::kStructuralTag, nested("{\"format\":{\"type\":\"star\",\"content\":", "{}", "}}", n));
    std::string chain = "root ::= r0\n";
    for (size_t i = 0; i < n; ++i) chain += "r" + number(i) + " ::= r" + number(i + 1) + " r" + number(i + 1) + "\n";
    add(Language::kGbnf, chain + "r" + number(n) + " ::= \"a\"\n");
  }
  Source many;
  many.language = Language::kChoices;
  for (size_t i = 0; i < 100000; ++i) many.choices.push_back("choice " + number(i * 7919));
  bombs.push_back({"a hundred thousand choices", many});
  many.choices.assign(2, std::string(1 << 20, 'x'));
  bombs.push_back({"two choices of a mebibyte", many});
  return bombs;
}

// The sentence that a source is refused with; empty: it compiles.
std::string verdict(const Source& source, const TokenTrie& trie, std::shared_ptr<const Automaton>* compiled = nullptr) {
  Fuel fuel;
  Grammar grammar(fuel);
  if (Status status = read(source, {}, grammar); !status.ok()) return status.error().message;
  auto automaton = Automaton::compile(grammar, {.bytes = trie.single_bytes()});
  if (!automaton) return automaton.error().message;
  if (compiled != nullptr) *compiled = std::make_shared<const Automaton>(*std::move(automaton));
  return "";
}

void walk(std::shared_ptr<const Automaton> automaton, const std::shared_ptr<const TokenTrie>& trie) {
  TokenMasks masks(std::move(automaton), trie);
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = kInitial;
  for (int step = 0; step < 8 && state != kDead; ++step) {
    masks.fill(state, mask);
    size_t word = 0;
    while (word < mask.size() && mask[word] == 0) ++word;
    if (word == mask.size()) break;
    state = masks.after(state, TokenId{static_cast<int32_t>(32 * word) + std::countr_zero(mask[word])});
  }
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::vector<Bomb> bombs() {
  std::vector<Bomb> all;
  for (auto& kind : {expressions(), schemas(), grammars()}) all.insert(all.end(), kind.begin(), kind.end());
  return all;
}

TEST(HostileGrammar, EachCompilesOrIsRefusedWithASentenceInTimeAndMemory) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  const std::vector<Bomb> all = bombs();
  EXPECT_GT(all.size(), 200u);
  for (const Bomb& bomb : all) {
    const int64_t before = ibid::testing::live_bytes;
    ibid::testing::peak_bytes = before;
    const double begin = processor_seconds();
    std::shared_ptr<const Automaton> compiled;
    const std::string says = verdict(bomb.source, *trie, &compiled);
    const double judged = processor_seconds();
    if (kMeasured) {
      EXPECT_LT(judged - begin, 0.25) << bomb.name;
      EXPECT_LT(ibid::testing::peak_bytes - before, 36 << 20) << bomb.name;
    }
    if (compiled) walk(std::move(compiled), trie);
    if (kMeasured) {
      EXPECT_LT(processor_seconds() - judged, 0.5) << bomb.name;
    }
    if (!says.empty()) expect_sentence(invalid(says), bomb.name);
  }
}

TEST(HostileGrammar, VerdictsAreTheSameInSixteenThreads) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  std::vector<Bomb> some;
  for (const Bomb& bomb : bombs())
    if (bomb.source.text.size() < 40'000 && bomb.source.choices.empty()) some.push_back(bomb);
  std::vector<std::string> expected(some.size());
  for (size_t i = 0; i < some.size(); ++i) expected[i] = verdict(some[i].source, *trie);
  std::vector<std::string> said(some.size());
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (size_t i = next++; i < some.size(); i = next++) said[i] = verdict(some[i].source, *trie);
    });
  threads.clear();
  EXPECT_EQ(said, expected);
}

}  // namespace
}  // namespace ibid::grammar
