// Grammars that requests share: compiled once, within a budget, and no request loses its states.
#include "sample/grammar/grammars.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "sample/grammar/lazy.h"
#include "sample/grammar/rules_bytes.h"
#include "sample/grammar/testing/random_texts.h"
#include "sample/grammar/testing/vocabularies.h"

#include "spelled_tokens.h"

namespace ibid::grammar {
namespace {

const SpelledTokens& tokens() {
  static const SpelledTokens made(testing::adversarial("{}\"a1").texts);
  return made;
}

std::shared_ptr<const TokenTrie> tokens_trie() {
  static const auto made = testing::adversarial("{}\"a1").trie();
  return made;
}

Source schema_of_type(const std::string& type) {
  return {.language = Language::kJsonSchema, .text = "{\"type\":" + type + "}"};
}
Source regex(std::string text) { return {.language = Language::kRegex, .text = std::move(text)}; }

TEST(Grammars, AreCompiledOnceForAllOfATenant) {
  Grammars grammars(tokens());
  const auto first = grammars.get(regex("a+"), "alice").value();
  EXPECT_EQ(grammars.get(regex("a+"), "alice").value(), first);
  EXPECT_NE(grammars.get(regex("a+"), "bob").value(), first);
  EXPECT_NE(grammars.get(regex("a*"), "alice").value(), first);
  EXPECT_NE(grammars.get({.language = Language::kGbnf, .text = "root ::= \"a\"+"}, "alice").value(), first);
  EXPECT_EQ(grammars.size(), 4u);
}

struct Made {
  Source text;
  bool may_reason = false;
  std::vector<std::string> words;
  std::string last;
};

Status make_words(const Made& of, const Tokenizer&, const FindToken& find, Grammar& out) {
  TRY(read(of.text, find, out));
  std::vector<ExprId> choices = {out.call(out.root()), out.text(of.may_reason ? "a" : "{"), out.text(of.last)};
  for (const std::string& word : of.words) choices.push_back(out.text(word));
  out.set_root(out.rule("made", out.choice(std::move(choices))));
  return {};
}

// Each of the parts alone makes another grammar, and another key.
TEST(Grammars, MadeGrammarIsKeyedByEachOfItsParts) {
  const Made first{.text = regex("1+"), .words = {"a", "1a"}, .last = "}"};
  std::vector<Made> others(6, first);
  others[0].text = regex("1*");
  others[1].text.is_strict = true;
  others[2].may_reason = true;
  others[3].words = {"a1a"};
  others[4].words.push_back("11");
  others[5].last = "\"";
  Grammars grammars(tokens());
  const auto made = [&](const Made& of, const std::string& tenant = "alice") {
    return grammars.made<Made>(of, tenant, make_words).value();
  };
  const auto known = made(first);
  std::set<std::shared_ptr<Compiled>> all = {known};
  for (const Made& other : others) all.insert(made(other));
  EXPECT_EQ(all.size(), 7u);
  EXPECT_NE(made(first, "bob"), known);
  EXPECT_EQ(made(Made{.text = regex("1+"), .words = {"a", "1a"}, .last = "}"}), known);
  // Rules of a record are no parts, whatever bytes they are.
  EXPECT_FALSE(grammars.get({.language = Language::kMade, .text = known->source().text}, "alice").ok());
}

TEST(Grammars, RefusedGrammarIsNotCompiledAgain) {
  Grammars grammars(tokens(), 1 << 20);
  // Wrong in itself, and refused by a server that makes it.
  const auto refuse = [](const Made&, const Tokenizer&, const FindToken&, Grammar&) -> Status {
    return invalid("No.", "tools");
  };
  const auto first = grammars.get(schema_of_type("\"nothing\""), "alice"), wrong = grammars.get(regex("a("), "alice");
  ASSERT_FALSE(first.ok());
  ASSERT_FALSE(wrong.ok());
  ASSERT_FALSE(grammars.made<Made>(Made(), "alice", refuse).ok());
  EXPECT_EQ(grammars.n_compiled(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(grammars.get(schema_of_type("\"nothing\""), "alice").error().message, first.error().message);
    EXPECT_EQ(grammars.get(regex("a("), "alice").error().message, wrong.error().message);
    EXPECT_EQ(grammars.made<Made>(Made(), "alice", refuse).error().where, "tools");
  }
  EXPECT_EQ(grammars.n_compiled(), 3);
  EXPECT_FALSE(grammars.get(regex("a("), "bob").ok());
  EXPECT_EQ(grammars.n_compiled(), 4) << "a tenant cannot detect what another asked for";
  // They have a bound, and are of their tenant.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_FALSE(grammars.get(regex("(" + std::string(1000, 'a') + std::to_string(i)), "mallory").ok());
    ASSERT_LE(grammars.bytes(), size_t{256} << 10);
  }
  EXPECT_LT(grammars.size(), 300u);
  const int64_t n_before = grammars.n_compiled();
  EXPECT_FALSE(grammars.get(regex("a("), "alice").ok());
  EXPECT_EQ(grammars.n_compiled(), n_before);
}

TEST(Grammars, TenantWithManyGrammarsEvictsItsOwnOnly) {
  Grammars grammars(tokens(), 32 << 20);
  const Source source = regex("[a-z]{3,60}1");
  const auto mine = grammars.get(source, "alice").value();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_TRUE(grammars.get({.language = Language::kChoices, .choices = {"a" + std::to_string(i)}}, "mallory").ok());
    ASSERT_LE(grammars.bytes(), size_t{8} << 20);
  }
  EXPECT_EQ(grammars.get(source, "alice").value(), mine);
  EXPECT_LT(grammars.size(), 40u);
}

// Schemas that differ in all parts that a cache's key could miss: names, limits, lists, patterns, references, nesting.
Source schema(int i) {
  const std::string n = std::to_string(i);
  const std::string kinds[] = {
      R"({"type":"object","properties":{"a)" + n + R"(":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]})",
      R"({"type":"integer","minimum":)" + n + R"(,"maximum":)" + n + "7}",
      R"({"enum":["x)" + n + R"(",)" + n + R"(,null,[)" + n + "]]}",
      R"({"type":"string","pattern":"^[a-c]{1,4}-)" + n + R"($"})",
      R"({"$defs":{"d)" + n + R"(":{"type":"array","items":{"$ref":"#/$defs/d)" + n + R"("}}},"$ref":"#/$defs/d)" + n +
          "\"}",
      R"({"anyOf":[{"const":)" + n + R"(},{"type":"array","prefixItems":[{"const":")" + n + R"("}],"maxItems":3}]})",
      R"({"type":"string","minLength":)" + std::to_string(i % 50) + R"(,"maxLength":)" + std::to_string(50 + i) + "}",
      R"({"type":"array","items":{"type":"object","properties":{"k":{"const":"v)" + n +
          R"("}},"additionalProperties":false}})"};
  return {.language = Language::kJsonSchema, .is_strict = true, .text = kinds[i % 8]};
}

// Somebody's schema, of which a text is under way, beside `n` different ones of another.
void withstand_schemas(int n) {
  Grammars grammars(tokens(), 32 << 20);
  const Source source = schema(0);
  const auto mine = grammars.get(source, "alice").value();
  Matcher matcher(mine, {}, 1);
  std::vector<uint32_t> before(matcher.mask_words()), after(before.size());
  matcher.fill(kInitial, 8, before);
  EXPECT_TRUE(std::ranges::any_of(before, [](uint32_t word) { return word != 0; }));
  size_t most = 0;
  for (int i = 0; i < n; ++i) {
    const auto made = grammars.get(schema(i), "mallory");
    ASSERT_TRUE(made.ok()) << schema(i).text << made.error().message;
    most = std::max(most, grammars.bytes());
  }
  EXPECT_LE(most, size_t{8} << 20) << "a quarter of all";
  EXPECT_GT(most, size_t{4} << 20) << "there were enough to fill it";
  EXPECT_LE(grammars.taken(), size_t{32} << 20);
  EXPECT_LT(grammars.size(), static_cast<size_t>(n));
  EXPECT_EQ(grammars.get(source, "alice").value(), mine);
  matcher.fill(kInitial, 8, after);
  EXPECT_EQ(before, after);
}

TEST(Grammars, TenantWithManySchemasEvictsItsOwnOnly) { withstand_schemas(2'000); }
TEST(SlowGrammars, TenantWithAHundredThousandSchemasEvictsItsOwnOnly) { withstand_schemas(100'000); }

TEST(Grammars, TakeNoMoreTogetherThanTheyMay) {
  constexpr size_t kMost = 4 << 20;
  Grammars grammars(tokens(), kMost);
  const auto ask = [&](int i) { return grammars.get(regex("[a-z]{3,60}" + std::to_string(i)), "mallory"); };
  std::vector<std::shared_ptr<Compiled>> used;
  for (int i = 0;; ++i) {
    ASSERT_LT(i, 1000);
    auto compiled = ask(i);
    if (!compiled) {
      EXPECT_EQ(compiled.error().kind, ErrorKind::kExhausted);
      break;
    }
    used.push_back(*std::move(compiled));
  }
  EXPECT_GT(used.size(), 8u);
  EXPECT_GT(grammars.taken(), kMost);
  EXPECT_LT(grammars.taken(), kMost + kMost / used.size() * 2) << "one too many, at most";
  EXPECT_EQ(grammars.size(), 0u) << "what is kept goes first";
  EXPECT_FALSE(ask(0).ok()) << "nor is one in use found again that is not kept";
  used.clear();
  EXPECT_EQ(grammars.taken(), 0u);
  EXPECT_TRUE(ask(0).ok());
}

// Where all of them are near what they may take, states and masks that no text needs go before their own budget is
// full.
TEST(Grammars, ForgetStatesWhereTheyAreTooMany) {
  const auto taken_by = [](size_t most) {
    Grammars grammars(tokens(), most);
    const auto compiled = grammars.get(regex("([a-z]{1,30}[0-9]{1,30}){1,200}")).value();
    Matcher matcher(compiled, {}, 1);
    std::mt19937 random(1);
    size_t highest = 0;
    testing::draw_texts(matcher, random, 50, [&] { highest = std::max(highest, grammars.taken()); });
    return highest;
  };
  const size_t free = taken_by(size_t{1} << 30);
  EXPECT_GT(free, size_t{1} << 20);
  EXPECT_LT(taken_by(1), free / 2);
}

TEST(Grammars, LetNothingFollowWhereATextIsLost) {
  Grammars grammars(tokens());
  Matcher matcher(grammars.get(regex("[a-z]{3,60}1")).value(), {TokenId{0}}, 1);
  std::vector<uint32_t> mask(matcher.mask_words(), ~0u);
  matcher.fill(kDead, -1, mask);
  EXPECT_EQ(std::ranges::count(mask, 0u), std::ssize(mask));
  EXPECT_EQ(matcher.after(0, kDead, TokenId{1}), kDead);
  EXPECT_FALSE(matcher.accepts(kDead) || matcher.is_closed(kDead));
}

TEST(Grammars, SpellingsDifferWhereMasksDo) {
  std::set<std::string> spelled;
  for (bool closes_in_time : {false, true})
    for (bool is_strict : {false, true})
      for (Language language : {Language::kJsonSchema, Language::kRegex})
        for (const char* text : {"{}", "[]"})
          spelled.insert(spell({.language = language, .is_strict = is_strict, .text = text}, closes_in_time));
  spelled.insert(spell({.language = Language::kChoices, .choices = {"ab", "c"}}, false));
  spelled.insert(spell({.language = Language::kChoices, .choices = {"a", "bc"}}, false));
  EXPECT_EQ(spelled.size(), 18u);
}

// Requests of one grammar on threads of their own, with hardly any memory, each against a walk of its own.
TEST(Grammars, AreWalkedByManyAtOnceAsByOne) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  const char* schema = "root ::= \"{\" (\"\\\"\" [a-z]{1,40} \"\\\":\" (root | [0-9]{1,30}) \",\"?)* \"}\"";
  const Source source{.language = Language::kGbnf, .text = schema};
  Fuel fuel;
  Grammar grammar(fuel);
  ASSERT_TRUE(read(source, {}, grammar).ok());
  const auto automaton = compile(grammar, *trie).value();
  auto shared = std::make_shared<Compiled>(source, automaton, trie, 1 << 13);
  std::vector<std::thread> threads;
  std::atomic<int> n_compared = 0, n_differing = 0;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 rng(seed);
      Matcher matcher(shared, {}, 2);
      TokenMasks own(automaton, trie);
      std::vector<uint32_t> mask(trie->mask_words()), expected(trie->mask_words());
      StateId state[2] = {kInitial, kInitial}, own_state[2] = {kInitial, kInitial};
      for (int step = 0; step < 400; ++step) {
        const size_t c = rng() % 2;
        // On trial, as drafts are: held only after the last.
        for (unsigned n = 1 + rng() % 3; n > 0; --n) {
          matcher.fill(state[c], -1, mask);
          own.fill(own_state[c], expected);
          ++n_compared, n_differing += mask != expected;
          std::vector<int32_t> allowed;
          for (int32_t t = 0; t < trie->vocab_size(); ++t)
            if (expected[static_cast<size_t>(t) / 32] >> (t % 32) & 1) allowed.push_back(t);
          if (allowed.empty()) {
            state[c] = own_state[c] = kInitial;
            break;
          }
          const TokenId token{allowed[rng() % allowed.size()]};
          state[c] = matcher.after(static_cast<int32_t>(c), state[c], token);
          own_state[c] = own.after(own_state[c], token);
        }
        matcher.hold(static_cast<int32_t>(c), state[c]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GT(n_compared, 2000);
  EXPECT_EQ(n_differing, 0);
}

// What a record keeps of a grammar that a server made.
TEST(GrammarRules, AsBytesAreTheSameRules) {
  const auto trie = tokens_trie();
  std::mt19937 rng(17);
  int n_refused = 0;
  for (const auto& [language, text] : std::vector<std::pair<Language, const char*>>{
           {Language::kGbnf, "root ::= root \"a\" | [^a-f]{2,300} | \"\" <a> | \"}\"*"},
           {Language::kRegex, "(a|é)*1{3,200}[^]?"},
           {Language::kLark, "start: \"a\" <[1-3,7]> | <[*]> %json {\"type\":\"integer\"}"},
           {Language::kJsonSchema,
            R"({"type":"object","properties":{"a":{"$ref":"#"},"1":{"type":"string","pattern":"a+"}}})"},
           {Language::kJsonObject, ""}}) {
    Fuel fuel;
    Grammar grammar(fuel);
    ASSERT_TRUE(read(
                    {.language = language, .text = text}, [](std::string_view) { return TokenId{5}; }, grammar)
                    .ok());
    if (language == Language::kGbnf) {
      ASSERT_TRUE(wait_for({{.text = "x+(a)", .kind = Trigger::Kind::kPattern}}, grammar).ok());
    }
    const std::string bytes = write_rules(grammar);
    Fuel fuel_again;
    Grammar again(fuel_again);
    ASSERT_TRUE(read({.language = Language::kMade, .text = bytes}, {}, again).ok()) << text;
    EXPECT_EQ(write_rules(again), bytes);
    TokenMasks masks(compile(grammar, *trie).value(), trie), masks_again(compile(again, *trie).value(), trie);
    std::vector<uint32_t> mask(trie->mask_words()), mask_again(trie->mask_words());
    StateId at = kInitial, at_again = kInitial;
    for (int step = 0; step < 40 && at != kDead; ++step) {
      masks.fill(at, mask), masks_again.fill(at_again, mask_again);
      ASSERT_EQ(mask, mask_again) << text;
      ASSERT_EQ(masks.states().accepts(at), masks_again.states().accepts(at_again));
      std::vector<TokenId> allowed;
      for (int32_t t = 0; t < trie->vocab_size(); ++t)
        if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(TokenId{t});
      if (allowed.empty()) break;
      const TokenId token = allowed[rng() % allowed.size()];
      at = masks.after(at, token), at_again = masks_again.after(at_again, token);
    }
    // From a record that another wrote.
    for (int round = 0; round < 2000; ++round) {
      std::string other = bytes;
      for (auto n = 1 + rng() % 3; n > 0; --n) other[rng() % other.size()] = static_cast<char>(rng());
      if (rng() % 8 == 0) other.resize(rng() % other.size());
      Fuel little(300'000);
      Grammar made(little);
      if (!read_rules(other, made) || !compile(made, *trie)) ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 3000);
}

// A token that ends answers is among those that `!` leaves; named alone it is a text's last.
TEST(Grammars, AnEndComesWhereTheGrammarAcceptsAndNowhereElse) {
  Grammars grammars(tokens());
  const TokenId end{static_cast<int32_t>(tokens_trie()->vocab_size()) - 1};
  const auto may_end = [&](const std::string& text, std::string_view following) {
    Matcher matcher(grammars.get({.language = Language::kGbnf, .text = text}).value(), {end}, 1);
    std::vector<uint32_t> mask(tokens_trie()->mask_words());
    StateId state = kInitial;
    for (const char c : following)
      state = matcher.after(0, state, TokenId{static_cast<int32_t>(static_cast<uint8_t>(c))});
    matcher.fill(state, -1, mask);
    return (mask[static_cast<size_t>(raw(end)) / 32] >> (raw(end) % 32) & 1) != 0;
  };
  EXPECT_FALSE(may_end("root ::= !<[0]> \"END\"", ""));
  EXPECT_FALSE(may_end("root ::= !<[0]> \"END\"", "xEN"));
  EXPECT_TRUE(may_end("root ::= !<[0]> \"END\"", "xEND"));
  const std::string named = "root ::= \"a\" <[" + std::to_string(raw(end)) + "]>";
  EXPECT_FALSE(may_end(named, ""));
  EXPECT_TRUE(may_end(named, "a"));
}

}  // namespace
}  // namespace ibid::grammar
