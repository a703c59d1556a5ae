// Automata for tests: of a text of GBNF, and of random grammars.
#pragma once

#include <gtest/gtest.h>

#include <bitset>
#include <memory>
#include <random>
#include <vector>

#include "sample/grammar/languages.h"
#include "sample/grammar/states.h"

namespace ibid::grammar::testing {

inline std::bitset<256> all_bytes() { return std::bitset<256>().set(); }

inline std::shared_ptr<const Automaton> compiled(const Grammar& grammar) {
  auto made = Automaton::compile(grammar, {.bytes = all_bytes()});
  EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

inline std::shared_ptr<const Automaton> from_gbnf(std::string_view text) {
  Fuel fuel;
  Grammar grammar(fuel);
  const Status read = read_gbnf(text, {}, grammar);
  EXPECT_TRUE(read.ok()) << (read ? "" : read.error().message);
  return compiled(grammar);
}

inline bool matches(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  States states(automaton);
  const StateId end = states.after(kInitial, text);
  return end != kDead && states.accepts(end);
}

inline constexpr char kJson[] = R"(
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

// Null if it has no text.
inline std::shared_ptr<const Automaton> compiled(const RandomGrammar& random) {
  Fuel fuel;
  Grammar grammar(fuel);
  random.build(grammar);
  auto made = Automaton::compile(grammar, {.bytes = all_bytes()});
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

}  // namespace ibid::grammar::testing
