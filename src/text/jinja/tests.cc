// Jinja's tests: `value is name(arguments)`.
#include "text/jinja/filters.h"

namespace ibid::jinja {
namespace {

using Kinds = std::initializer_list<Kind>;

bool is_one_of(const Value& v, Kinds kinds) {
  for (Kind kind : kinds) {
    if (v.is(kind)) return true;
  }
  return false;
}

// A test without arguments.
template <auto condition>
Value plain(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  return Value::boolean(condition(v));
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool integer(const Value& v) { return is_one_of(v, {Kind::kInt, Kind::kBigInt}); }
bool real(const Value& v) { return v.is(Kind::kFloat); }
bool number(const Value& v) { return v.is_number() || v.is(Kind::kBigInt); }
bool string(const Value& v) { return v.is_string(); }
bool mapping(const Value& v) { return v.is(Kind::kDict); }
bool escaped(const Value& v) { return v.is_markup(); }
bool sequence(const Value& v) {
  return is_one_of(v, {Kind::kUndefined, Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kRange});
}
bool is_callable(const Value& v) {
  return is_one_of(v, {Kind::kUndefined, Kind::kMacro, Kind::kMethod, Kind::kFunction, Kind::kLoop, Kind::kJoiner});
}

Value iterable(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  return Value::boolean(m.is_iterable(v));
}

// A test with one other operand.
template <auto condition>
Value pair(Machine& m, const Value& v, Args& args) {
  Params p(m, args, "the test", {"other"}, 1);
  if (!p) return {};
  bool yes = condition(m, v, p[0]);
  return m.failed() ? Value() : Value::boolean(yes);
}

bool eq(Machine& m, const Value& a, const Value& b) { return m.equals(a, b); }
bool ne(Machine& m, const Value& a, const Value& b) { return !m.equals(a, b); }
bool lt(Machine& m, const Value& a, const Value& b) { return m.less(a, b, "<"); }
bool gt(Machine& m, const Value& a, const Value& b) { return m.less(b, a, ">"); }
bool le(Machine& m, const Value& a, const Value& b) { return m.at_most(a, b, "<="); }
bool ge(Machine& m, const Value& a, const Value& b) { return m.at_most(b, a, ">="); }
bool in(Machine& m, const Value& a, const Value& b) { return m.contains(b, a); }
bool same_as(Machine& m, const Value& a, const Value& b) {
  if (a.kind() != b.kind() || !m.spend(a.is_string() ? std::min(weight_of(a), weight_of(b)) : 1)) return false;
  if (a.object() != nullptr || b.object() != nullptr)
    return a.object() == b.object() || (a.is_string() && a.str() == b.str());
  return equal(a, b);
}
bool divisible(Machine& m, const Value& a, const Value& b) {
  Value rest = m.binary(Op::kMod, a, b);
  return !m.failed() && equal(rest, Value::integer(0));
}

template <int wanted>
Value parity(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  Value rest = m.binary(Op::kMod, v, Value::integer(2));
  return m.failed() ? Value() : Value::boolean(equal(rest, Value::integer(wanted)));
}

template <bool upper>
Value letter_case(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  Value text = v.is_string() ? v : m.string(m.str(v));
  return m.failed() ? Value() : find_string_method(upper ? "isupper" : "islower")(m, text, args);
}

Value is_filter(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  return Value::boolean(v.is_string() && find_filter(v.str()) != nullptr);
}
Value is_test(Machine& m, const Value& v, Args& args) {
  if (!Params(m, args, "the test", {})) return {};
  return Value::boolean(v.is_string() && find_test(v.str()) != nullptr);
}

}  // namespace

const FilterEntry kTests[] = {
    {"defined", plain<defined>},
    {"undefined", plain<undefined>},
    {"none", plain<none>},
    {"boolean", plain<boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<integer>},
    {"float", plain<real>},
    {"number", plain<number>},
    {"string", plain<string>},
    {"mapping", plain<mapping>},
    {"sequence", plain<sequence>},
    {"iterable", iterable},
    {"callable", plain<is_callable>},
    {"escaped", plain<escaped>},
    {"lower", letter_case<false>},
    {"upper", letter_case<true>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", pair<divisible>},
    {"sameas", pair<same_as>},
    {"in", pair<in>},
    {"==", pair<eq>},
    {"eq", pair<eq>},
    {"equalto", pair<eq>},
    {"!=", pair<ne>},
    {"ne", pair<ne>},
    {"<", pair<lt>},
    {"lt", pair<lt>},
    {"lessthan", pair<lt>},
    {"<=", pair<le>},
    {"le", pair<le>},
    {">", pair<gt>},
    {"gt", pair<gt>},
    {"greaterthan", pair<gt>},
    {">=", pair<ge>},
    {"ge", pair<ge>},
    {"filter", is_filter},
    {"test", is_test},
    {"", nullptr},
};

FilterFn find_test(std::string_view name) {
  for (const FilterEntry* entry = kTests; !entry->name.empty(); ++entry) {
    if (entry->name == name) return entry->fn;
  }
  return nullptr;
}

}  // namespace ibid::jinja
