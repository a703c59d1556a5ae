#include "sample/grammar/json_parts.h"

namespace ibid::grammar {

ExprId JsonParts::space() {
  if (spelling_.space != kNoExpr) return spelling_.space;
  if (space_ == JsonSpace::kCompact) return g_.empty();
  if (space_rule_ == kNoExpr) {
    const ExprId indent = g_.repeat(g_.choice({g_.byte(' ', ' '), g_.byte('\t', '\t')}), 0, 20);
    space_rule_ = g_.rule("space", g_.choice({g_.text(" "), g_.sequence({g_.repeat(g_.text("\n"), 1, 2), indent})}));
  }
  return g_.optional(g_.call(space_rule_));
}

ExprId JsonParts::character() {
  if (character_ != kNoExpr) return character_;
  auto hex = [&] { return g_.choice({g_.byte('0', '9'), g_.byte('a', 'f'), g_.byte('A', 'F')}); };
  auto one_of = [&](std::string_view bytes) {
    std::vector<ExprId> all;
    for (char b : bytes) all.push_back(g_.byte(static_cast<uint8_t>(b), static_cast<uint8_t>(b)));
    return g_.choice(std::move(all));
  };
  const ExprId d = one_of("dD");
  const ExprId low_half = g_.sequence({g_.text("\\u"), d, one_of("cdefCDEF"), hex(), hex()});
  const ExprId unit = g_.choice({g_.sequence({one_of("0123456789abcefABCEF"), hex(), hex(), hex()}),
                                 g_.sequence({d, one_of("01234567"), hex(), hex()}),
                                 g_.sequence({d, one_of("89abAB"), hex(), hex(), low_half})});
  const ExprId escape = g_.choice({one_of("\"\\/bfnrt"), g_.sequence({g_.text("u"), unit})});
  if (spelling_.escapes_what_it_must) {  // llguidance takes a DEL for a control character
    const ExprId control = g_.sequence(
        {g_.text("u00"), g_.choice({g_.sequence({one_of("01"), hex()}), g_.sequence({g_.text("7"), one_of("fF")})})});
    const ExprId needed = g_.sequence({g_.text("\\"), g_.choice({one_of("\"\\bfnrt"), control})});
    const CodeSet others = CodeSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}}.complement();
    return character_ = g_.choice({g_.code_points(others), needed});
  }
  const CodeSet plain = CodeSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.complement();
  return character_ = g_.choice({g_.code_points(plain), g_.sequence({g_.text("\\"), escape})});
}

ExprId JsonParts::string() {
  if (string_rule_ == kNoExpr)
    string_rule_ =
        g_.rule("string", g_.sequence({g_.text("\""), g_.repeat(character(), 0, kUnbounded), g_.text("\"")}));
  return g_.call(string_rule_);
}

ExprId JsonParts::number(bool is_integer) {
  RuleId& rule = is_integer ? integer_rule_ : number_rule_;
  if (rule == kNoExpr) {
    const ExprId digit = g_.byte('0', '9'), minus = g_.optional(g_.text("-"));
    const ExprId nonzero = g_.sequence({g_.byte('1', '9'), g_.repeat(digit, 0, 15)});
    if (is_integer) {
      rule = g_.rule("integer", g_.choice({g_.text("0"), g_.sequence({minus, nonzero})}));
    } else {
      const ExprId sign = g_.optional(g_.choice({g_.text("+"), g_.text("-")}));
      const ExprId power = g_.sequence({g_.choice({g_.text("e"), g_.text("E")}), sign, g_.repeat(digit, 1, 2)});
      rule = g_.rule("number", g_.sequence({minus, g_.choice({g_.text("0"), nonzero}),
                                            g_.optional(g_.sequence({g_.text("."), g_.repeat(digit, 1, 16)})),
                                            g_.optional(power)}));
    }
  }
  return g_.call(rule);
}

ExprId JsonParts::list(std::string_view begin, ExprId part, std::string_view end) {
  const ExprId parts = g_.sequence({space(), part, g_.repeat(after_comma(part), 0, kUnbounded)});
  return g_.sequence({g_.text(begin), g_.optional(parts), space(), g_.text(end)});
}

ExprId JsonParts::after_comma(ExprId part) {
  return g_.sequence({spelling_.comma != kNoExpr ? spelling_.comma : g_.text(","), space(), part});
}

ExprId JsonParts::member(ExprId name, ExprId value) {
  return g_.sequence({name, spelling_.colon != kNoExpr ? spelling_.colon : g_.text(":"), space(), value});
}

RuleId JsonParts::object() {
  if (object_rule_ == kNoExpr) {
    object_rule_ = g_.add_rule("object");
    g_.define(object_rule_, list("{", member(string(), g_.call(value())), "}"));
  }
  return object_rule_;
}

RuleId JsonParts::value() {
  if (value_rule_ == kNoExpr) {
    value_rule_ = g_.add_rule("value");
    const RuleId array = g_.rule("array", list("[", g_.call(value_rule_), "]"));
    g_.define(value_rule_, g_.choice({g_.call(object()), g_.call(array), string(), number(false), g_.text("true"),
                                      g_.text("false"), g_.text("null")}));
  }
  return value_rule_;
}

ExprId JsonParts::text_of(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return g_.text("null");
    case Value::Kind::kFalse:
      return g_.text("false");
    case Value::Kind::kTrue:
      return g_.text("true");
    case Value::Kind::kNumber:
      return g_.text(value.number().is_huge() ? value.text : value.number().text());
    case Value::Kind::kString:
      return g_.text("\"" + json_spelling(value.text) + "\"");
    case Value::Kind::kArray:
    case Value::Kind::kObject:
      break;
  }
  const bool is_object = value.is_object();
  std::vector<ExprId> parts = {g_.text(is_object ? "{" : "[")};
  const size_t n = is_object ? value.members.size() : value.items.size();
  for (size_t i = 0; i < n; ++i) {
    const ExprId part = is_object ? member(g_.text("\"" + json_spelling(value.members[i].first) + "\""),
                                           text_of(value.members[i].second))
                                  : text_of(value.items[i]);
    parts.push_back(i > 0 ? after_comma(part) : g_.sequence({space(), part}));
  }
  parts.push_back(space());
  parts.push_back(g_.text(is_object ? "}" : "]"));
  return g_.sequence(std::move(parts));
}

}  // namespace ibid::grammar
