// Lark without a lexer: what is ignored may stand before each terminal of a rule and at the end; within terminals
// nothing is ignored.
#include <map>

#include "base/json.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/regex.h"
#include "sample/grammar/text_reader.h"

namespace ibid::grammar {
namespace {

struct Common {
  const char *name, *body;
};
// Lark's own library (lark/grammars/common.lark), as far as it has terminals.
constexpr Common kCommon[] = {
    {"DIGIT", "\"0\"..\"9\""},
    {"HEXDIGIT", "/[0-9A-Fa-f]/"},
    {"INT", "/[0-9]+/"},
    {"SIGNED_INT", "/[+-]?[0-9]+/"},
    {"DECIMAL", "/[0-9]+\\.[0-9]*|\\.[0-9]+/"},
    {"_EXP", "/[eE][+-]?[0-9]+/"},
    {"FLOAT", "/[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?/"},
    {"SIGNED_FLOAT", "/[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)/"},
    {"NUMBER", "/([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?/"},
    {"SIGNED_NUMBER", "/[+-]?([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?/"},
    {"ESCAPED_STRING", "/\"([^\"\\\\\\n]|\\\\[^\\n])*\"/"},
    {"LCASE_LETTER", "\"a\"..\"z\""},
    {"UCASE_LETTER", "\"A\"..\"Z\""},
    {"LETTER", "/[A-Za-z]/"},
    {"WORD", "/[A-Za-z]+/"},
    {"CNAME", "/[_A-Za-z][_A-Za-z0-9]*/"},
    {"WS_INLINE", "/[ \\t]+/"},
    {"WS", "/[ \\t\\f\\r\\n]+/"},
    {"CR", "/\\r/"},
    {"LF", "/\\n/"},
    {"NEWLINE", "/(\\r?\\n)+/"},
    {"SH_COMMENT", "/#[^\\n]*/"},
    {"CPP_COMMENT", "/\\/\\/[^\\n]*/"},
    {"SQL_COMMENT", "/--[^\\n]*/"}};

class LarkReader {
 public:
  LarkReader(std::string_view text, const FindToken& find_token, Grammar& grammar)
      : in_(text), find_token_(find_token), g_(grammar), held_(grammar.fuel()) {}

  Status run() {
    ignored_ = g_.add_rule("%ignore");
    for (skip_space(); !in_.at_end(); skip_space()) {
      TRY(read_statement());
      if (g_.fuel().is_empty()) return out_of_fuel();
    }
    for (const auto& [name, symbol] : symbols_)
      if (!symbol.is_defined)
        return invalid("The rule or terminal " + in_quotes(name) + " is used but nowhere defined.");
    auto start = symbols_.find("start");
    if (start == symbols_.end()) return invalid("The grammar has no rule start.");
    g_.define(ignored_, g_.choice(std::move(ignorable_)));
    g_.set_root(g_.rule("%start", g_.sequence({g_.call(start->second.rule), blanks()})));
    return {};
  }

 private:
  struct Symbol {
    RuleId rule = 0;
    bool is_defined = false;
  };

  static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
  // Whether a name is a terminal's: upper case, after underscores.
  static bool is_terminal(std::string_view name) {
    const size_t at = name.find_first_not_of('_');
    return at != std::string_view::npos && is_upper(name[at]);
  }
  static bool is_name(char c) { return TextReader::is_name(c) && c != '-'; }

  Symbol& symbol_of(std::string_view name) {
    auto [at, is_new] = symbols_.try_emplace(std::string(name));
    if (is_new) {
      held_.add(112 + block_of(at->first));
      at->second.rule = g_.add_rule(std::string(name));
    }
    return at->second;
  }
  ExprId blanks() { return g_.repeat(g_.call(ignored_), 0, kUnbounded); }

  void skip_blanks() {
    while (in_.peek() == ' ' || in_.peek() == '\t' || in_.peek() == '\r') in_.skip(1);
    if (in_.starts_with("//") || in_.peek() == '#')
      while (!in_.at_end() && in_.peek() != '\n') in_.skip(1);
  }
  void skip_space() {
    for (skip_blanks(); in_.peek() == '\n' && !in_.at_end(); skip_blanks()) in_.skip(1);
  }
  std::string_view read_name() {
    const size_t begin = in_.position();
    while (is_name(in_.peek())) in_.skip(1);
    return in_.from(begin);
  }

  // guidance's capture names a rule's text for readers of the answer; it does not change what the rule derives.
  Status skip_attributes() {
    do {
      skip_blanks();
      if (read_name() != "capture") return in_.error("Of the attributes of rules only capture is served");
      skip_blanks();
      if (!in_.take("=")) continue;
      skip_blanks();
      if (in_.peek() != '"') return in_.error("A capture's name is a text in quotes");
      TRY(read_string());
      skip_blanks();
    } while (in_.take(","));
    if (!in_.take("]")) return in_.error("Attributes end with ]");
    return {};
  }

  Status read_statement() {
    if (in_.take("%ignore")) {
      skip_blanks();
      ASSIGN_OR_RETURN(const ExprId what, read_choice(0, true));
      ignorable_.push_back(what);
      return {};
    }
    if (in_.take("%import")) return read_import();
    if (in_.take("%llguidance")) {
      ASSIGN_OR_RETURN(const Json options, read_json());
      if (options.object() == nullptr || !options.object()->empty())
        return in_.error("Options of %llguidance are not served but for {}");
      return {};
    }
    if (in_.peek() == '%') return in_.error("Served are %ignore, %import common and %llguidance {}");
    while (in_.peek() == '?' || in_.peek() == '!') in_.skip(1);
    const std::string name(read_name());
    if (name.empty()) return in_.error("A rule of Lark is name: what it derives");
    if (in_.take("[")) TRY(skip_attributes());
    if (in_.peek() == '.' || in_.peek() == '{') return in_.error("Priorities and templates of rules are not served");
    skip_blanks();
    if (!in_.take(":")) return in_.error("A rule of Lark is name: what it derives");
    Symbol& symbol = symbol_of(name);
    if (symbol.is_defined) return in_.error("The rule " + in_quotes(name) + " is defined a second time");
    symbol.is_defined = true;
    const RuleId rule = symbol.rule;
    skip_line_before_bar();
    in_.take("|");
    ASSIGN_OR_RETURN(const ExprId body, read_choice(0, is_terminal(name)));
    g_.define(rule, body);
    skip_blanks();
    if (!in_.at_end() && in_.peek() != '\n') return in_.error("Lark has nothing that begins so");
    return {};
  }

  Status read_import() {
    skip_blanks();
    if (!in_.take("common.")) return in_.error("Only terminals of common can be imported");
    std::vector<std::string> names;
    if (in_.take("(")) {
      do {
        skip_space();
        names.emplace_back(read_name());
        if (names.back().empty() || !g_.fuel().burn(8)) return in_.error("A terminal's name is missing");
        skip_space();
      } while (in_.take(","));
      if (!in_.take(")")) return in_.error("A closing bracket is missing");
    } else {
      names.emplace_back(read_name());
    }
    skip_blanks();
    std::string as;
    if (in_.take("->")) {
      skip_blanks();
      as = read_name();
    }
    for (const std::string& name : names) {
      const Common* found = nullptr;
      for (const Common& common : kCommon)
        if (name == common.name) found = &common;
      if (found == nullptr) return in_.error("common has no terminal " + in_quotes(name, 40));
      Symbol& symbol = symbol_of(as.empty() ? name : as);
      if (symbol.is_defined) continue;
      symbol.is_defined = true;
      const RuleId rule = symbol.rule;
      LarkReader reader(found->body, find_token_, g_);
      ASSIGN_OR_RETURN(const ExprId body, reader.read_choice(0, true));
      g_.define(rule, body);
    }
    return {};
  }

  // An alternative may begin on a line of its own.
  void skip_line_before_bar() {
    const size_t begin = in_.position();
    skip_space();
    if (in_.peek() != '|') in_.go_to(begin);
  }

  Result<ExprId> read_choice(int depth, bool in_terminal) {
    if (depth > kMaxNesting) return in_.error("The brackets are nested too deeply");
    std::vector<ExprId> choices;
    do {
      ASSIGN_OR_RETURN(const ExprId part, read_sequence(depth, in_terminal));
      choices.push_back(part);
      skip_line_before_bar();
    } while (in_.take("|"));
    return g_.choice(std::move(choices));
  }

  Result<ExprId> read_sequence(int depth, bool in_terminal) {
    std::vector<ExprId> parts;
    for (;;) {
      if (depth > 0) {
        skip_space();
      } else {
        skip_blanks();
      }
      if (g_.fuel().is_empty()) return out_of_fuel();
      const char c = in_.peek();
      if (in_.at_end() || c == '\n' || c == '|' || c == ')' || c == ']') break;
      if (in_.take("->")) {  // how a tree would call it
        skip_blanks();
        read_name();
        break;
      }
      ASSIGN_OR_RETURN(ExprId part, read_atom(depth, in_terminal));
      ASSIGN_OR_RETURN(part, read_repeats(part));
      parts.push_back(part);
    }
    return g_.sequence(std::move(parts));
  }

  Result<ExprId> read_atom(int depth, bool in_terminal) {
    const char c = in_.peek();
    if (in_.take("(") || in_.take("[")) {
      ASSIGN_OR_RETURN(const ExprId inside, read_choice(depth + 1, in_terminal));
      skip_space();
      if (!in_.take(c == '(' ? ")" : "]")) return in_.error("A closing bracket is missing");
      return c == '(' ? inside : g_.optional(inside);
    }
    ExprId atom = kNoExpr;
    if (c == '"') {
      ASSIGN_OR_RETURN(atom, read_literal());
    } else if (c == '/') {
      ASSIGN_OR_RETURN(atom, read_regex_literal());
    } else if (c == '<') {
      ASSIGN_OR_RETURN(atom, read_token());
    } else if (in_.take("%json")) {
      if (in_terminal) return in_.error("%json is no part of a terminal");
      std::string schema;
      {
        ASSIGN_OR_RETURN(const Json json, read_json());
        schema = json.text();
      }
      ASSIGN_OR_RETURN(const RuleId rule, read_json_schema(schema, {.is_strict = false}, g_));
      atom = g_.call(rule);
    } else if (is_name(c)) {
      const std::string name(read_name());
      if (in_.peek() == '{' && !(in_.peek(1) >= '0' && in_.peek(1) <= '9') && in_.peek(1) != ',')
        return in_.error("Templates are not served");
      if (in_terminal && !is_terminal(name))
        return in_.error("The rule " + in_quotes(name) + " is no part of a terminal");
      atom = g_.call(symbol_of(name).rule);
      if (!is_terminal(name)) return atom;
    } else {
      return in_.error("Lark has nothing that begins so, or it is not served");
    }
    return in_terminal ? atom : g_.sequence({blanks(), atom});
  }

  Result<ExprId> read_repeats(ExprId part) {
    for (;;) {
      if (in_.take("*")) {
        part = g_.repeat(part, 0, kUnbounded);
      } else if (in_.take("+")) {
        part = g_.repeat(part, 1, kUnbounded);
      } else if (in_.take("?")) {
        part = g_.optional(part);
      } else {
        const size_t begin = in_.position();
        skip_blanks();
        const bool is_braced = in_.peek() == '{';
        if (!is_braced && in_.peek() != '~') {
          in_.go_to(begin);
          return part;
        }
        in_.skip(1);
        skip_blanks();
        uint32_t min = 0, max = 0;
        const bool has_min = in_.number(min);
        skip_blanks();
        max = min;
        if (in_.take(is_braced ? "," : "..")) {
          skip_blanks();
          max = kUnbounded;
          if (in_.peek() != '}' && !in_.number(max)) return in_.error("A number of repeats is missing");
          skip_blanks();
        } else if (!has_min) {
          return in_.error("A number of repeats is missing");
        }
        if (is_braced && !in_.take("}")) return in_.error("A closing brace is missing");
        if (max < min || min > kMaxRepeat || (max != kUnbounded && max > kMaxRepeat))
          return in_.error("Such numbers of repeats are not served");
        part = g_.repeat(part, min, max);
      }
      if (++n_repeats_ > 100'000) return in_.error("There are too many repeats");
    }
  }

  Result<std::string> read_string() {
    in_.skip(1);
    std::string bytes;
    while (!in_.take("\"")) {
      if (in_.at_end() || in_.peek() == '\n') return in_.error("A closing quote is missing");
      uint32_t c = 0;
      if (!in_.take("\\")) {
        if (!in_.code_point(c)) return in_.error("The text is no UTF-8");
        utf8::append(c, bytes);
        continue;
      }
      const char kind = in_.peek();
      in_.skip(1);
      const int digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
      constexpr std::string_view kKinds = "nrtfvb0\\\"'/", kBytes("\n\r\t\f\v\b\0\\\"'/", 11);
      if (digits > 0) {
        if (!in_.hex(digits, c) || c > kMaxCodePoint || (c >= 0xD800 && c < 0xE000))
          return in_.error("This is no code point");
      } else if (kKinds.find(kind) != std::string_view::npos) {
        c = static_cast<uint32_t>(kBytes[kKinds.find(kind)]);
      } else {
        return in_.error("Lark has no such escape");
      }
      utf8::append(c, bytes);
    }
    return bytes;
  }

  Result<ExprId> read_literal() {
    ASSIGN_OR_RETURN(const std::string text, read_string());
    if (in_.take("..")) {
      if (in_.peek() != '"') return in_.error("A range is \"a\"..\"z\"");
      ASSIGN_OR_RETURN(const std::string last, read_string());
      if (!utf8::is_one(text) || !utf8::is_one(last)) return in_.error("The ends of a range are one character each");
      const uint32_t lo = utf8::decode(text.data(), text.data() + text.size()).value;
      const uint32_t hi = utf8::decode(last.data(), last.data() + last.size()).value;
      if (hi < lo) return in_.error("The range of characters is empty");
      CodeSet set;
      set.add(lo, hi);
      return g_.code_points(set);
    }
    if (in_.peek() != 'i' || is_name(in_.peek(1))) return g_.text(text);
    in_.skip(1);
    std::vector<ExprId> parts;
    for (char c : text) {
      const auto byte = static_cast<uint8_t>(c), other = static_cast<uint8_t>(c ^ 0x20);
      const bool is_letter = (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
      if (byte >= 0x80) return in_.error("The flag i is served for ASCII alone");
      parts.push_back(is_letter ? g_.choice({g_.byte(byte, byte), g_.byte(other, other)}) : g_.byte(byte, byte));
    }
    return g_.sequence(std::move(parts));
  }

  Result<ExprId> read_regex_literal() {
    in_.skip(1);
    const size_t begin = in_.position();
    for (bool in_class = false; in_class || in_.peek() != '/'; in_.skip(1)) {
      if (in_.at_end() || in_.peek() == '\n') return in_.error("A closing / is missing");
      if (in_.peek() == '[') in_class = true;
      if (in_.peek() == ']') in_class = false;
      if (in_.peek() == '\\') in_.skip(1);
    }
    const std::string regex(in_.from(begin));
    in_.skip(1);
    if (in_.peek() >= 'a' && in_.peek() <= 'z') return in_.error("Flags of expressions are not served");
    Result<ExprId> read = regex_expression(regex, g_);
    if (!read) return in_.error("In the expression before: " + read.error().message);
    return read;
  }

  // <name>, <[1]>, <[1-3,7]>, <[^1]>, <[*]>.
  Result<ExprId> read_token() {
    constexpr std::string_view kForm = "A token is <its name> or <[its id]>";
    in_.skip(1);
    if (!in_.take("[")) {
      const size_t begin = in_.position();
      while (!in_.at_end() && in_.peek() != '>' && in_.peek() != '\n') in_.skip(1);
      const std::string spelled = "<" + std::string(in_.from(begin)) + ">";
      if (!in_.take(">")) return in_.error(kForm);
      const TokenId found = find_token_ ? find_token_(spelled) : TokenId::kNone;
      if (found == TokenId::kNone) return in_.error("The model has no token " + in_quotes(spelled));
      return g_.tokens({{raw(found), raw(found)}});
    }
    if (in_.take("*]>")) return g_.tokens({{0, kLastToken}});
    const bool is_negated = in_.take("^");
    Held held(g_.fuel());
    std::map<int32_t, int32_t> ranges;
    do {
      uint32_t lo = 0, hi = 0;
      if (!in_.number(lo) || lo >= kLastToken) return in_.error(kForm);
      hi = lo;
      if (in_.take("-") && (!in_.number(hi) || hi < lo || hi >= kLastToken)) return in_.error(kForm);
      if (!held.add(96)) return out_of_fuel();  // a node, and a range of those that are chosen
      int32_t& end = ranges[static_cast<int32_t>(lo)];
      end = std::max(end, static_cast<int32_t>(hi));
    } while (in_.take(","));
    if (!in_.take("]>")) return in_.error(kForm);
    std::vector<TokenRange> chosen;
    int32_t next = 0;
    for (auto [lo, hi] : ranges) {
      if (is_negated && lo > next) chosen.push_back({next, lo - 1});
      if (!is_negated) chosen.push_back({lo, hi});
      next = std::max(next, hi + 1);
    }
    if (is_negated) chosen.push_back({next, kLastToken});
    return g_.tokens(std::move(chosen));
  }

  // A JSON value in the text, up to the bracket that closes it. A byte of it may take so many while it becomes a tree.
  static constexpr int64_t kTreeBytes = 24;
  Result<Json> read_json() {
    skip_space();
    if (in_.peek() != '{') return in_.error("A schema must be an object here");
    const size_t begin = in_.position();
    int depth = 0;
    bool in_string = false;
    do {
      if (in_.at_end()) return in_.error("A closing brace is missing");
      const char c = in_.peek();
      if (in_string && c == '\\') {
        in_.skip(1);
      } else if (c == '"') {
        in_string = !in_string;
      } else if (!in_string && (c == '{' || c == '}')) {
        depth += c == '{' ? 1 : -1;
      }
      in_.skip(1);
    } while (depth > 0);
    Held held(g_.fuel());
    if (!held.add(kTreeBytes * static_cast<int64_t>(in_.position() - begin))) return out_of_fuel();
    return parse_json(in_.from(begin), "the schema in the grammar");
  }

  TextReader in_;
  const FindToken& find_token_;
  Grammar& g_;
  Held held_;  // by the symbols
  std::map<std::string, Symbol, std::less<>> symbols_;
  RuleId ignored_ = 0;
  std::vector<ExprId> ignorable_;
  int n_repeats_ = 0;
};

}  // namespace

Status read_lark(std::string_view text, const FindToken& find_token, Grammar& grammar) {
  if (text.size() > kMaxText) return invalid("The grammar is longer than a mebibyte.");
  return LarkReader(text, find_token, grammar).run();
}

}  // namespace ibid::grammar
