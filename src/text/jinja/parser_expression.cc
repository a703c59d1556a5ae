// Expressions, in Jinja's own order of precedence (which is not Python's: a unary minus binds tighter than a filter,
// a filter tighter than **).
#include <algorithm>

#include "text/jinja/parser.h"

namespace ibid::jinja {

ExprPtr Parser::make(ExprKind kind, uint32_t at) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->at = at;
  return node;
}

ExprPtr Parser::make(ExprKind kind, uint32_t at, ExprPtr kid, ExprPtr kid2) {
  ExprPtr node = make(kind, at);
  node->kids.push_back(std::move(kid));
  if (kid2 != nullptr) node->kids.push_back(std::move(kid2));
  return finish(std::move(node));
}

ExprPtr Parser::finish(ExprPtr node) {
  auto grow = [&](const ExprPtr& kid) {
    if (kid != nullptr) node->height = std::max<uint16_t>(node->height, kid->height + 1);
  };
  for (const ExprPtr& kid : node->kids) grow(kid);
  if (node->args != nullptr) {
    for (const ExprPtr& arg : node->args->positional) grow(arg);
    for (const auto& [name, arg] : node->args->named) grow(arg);
    grow(node->args->star);
    grow(node->args->star_star);
  }
  if (node->height > kMaxHeight) fail("the expression is nested too deeply.", node->at);
  return node;
}

ExprPtr Parser::name_node(std::string_view name, uint32_t at) {
  for (MacroDef* macro : macros_) {
    if (name == "caller") macro->uses_caller = true;
    if (name == "kwargs") macro->uses_kwargs = true;
    if (name == "varargs") macro->uses_varargs = true;
  }
  ExprPtr node = make(ExprKind::kName, at);
  node->name = intern(name);
  return node;
}

ExprPtr Parser::parse_tuple(bool with_if, std::string_view end_name, bool parenthesised, bool simple,
                            bool with_namespace) {
  uint32_t at = now().at;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (ok()) {
    if (!items.empty()) expect_op(",");
    bool at_end = now().type == Tok::kVariableEnd || now().type == Tok::kBlockEnd || now().is_op(")") ||
                  (!end_name.empty() && now().is_name(end_name));
    if (at_end) break;
    items.push_back(simple ? parse_primary(with_namespace) : parse_expression(with_if));
    if (!now().is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !parenthesised) fail("an expression expected, " + describe(now()) + " found.", now().at);
  ExprPtr node = make(ExprKind::kTuple, at);
  node->kids = std::move(items);
  return finish(std::move(node));
}

ExprPtr Parser::parse_expression(bool with_if) {
  Nesting nesting(*this);
  ExprPtr node = parse_or();
  while (with_if && ok() && now().is_name("if")) {
    uint32_t at = now().at;
    next();
    ExprPtr condition = parse_or();
    ExprPtr other = skip_name("else") ? parse_expression() : nullptr;
    ExprPtr choice = make(ExprKind::kIf, at);
    choice->kids.push_back(std::move(condition));
    choice->kids.push_back(std::move(node));
    choice->kids.push_back(std::move(other));
    node = finish(std::move(choice));
  }
  return node;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (ok() && now().is_name("or")) {
    uint32_t at = now().at;
    next();
    left = make(ExprKind::kOr, at, std::move(left), parse_and());
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (ok() && now().is_name("and")) {
    uint32_t at = now().at;
    next();
    left = make(ExprKind::kAnd, at, std::move(left), parse_not());
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!now().is_name("not")) return parse_compare();
  Nesting nesting(*this);
  uint32_t at = now().at;
  next();
  if (!ok()) return make(ExprKind::kConst, at);
  return make(ExprKind::kNot, at, parse_not());
}

ExprPtr Parser::parse_compare() {
  uint32_t at = now().at;
  ExprPtr first = parse_sum();
  ExprPtr node;
  while (ok()) {
    static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt},
                                                               {"<=", Op::kLe}, {">", Op::kGt},  {">=", Op::kGe}};
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return now().is_op(o.first); });
    Op found;
    if (op != std::end(kOps)) {
      found = op->second;
      next();
    } else if (skip_name("in")) {
      found = Op::kIn;
    } else if (now().is_name("not") && look().is_name("in")) {
      found = Op::kNotIn;
      next();
      next();
    } else {
      break;
    }
    if (node == nullptr) {
      node = make(ExprKind::kCompare, at);
      node->kids.push_back(std::move(first));
    }
    node->ops.push_back(found);
    node->kids.push_back(parse_sum());
  }
  return node != nullptr ? finish(std::move(node)) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (ok() && (now().is_op("+") || now().is_op("-"))) {
    Op op = now().is_op("+") ? Op::kAdd : Op::kSub;
    uint32_t at = now().at;
    next();
    left = make(ExprKind::kBinary, at, std::move(left), parse_concat());
    left->op = op;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  uint32_t at = now().at;
  ExprPtr first = parse_product();
  if (!now().is_op("~")) return first;
  ExprPtr node = make(ExprKind::kConcat, at);
  node->kids.push_back(std::move(first));
  while (ok() && skip_op("~")) node->kids.push_back(parse_product());
  return finish(std::move(node));
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (ok()) {
    static constexpr std::pair<std::string_view, Op> kOps[] = {
        {"*", Op::kMul}, {"/", Op::kDiv}, {"//", Op::kFloorDiv}, {"%", Op::kMod}};
    const auto* op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return now().is_op(o.first); });
    if (op == std::end(kOps)) break;
    uint32_t at = now().at;
    next();
    left = make(ExprKind::kBinary, at, std::move(left), parse_power());
    left->op = op->second;
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (ok() && now().is_op("**")) {
    uint32_t at = now().at;
    next();
    left = make(ExprKind::kBinary, at, std::move(left), parse_unary());
    left->op = Op::kPow;
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  uint32_t at = now().at;
  ExprPtr node;
  if (now().is_op("-") || now().is_op("+")) {
    Nesting nesting(*this);
    ExprKind kind = now().is_op("-") ? ExprKind::kNegate : ExprKind::kPlus;
    next();
    if (!ok()) return make(ExprKind::kConst, at);
    node = make(kind, at, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  Token token = now();
  ExprPtr node = make(ExprKind::kConst, token.at);
  if (token.type == Tok::kName) {
    next();
    if (token.text == "true" || token.text == "True") {
      node->value = Value::boolean(true);
    } else if (token.text == "false" || token.text == "False") {
      node->value = Value::boolean(false);
    } else if (token.text == "none" || token.text == "None") {
      node->value = Value::none();
    } else if (with_namespace && now().is_op(".")) {
      next();
      node->kind = ExprKind::kNamespaceRef;
      node->name = intern(token.text);
      node->value = Value::string(expect_name());
    } else {
      return name_node(token.text, token.at);
    }
  } else if (token.type == Tok::kString) {
    std::string text;
    for (; now().type == Tok::kString; next()) text += now().text;
    node->value = Value::string(std::move(text));
  } else if (token.type == Tok::kInteger || token.type == Tok::kFloat) {
    next();
    node->value = token.type == Tok::kInteger ? Value::integer(token.integer) : Value::real(token.real);
  } else if (skip_op("(")) {
    Nesting nesting(*this);
    node = parse_tuple(true, {}, true);
    expect_op(")");
  } else if (skip_op("[") || skip_op("{")) {
    bool list = token.text == "[";
    const char* end = list ? "]" : "}";
    node->kind = list ? ExprKind::kList : ExprKind::kDict;
    while (ok() && !now().is_op(end)) {
      if (!node->kids.empty()) expect_op(",");
      if (now().is_op(end)) break;
      node->kids.push_back(parse_expression());
      if (!list) {
        expect_op(":");
        node->kids.push_back(parse_expression());
      }
    }
    expect_op(end);
    return finish(std::move(node));
  } else {
    fail("an expression expected, " + describe(token) + " found.", token.at);
  }
  return node;
}

}  // namespace ibid::jinja
