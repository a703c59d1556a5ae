// What follows a value: subscripts, calls, filters, tests.
#include <unordered_set>

#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (ok()) {
    if (now().is_op(".") || now().is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (now().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (ok()) {
    if (now().is_op("|")) {
      node = parse_filters(std::move(node));
    } else if (now().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (now().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  uint32_t at = now().at;
  if (skip_op(".")) {
    Token name = now();
    next();
    if (name.type == Tok::kName) {
      ExprPtr attribute = make(ExprKind::kAttribute, at, std::move(node));
      attribute->value = Value::string(name.text);
      return attribute;
    }
    if (name.type != Tok::kInteger) fail("a name or number expected after '.', " + describe(name) + " found.", name.at);
    ExprPtr index = make(ExprKind::kConst, name.at);
    index->value = Value::integer(name.integer);
    return make(ExprKind::kItem, at, std::move(node), std::move(index));
  }
  expect_op("[");
  std::vector<ExprPtr> items;
  while (ok() && !now().is_op("]")) {
    if (!items.empty()) expect_op(",");
    items.push_back(parse_subscribed());
  }
  expect_op("]");
  if (items.size() == 1) return make(ExprKind::kItem, at, std::move(node), std::move(items[0]));
  ExprPtr tuple = make(ExprKind::kTuple, at);
  tuple->kids = std::move(items);
  return make(ExprKind::kItem, at, std::move(node), finish(std::move(tuple)));
}

ExprPtr Parser::parse_subscribed() {
  uint32_t at = now().at;
  ExprPtr first;
  if (!now().is_op(":")) {
    first = parse_expression();
    if (!now().is_op(":")) return first;
  }
  next();
  ExprPtr slice = make(ExprKind::kSlice, at);
  auto part = [&]() -> ExprPtr {
    bool none = now().is_op(":") || now().is_op("]") || now().is_op(",");
    return none ? nullptr : parse_expression();
  };
  slice->kids.push_back(std::move(first));
  slice->kids.push_back(part());
  slice->kids.push_back(skip_op(":") ? part() : nullptr);
  return finish(std::move(slice));
}

std::unique_ptr<CallArgs> Parser::parse_args() {
  auto args = std::make_unique<CallArgs>();
  uint32_t at = now().at;
  expect_op("(");
  bool need_comma = false;
  std::unordered_set<std::string> names;
  while (ok() && !now().is_op(")")) {
    if (need_comma) {
      expect_op(",");
      if (now().is_op(")")) break;
    }
    need_comma = true;
    bool in_order = args->star_star == nullptr;
    if (skip_op("*")) {
      in_order = in_order && args->star == nullptr;
      args->star = parse_expression();
    } else if (skip_op("**")) {
      args->star_star = parse_expression();
    } else if (now().type == Tok::kName && look().is_op("=")) {
      std::string name = expect_name();
      next();
      if (!names.insert(name).second) fail("the argument '" + shown(name) + "' is given twice.", at);
      args->named.emplace_back(Value::string(std::move(name)), parse_expression());
    } else {
      in_order = in_order && args->star == nullptr && args->named.empty();
      args->positional.push_back(parse_expression());
    }
    if (!in_order) fail("the arguments of the call are out of order.", at);
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr node) {
  ExprPtr call = make(ExprKind::kCall, now().at);
  call->kids.push_back(std::move(node));
  call->args = parse_args();
  return finish(std::move(call));
}

ExprPtr Parser::parse_filters(ExprPtr node, bool start_inline) {
  while (ok() && (start_inline || skip_op("|"))) {
    start_inline = false;
    ExprPtr filter = make(ExprKind::kFilter, now().at);
    std::string name = expect_name();
    filter->fn = find_filter(name);
    if (filter->fn == nullptr) filter->value = Value::string(name.substr(0, 60));
    filter->kids.push_back(std::move(node));
    if (now().is_op("(")) filter->args = parse_args();
    node = finish(std::move(filter));
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  uint32_t at = now().at;
  next();
  bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::kTest, at);
  std::string name = expect_name();
  test->fn = find_test(name);
  if (test->fn == nullptr) test->value = Value::string(name.substr(0, 60));
  test->kids.push_back(std::move(node));
  const Token& after = now();
  bool has_argument = after.type == Tok::kName || after.type == Tok::kString || after.type == Tok::kInteger ||
                      after.type == Tok::kFloat || after.is_op("[") || after.is_op("{");
  if (after.is_op("(")) {
    test->args = parse_args();
  } else if (has_argument && !at_any_name({"else", "or", "and"})) {
    if (after.is_name("is")) fail("tests cannot be chained with 'is'.", after.at);
    test->args = std::make_unique<CallArgs>();
    test->args->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  return negated ? make(ExprKind::kNot, at, std::move(test)) : std::move(test);
}

}  // namespace ibid::jinja
