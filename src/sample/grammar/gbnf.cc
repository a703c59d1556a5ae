// llama.cpp's GBNF, read into rules.
#include <map>
#include <vector>

#include "sample/grammar/languages.h"
#include "sample/grammar/text_reader.h"

namespace ibid::grammar {
namespace {

class GbnfReader {
 public:
  GbnfReader(std::string_view text, const FindToken& find_token, Grammar& grammar)
      : in_(text), find_token_(find_token), g_(grammar), held_(grammar.fuel()) {}

  Status run() {
    for (skip_space(); !in_.at_end(); skip_space()) {
      std::string_view name;
      if (!read_rule_name(name)) return in_.error("A rule of GBNF is name ::= what it derives");
      Rule& rule = rule_of(name);
      if (rule.is_defined) return in_.error("The rule " + in_quotes(name) + " is defined a second time");
      rule.is_defined = true;
      const RuleId id = rule.id;
      ASSIGN_OR_RETURN(const ExprId body, read_choice(0));
      g_.define(id, body);
      if (g_.fuel().is_empty()) return out_of_fuel();
    }
    for (const auto& [name, rule] : rules_)
      if (!rule.is_defined) return invalid("The rule " + in_quotes(name) + " is called but nowhere defined.");
    auto root = rules_.find("root");
    if (root == rules_.end()) return invalid("The grammar has no rule root.");
    g_.set_root(root->second.id);
    return {};
  }

 private:
  struct Rule {
    RuleId id = 0;
    bool is_defined = false;
  };

  Rule& rule_of(std::string_view name) {
    auto [at, is_new] = rules_.try_emplace(std::string(name));
    if (is_new) {
      held_.add(112 + block_of(at->first));
      at->second.id = g_.add_rule(std::string(name));
    }
    return at->second;
  }

  void skip_space() {
    for (; !in_.at_end(); in_.skip(1)) {
      if (in_.peek() == '#')
        while (!in_.at_end() && in_.peek() != '\n') in_.skip(1);
      if (std::string_view(" \t\r\n").find(in_.peek()) == std::string_view::npos || in_.at_end()) return;
    }
  }

  // "name ::=", or nothing is read.
  bool read_rule_name(std::string_view& name) {
    const size_t begin = in_.position();
    while (TextReader::is_name(in_.peek())) in_.skip(1);
    name = in_.from(begin);
    skip_space();
    if (!name.empty() && in_.take("::=")) return true;
    in_.go_to(begin);
    return false;
  }

  Result<ExprId> read_choice(int depth) {
    if (depth > kMaxNesting) return in_.error("The brackets are nested too deeply");
    std::vector<ExprId> choices;
    do {
      ASSIGN_OR_RETURN(const ExprId part, read_sequence(depth));
      choices.push_back(part);
    } while (in_.take("|"));
    return g_.choice(std::move(choices));
  }

  Result<ExprId> read_sequence(int depth) {
    std::vector<ExprId> parts;
    for (;;) {
      skip_space();
      if (g_.fuel().is_empty()) return out_of_fuel();
      const char c = in_.peek();
      if (in_.at_end() || c == '|' || c == ')') break;
      ExprId part = kNoExpr;
      if (c == '"') {
        ASSIGN_OR_RETURN(part, read_literal());
      } else if (c == '[') {
        ASSIGN_OR_RETURN(part, read_class());
      } else if (in_.take(".")) {
        part = g_.code_points(CodeSet::all());
      } else if (in_.take("(")) {
        ASSIGN_OR_RETURN(part, read_choice(depth + 1));
        if (!in_.take(")")) return in_.error("A closing bracket is missing");
      } else if (c == '<' || c == '!') {
        ASSIGN_OR_RETURN(part, read_token());
      } else if (TextReader::is_name(c)) {
        std::string_view name;
        const size_t begin = in_.position();
        if (read_rule_name(name)) {  // the next rule's
          in_.go_to(begin);
          break;
        }
        while (TextReader::is_name(in_.peek())) in_.skip(1);
        part = g_.call(rule_of(in_.from(begin)).id);
      } else {
        return in_.error("GBNF has nothing that begins so");
      }
      ASSIGN_OR_RETURN(part, read_repeats(part));
      parts.push_back(part);
    }
    return g_.sequence(std::move(parts));
  }

  Result<ExprId> read_repeats(ExprId part) {
    for (skip_blanks();; skip_blanks()) {
      if (in_.take("*")) {
        part = g_.repeat(part, 0, kUnbounded);
      } else if (in_.take("+")) {
        part = g_.repeat(part, 1, kUnbounded);
      } else if (in_.take("?")) {
        part = g_.optional(part);
      } else if (in_.take("{")) {
        uint32_t min = 0, max = 0;
        skip_blanks();
        const bool has_min = in_.number(min);
        skip_blanks();
        max = min;
        if (in_.take(",")) {
          skip_blanks();
          max = kUnbounded;
          if (in_.peek() != '}' && !in_.number(max)) return in_.error("A number of repeats is missing");
        } else if (!has_min) {
          return in_.error("A number of repeats is missing");
        }
        skip_blanks();
        if (!in_.take("}")) return in_.error("A closing brace is missing");
        if (max < min) return in_.error("The repeats are fewer at most than at least");
        if (min > kMaxRepeat || (max != kUnbounded && max > kMaxRepeat))
          return in_.error("So many repeats are too many");
        part = g_.repeat(part, min, max);
      } else {
        return part;
      }
      if (++n_repeats_ > 100'000) return in_.error("There are too many repeats");
    }
  }

  void skip_blanks() {
    while (in_.peek() == ' ' || in_.peek() == '\t') in_.skip(1);
  }

  Result<uint32_t> read_char() {
    if (in_.at_end()) return in_.error("A closing quote or bracket is missing");
    uint32_t c = 0;
    if (!in_.take("\\")) {
      if (!in_.code_point(c)) return in_.error("The text is no UTF-8");
      return c;
    }
    const char kind = in_.peek();
    in_.skip(1);
    const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits > 0) {
      if (!in_.hex(digits, c) || c > kMaxCodePoint || (c >= 0xD800 && c < 0xE000))
        return in_.error("This is no code point");
      return c;
    }
    switch (kind) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<uint32_t>(static_cast<unsigned char>(kind));
      default:
        return in_.error("GBNF has no such escape");
    }
  }

  Result<ExprId> read_literal() {
    in_.skip(1);
    std::string bytes;
    while (!in_.take("\"")) {
      ASSIGN_OR_RETURN(const uint32_t c, read_char());
      utf8::append(c, bytes);
    }
    return g_.text(bytes);
  }

  Result<ExprId> read_class() {
    in_.skip(1);
    const bool is_negated = in_.take("^");
    CodeSet set;
    for (size_t n = 0; !in_.take("]"); ++n) {
      if (n == kMaxClass) return in_.error("The class is too long");
      ASSIGN_OR_RETURN(const uint32_t lo, read_char());
      uint32_t hi = lo;
      if (in_.peek() == '-' && in_.peek(1) != ']') {
        in_.skip(1);
        ASSIGN_OR_RETURN(hi, read_char());
        if (hi < lo) return in_.error("The range of characters is empty");
      }
      set.add(lo, hi);
      if (!g_.fuel().burn(8)) return out_of_fuel();
    }
    return g_.code_points(is_negated ? set.complement() : set);
  }

  // <name>, <[id]>, and with ! before them every other token.
  Result<ExprId> read_token() {
    const bool is_negated = in_.take("!");
    if (!in_.take("<")) return in_.error("A token is <its text> or <[its id]>");
    uint32_t id = 0;
    if (in_.take("[")) {
      if (!in_.number(id) || id >= static_cast<uint32_t>(kLastToken) || !in_.take("]>"))
        return in_.error("A token is <its text> or <[its id]>");
    } else {
      const size_t begin = in_.position();
      while (!in_.at_end() && in_.peek() != '>' && in_.peek() != '\n') in_.skip(1);
      const std::string spelled = "<" + std::string(in_.from(begin)) + ">";
      if (!in_.take(">")) return in_.error("A token is <its text> or <[its id]>");
      const TokenId found = find_token_ ? find_token_(spelled) : TokenId::kNone;
      if (found == TokenId::kNone) return in_.error("The model has no token " + in_quotes(spelled));
      id = static_cast<uint32_t>(raw(found));
    }
    const auto token = static_cast<int32_t>(id);
    if (!is_negated) return g_.tokens({{token, token}});
    std::vector<TokenRange> others;
    if (token > 0) others.push_back({0, token - 1});
    others.push_back({token + 1, kLastToken});
    return g_.tokens(std::move(others));
  }

  TextReader in_;
  const FindToken& find_token_;
  Grammar& g_;
  Held held_;  // by the rules' names
  std::map<std::string, Rule, std::less<>> rules_;
  int n_repeats_ = 0;
};

}  // namespace

Status read_gbnf(std::string_view text, const FindToken& find_token, Grammar& grammar) {
  if (text.size() > kMaxText) return invalid("The grammar is longer than a mebibyte.");
  return GbnfReader(text, find_token, grammar).run();
}

Status read_choices(std::span<const std::string> choices, Grammar& grammar) {
  std::vector<ExprId> all;
  for (const std::string& choice : choices) {
    if (!grammar.fuel().burn(48)) return out_of_fuel();
    if (!utf8::is_valid(choice)) return invalid("A choice is no UTF-8.");
    all.push_back(grammar.text(choice));
  }
  if (all.empty()) return invalid("There must be at least one choice.");
  grammar.set_root(grammar.rule("choice", grammar.choice(std::move(all))));
  return {};
}

}  // namespace ibid::grammar
