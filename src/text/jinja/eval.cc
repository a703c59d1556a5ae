// Expressions, attributes and calls.
#include <algorithm>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

Value Machine::eval(const Expr& expr) {
  if (!spend()) return {};
  if (expr.kind == ExprKind::kConst) return expr.value;
  if (expr.kind == ExprKind::kName) {
    const Value* found = lookup(expr.name);
    return found != nullptr ? *found : undefined("'" + shown(program_.names[expr.name]) + "' is undefined");
  }
  if (depth_ >= limits_.depth) return fail("the template calls itself too deeply.");
  ++depth_;
  Value value = eval_node(expr);
  --depth_;
  return value;
}

Value Machine::eval_node(const Expr& expr) {
  const auto& kids = expr.kids;
  switch (expr.kind) {
    case ExprKind::kTuple:
    case ExprKind::kList: {
      std::vector<Value> items;
      items.reserve(kids.size());
      for (const ExprPtr& kid : kids) items.push_back(eval(*kid));
      return list(std::move(items), expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple);
    }
    case ExprKind::kDict: {
      auto object = std::make_unique<DictObject>();
      for (size_t i = 0; i < kids.size() && !failed(); i += 2) {
        Value key = eval(*kids[i]);
        Value value = eval(*kids[i + 1]);
        if (!is_hashable(key)) return fail(std::string("a ") + type_name(key) + " cannot be the key of a dict.");
        if (!spend(weight_of(key))) return {};
        object->set(std::move(key), std::move(value));
      }
      return dict(std::move(object));
    }
    case ExprKind::kAttribute: {
      Value object = eval(*kids[0]);
      at_ = expr.at;
      return failed() ? Value() : attribute(object, expr.value);
    }
    case ExprKind::kItem: {
      Value object = eval(*kids[0]);
      if (kids[1]->kind == ExprKind::kSlice) {
        Value parts[3];
        for (size_t i = 0; i < 3; ++i) {
          const ExprPtr& part = kids[1]->kids[i];
          parts[i] = part != nullptr ? eval(*part) : Value::none();
        }
        at_ = expr.at;
        return failed() ? Value() : slice(object, parts[0], parts[1], parts[2]);
      }
      Value key = eval(*kids[1]);
      at_ = expr.at;
      return failed() ? Value() : item(object, key);
    }
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr, nullptr);
    case ExprKind::kTest: {
      Value subject = eval(*kids[0]);
      Args args;
      if (failed() || !eval_args(expr.args.get(), args)) return {};
      at_ = expr.at;
      return expr.fn != nullptr ? expr.fn(*this, subject, args) : unknown(expr);
    }
    case ExprKind::kNot:
      return Value::boolean(!truth(eval(*kids[0])));
    case ExprKind::kNegate:
    case ExprKind::kPlus: {
      Value v = eval(*kids[0]);
      at_ = expr.at;
      if (failed()) return {};
      if (v.is_undefined()) return undefined_used(v);
      if (!v.is_number()) return fail(std::string("a sign does not fit a value of type '") + type_name(v) + "'.");
      bool negate = expr.kind == ExprKind::kNegate;
      if (v.is(Kind::kFloat)) return Value::real(negate ? -v.as_double() : v.as_double());
      return negate ? binary(Op::kSub, Value::integer(0), v) : Value::integer(v.as_int());
    }
    case ExprKind::kAnd: {
      Value left = eval(*kids[0]);
      return failed() || !truth(left) ? left : eval(*kids[1]);
    }
    case ExprKind::kOr: {
      Value left = eval(*kids[0]);
      return failed() || truth(left) ? left : eval(*kids[1]);
    }
    case ExprKind::kBinary: {
      Value left = eval(*kids[0]);
      Value right = eval(*kids[1]);
      at_ = expr.at;
      return failed() ? Value() : binary(expr.op, left, right);
    }
    case ExprKind::kConcat: {
      Text out;
      for (const ExprPtr& kid : kids) {
        Value v = eval(*kid);
        at_ = expr.at;
        append_str(v, out);
        if (failed()) return {};
      }
      return string(std::move(out));
    }
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kIf: {
      bool yes = truth(eval(*kids[0]));
      if (failed()) return {};
      if (yes) return eval(*kids[1]);
      if (kids[2] != nullptr) return eval(*kids[2]);
      return undefined("the inline if-expression evaluated to false and no else section was defined.");
    }
    default:
      return fail("a slice has no meaning here.");
  }
}

bool Machine::eval_args(const CallArgs* args, Args& out) {
  if (args == nullptr) return true;
  for (const ExprPtr& arg : args->positional) {
    out.positional.push_back(eval(*arg));
    if (failed()) return false;
  }
  for (const auto& [name, arg] : args->named) {
    out.named.emplace_back(name, eval(*arg));
    if (failed()) return false;
  }
  if (args->star != nullptr) {
    Value more = eval(*args->star);
    if (failed() || !collect(more, out.positional)) return false;
  }
  if (args->star_star != nullptr) {
    Value more = eval(*args->star_star);
    if (failed()) return false;
    if (!more.is(Kind::kDict)) {
      fail("'**' needs a dict.");
      return false;
    }
    for (const auto& [key, value] : more.as<DictObject>()->entries) {
      bool given = key.is_string() && std::any_of(out.named.begin(), out.named.end(),
                                                  [&](const auto& other) { return other.first.str() == key.str(); });
      if (!key.is_string() || given || !spend(weight_of(key) + out.named.size() / 8)) {
        fail("'**' needs keys that are strings and given once.");
        return false;
      }
      out.named.emplace_back(key, value);
    }
  }
  return true;
}

Value Machine::eval_call(const Expr& expr) {
  Value callee = eval(*expr.kids[0]);
  Args args;
  if (failed() || !eval_args(expr.args.get(), args)) return {};
  at_ = expr.at;
  return call(callee, args);
}

Value Machine::eval_filter(const Expr& expr, const Value* subject) {
  Value value = expr.kids[0] != nullptr ? eval_filter_subject(*expr.kids[0], subject) : *subject;
  Args args;
  if (failed() || !eval_args(expr.args.get(), args)) return {};
  at_ = expr.at;
  return expr.fn != nullptr ? expr.fn(*this, value, args) : unknown(expr);
}

// A chain of filters begins with a value, or, in filter blocks, with what the block rendered.
Value Machine::eval_filter_subject(const Expr& expr, const Value* subject) {
  if (subject != nullptr && expr.kind == ExprKind::kFilter) return eval_filter(expr, subject);
  return eval(expr);
}

Value Machine::apply_filters(const Expr& filters, Value subject) { return eval_filter(filters, &subject); }

Value Machine::eval_compare(const Expr& expr) {
  Value left = eval(*expr.kids[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    if (failed()) return {};
    Value right = eval(*expr.kids[i + 1]);
    at_ = expr.at;
    if (failed() || !compare(expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Machine::compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return equals(a, b);
    case Op::kNe:
      return !equals(a, b);
    case Op::kLt:
      return less(a, b, "<");
    case Op::kGt:
      return less(b, a, ">");
    case Op::kLe:
      return at_most(a, b, "<=");
    case Op::kGe:
      return at_most(b, a, ">=");
    case Op::kIn:
      return contains(b, a);
    default:
      return !contains(b, a);
  }
}

// --- Attributes and elements ---

namespace {

bool is_internal_name(std::string_view name) { return name.starts_with("__") && name.ends_with("__"); }

}  // namespace

Value Machine::attribute(const Value& object, const Value& name_value) {
  std::string_view name = name_value.str();
  spend(name.size() / 64);
  switch (object.kind()) {
    case Kind::kUndefined:
      return undefined_used(object);
    case Kind::kString:
      if (MethodFn fn = find_string_method(name)) return method(object, name, fn);
      break;
    case Kind::kNamespace:
      spend(object.as<NamespaceObject>()->attributes.size() / 8);
      for (const auto& [key, value] : object.as<NamespaceObject>()->attributes) {
        if (key.str() == name) return value;
      }
      break;
    case Kind::kLoop:
      return loop_attribute(object, name);
    case Kind::kRange: {
      const auto* range_object = object.as<RangeObject>();
      if (name == "start") return Value::integer(range_object->start);
      if (name == "stop") return Value::integer(range_object->stop);
      if (name == "step") return Value::integer(range_object->step);
      break;
    }
    case Kind::kTuple:
      if (object.as<ListObject>()->is_group && (name == "grouper" || name == "list")) {
        return object.items()[name == "list"];
      }
      break;
    case Kind::kMacro:
      if (name == "name") return string(object.as<MacroObject>()->def->name);
      break;
    case Kind::kCycler:
      if (name == "current") {
        const auto* cycler = object.as<CyclerObject>();
        return cycler->items[cycler->next % cycler->items.size()];
      }
      break;
    default:
      break;
  }
  if (MethodFn fn = find_container_method(object.kind(), name)) return method(object, name, fn);
  bool refused = is_refused_method(object.kind(), name);
  if (!refused && object.is(Kind::kDict)) {
    spend(1 + name.size() / 64);
    if (const Value* found = object.as<DictObject>()->find(name)) return *found;
  }
  if (refused || is_internal_name(name)) {
    return undefined("access to attribute '" + shown(name) + "' of '" + type_name(object) + "' object is unsafe.");
  }
  return missing(object, name_value);
}

Value Machine::item(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kUndefined:
      return undefined_used(object);
    case Kind::kDict: {
      if (!is_hashable(key)) break;
      if (!spend(1 + weight_of(key))) return {};
      if (const Value* found = object.as<DictObject>()->find(key)) return *found;
      break;
    }
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kRange: {
      if (!key.is_integral()) break;
      int64_t size = length(object);
      int64_t i = key.as_int() < 0 ? key.as_int() + size : key.as_int();
      if (i < 0 || i >= size) break;
      if (object.is(Kind::kRange)) {
        return Value::integer(static_cast<int64_t>(object.as<RangeObject>()->at(i)));
      }
      if (!object.is_string()) return object.items()[static_cast<size_t>(i)];
      const Text& text = object.text();
      bool ascii = static_cast<size_t>(size) == text.size();
      if (!ascii) spend(text.size() / 64);
      size_t begin = ascii ? static_cast<size_t>(i) : byte_of_char(text.bytes, static_cast<size_t>(i));
      size_t end = begin;
      next_char(text.bytes, end);
      return string(text.slice(begin, end), object.is_markup());
    }
    default:
      break;
  }
  if (key.is_string() && !object.is(Kind::kDict)) return attribute(object, key);
  if (key.is_string()) {
    std::string_view name = key.str();
    if (MethodFn fn = find_container_method(object.kind(), name)) return method(object, name, fn);
  }
  return missing(object, key);
}

Value Machine::slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  for (const Value* part : {&start, &stop, &step}) {
    if (!part->is_none() && !part->is_integral()) return fail("the parts of a slice must be integers.");
  }
  if (object.is_undefined()) return undefined_used(object);
  bool sliceable = object.is_string() || object.is_sequence() || object.is(Kind::kRange);
  if (!sliceable) return fail(std::string("a value of type '") + type_name(object) + "' cannot be sliced.");
  int64_t n = length(object);
  int64_t by = step.is_none() ? 1 : step.as_int();
  if (by == 0) return fail("the step of a slice cannot be zero.");
  by = std::clamp<int64_t>(by, -n - 1, n + 1);
  auto clamp = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    int64_t i = v.as_int() < 0 ? std::max<int64_t>(v.as_int(), -n - 1) + n : v.as_int();
    return by > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
  };
  int64_t from = clamp(start, by > 0 ? 0 : n - 1);
  int64_t to = clamp(stop, by > 0 ? n : -1);
  if (object.is(Kind::kRange)) {
    const auto* r = object.as<RangeObject>();
    return range(r->at(from), r->at(to), static_cast<__int128>(r->step) * by);
  }
  if (!object.is_string()) {
    std::vector<Value> items;
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by) items.push_back(object.items()[static_cast<size_t>(i)]);
    spend(items.size() / 8);
    return list(std::move(items), object.kind());
  }
  const Text& text = object.text();
  spend(text.size() / 64);
  if (!room(text.size() + text.marks.size() * sizeof(TextRange))) return {};
  Text out;
  bool ascii = static_cast<size_t>(n) == text.size();
  if (by == 1) {
    if (to <= from) return string("", object.is_markup());
    size_t begin = ascii ? static_cast<size_t>(from) : byte_of_char(text.bytes, static_cast<size_t>(from));
    size_t end = ascii
                     ? static_cast<size_t>(to)
                     : begin + byte_of_char(std::string_view(text.bytes).substr(begin), static_cast<size_t>(to - from));
    return string(text.slice(begin, end), object.is_markup());
  }
  std::vector<uint32_t> starts;  // of each code point
  if (!room(static_cast<uint64_t>(n) * 4 + text.size())) return {};
  for (size_t i = 0; i < text.size(); next_char(text.bytes, i)) starts.push_back(static_cast<uint32_t>(i));
  starts.push_back(static_cast<uint32_t>(text.size()));
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    out.append(text, starts[static_cast<size_t>(i)], starts[static_cast<size_t>(i) + 1]);
  }
  spend(out.size() / 4);
  return string(std::move(out), object.is_markup());
}

}  // namespace ibid::jinja
