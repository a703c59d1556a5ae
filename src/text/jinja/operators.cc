// Comparison and arithmetic as Python does them; integers have 64 bits, and what leaves them is an error.
#include <cmath>
#include <cstring>

#include "text/jinja/machine.h"

namespace ibid::jinja {

bool Machine::equals(const Value& a, const Value& b) {
  if (!spend(std::min(weight_of(a), weight_of(b)))) return false;
  return equal(a, b);
}

bool Machine::less(const Value& a, const Value& b, const char* op) {
  if (!spend(std::min(weight_of(a), weight_of(b)))) return false;
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() < b.as_int() : a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) return a.str() < b.str();  // UTF-8 keeps the order of code points
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto& x = a.items();
    const auto& y = b.items();
    size_t n = std::min(x.size(), y.size());
    for (size_t i = 0; i < n && !failed(); ++i) {
      if (!equals(x[i], y[i])) return less(x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    undefined_used(a.is_undefined() ? a : b);
  } else {
    fail(std::string("'") + op + "' does not compare '" + type_name(a) + "' with '" + type_name(b) + "'.");
  }
  return false;
}

bool Machine::at_most(const Value& a, const Value& b, const char* op) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() <= b.as_int() : a.as_double() <= b.as_double();
  }
  return less(a, b, op) || (!failed() && equals(a, b));
}

bool Machine::contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        if (item.is_undefined()) {
          fail("'in' a string needs a string on its left, not an undefined value.");
        } else {
          fail(std::string("'in' a string needs a string on its left, not '") + type_name(item) + "'.");
        }
        return false;
      }
      spend(container.text().size() / 64);
      return memmem(container.str().data(), container.str().size(), item.str().data(), item.str().size()) != nullptr;
    case Kind::kDict:
      if (!is_hashable(item)) {
        fail(std::string("a ") + type_name(item) + " cannot be the key of a dict.");
        return false;
      }
      return spend(weight_of(item)) && container.as<DictObject>()->find(item) != nullptr;
    case Kind::kLoop:
    default: {
      if (!is_iterable(container)) {
        fail(std::string("a value of type '") + type_name(container) + "' contains nothing.");
        return false;
      }
      Iter iter(container);
      Value other;
      while (spend() && iter.next(*this, other)) {
        if (equals(other, item)) return true;
      }
      return false;
    }
  }
}

Value Machine::add(const Value& a, const Value& b) { return binary(Op::kAdd, a, b); }

namespace {

const char* op_name(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSub:
      return "-";
    case Op::kMul:
      return "*";
    case Op::kDiv:
      return "/";
    case Op::kFloorDiv:
      return "//";
    case Op::kMod:
      return "%";
    default:
      return "**";
  }
}

Value too_big(Machine& m) { return m.fail("an integer leaves the range of 64 bits."); }

Value integer_power(Machine& m, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return too_big(m);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_big(m);
  }
  return Value::integer(result);
}

Value integer_binary(Machine& m, Op op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case Op::kAdd:
      return __builtin_add_overflow(a, b, &r) ? too_big(m) : Value::integer(r);
    case Op::kSub:
      return __builtin_sub_overflow(a, b, &r) ? too_big(m) : Value::integer(r);
    case Op::kMul:
      return __builtin_mul_overflow(a, b, &r) ? too_big(m) : Value::integer(r);
    case Op::kFloorDiv:
    case Op::kMod:
      if (b == 0) return m.fail("division by zero.");
      if (b == -1) return op == Op::kMod ? Value::integer(0) : integer_binary(m, Op::kSub, 0, a);
      r = a % b;
      if (r != 0 && (r < 0) != (b < 0)) {
        return Value::integer(op == Op::kMod ? r + b : a / b - 1);
      }
      return Value::integer(op == Op::kMod ? r : a / b);
    default:
      if (b >= 0) return integer_power(m, a, b);
      if (a == 0) return m.fail("zero cannot be raised to a negative power.");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Value float_binary(Machine& m, Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::real(a + b);
    case Op::kSub:
      return Value::real(a - b);
    case Op::kMul:
      return Value::real(a * b);
    case Op::kDiv:
      if (b == 0) return m.fail("division by zero.");
      return Value::real(a / b);
    case Op::kPow: {
      if (a == 0 && b < 0) return m.fail("zero cannot be raised to a negative power.");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) return m.fail("the power of a negative number is complex.");
      double r = std::pow(a, b);
      if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) return m.fail("the power is too large.");
      return Value::real(r);
    }
    default: {
      if (b == 0) return m.fail("division by zero.");
      double mod = std::fmod(a, b);
      double div = (a - mod) / b;
      if (mod != 0) {
        if ((b < 0) != (mod < 0)) {
          mod += b;
          div -= 1.0;
        }
      } else {
        mod = std::copysign(0.0, b);
      }
      if (op == Op::kMod) return Value::real(mod);
      if (div == 0) return Value::real(std::copysign(0.0, a / b));
      double floor = std::floor(div);
      return Value::real(div - floor > 0.5 ? floor + 1.0 : floor);
    }
  }
}

Value repeat(Machine& m, const Value& what, int64_t n) {
  n = std::max<int64_t>(n, 0);
  uint64_t size = what.is_string() ? what.text().size() + what.text().marks.size() * sizeof(TextRange)
                                   : what.items().size() * sizeof(Value);
  if (size == 0) n = 0;
  unsigned __int128 total = static_cast<unsigned __int128>(size) * static_cast<uint64_t>(n);
  if (!m.room(total > (uint64_t{1} << 60) ? uint64_t{1} << 60 : static_cast<uint64_t>(total))) return {};
  m.spend(static_cast<uint64_t>(n) / 8 + static_cast<uint64_t>(total) / 64);
  if (m.failed()) return {};
  if (what.is_string()) {
    Text out;
    out.bytes.reserve(what.text().size() * static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) out.append(what.text());
    return m.string(std::move(out), what.is_markup());
  }
  std::vector<Value> items;
  items.reserve(what.items().size() * static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) items.insert(items.end(), what.items().begin(), what.items().end());
  return m.list(std::move(items), what.kind());
}

}  // namespace

Value Machine::binary(Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral() && op != Op::kDiv) return integer_binary(*this, op, a.as_int(), b.as_int());
    return float_binary(*this, op, a.as_double(), b.as_double());
  }
  if (op == Op::kMod && a.is_string()) return percent_format(a, b);
  if (a.is_undefined() || b.is_undefined()) return undefined_used(a.is_undefined() ? a : b);
  if (op == Op::kAdd && a.is_string() && b.is_string()) {
    bool markup = a.is_markup() || b.is_markup();
    uint64_t size = a.text().size() + b.text().size();
    if (!room(size * (markup ? 6 : 1))) return {};
    Text out;
    out.bytes.reserve(size);
    for (const Value* v : {&a, &b}) {
      if (markup && !v->is_markup()) {
        out.append(html_escaped(v->text()));
      } else {
        out.append(v->text());
      }
    }
    return string(std::move(out), markup);
  }
  if (op == Op::kAdd && a.is_sequence() && a.kind() == b.kind()) {
    if (!room((a.items().size() + b.items().size()) * sizeof(Value))) return {};
    std::vector<Value> items(a.items());
    items.insert(items.end(), b.items().begin(), b.items().end());
    return list(std::move(items), a.kind());
  }
  if (op == Op::kMul) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(*this, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(*this, b, a.as_int());
  }
  return fail(std::string("'") + op_name(op) + "' does not work on '" + type_name(a) + "' and '" + type_name(b) + "'.");
}

}  // namespace ibid::jinja
