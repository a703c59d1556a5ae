// str % values.
#include "text/jinja/format.h"

#include <cmath>
#include <cstdio>

#include "text/jinja/unicode.h"

namespace ibid::jinja {

std::string digits_of(uint64_t n, unsigned base, bool upper) {
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string s;
  do {
    s.insert(s.begin(), digits[n % base]);
    n /= base;
  } while (n != 0);
  return s;
}

namespace {

void append_fill(Machine& m, Text& out, char32_t fill, int64_t n) {
  if (n <= 0 || !m.room(out, static_cast<uint64_t>(n) * 4)) return;
  m.spend(static_cast<uint64_t>(n) / 64);
  std::string one;
  utf8::append(fill, one);
  for (int64_t i = 0; i < n; ++i) out.append(one);
}

}  // namespace

void append_padded(Machine& m, Text& out, const Spec& spec, std::string_view prefix, const Text& body, char align) {
  int64_t missing = spec.width - static_cast<int64_t>(utf8::count(prefix) + utf8::count(body.bytes));
  if (spec.align != 0) align = spec.align;
  int64_t left = missing <= 0 || align == '<' || align == '=' ? 0 : align == '^' ? missing / 2 : missing;
  append_fill(m, out, spec.fill, left);
  out.append(prefix);
  if (align == '=') append_fill(m, out, spec.fill, missing);
  if (m.room(out, body.size())) out.append(body);
  if (align == '<' || align == '^') append_fill(m, out, spec.fill, missing - left);
}

std::string grouped(const std::string& digits, char group, int every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % static_cast<size_t>(every) == 0) out += group;
    out += digits[i];
  }
  return out;
}

std::string float_text(double d, const Spec& spec) {
  char type = spec.type;
  double magnitude = std::fabs(d);
  if (std::isnan(d) || std::isinf(d)) {
    bool upper = type == 'E' || type == 'F' || type == 'G';
    std::string word = std::isnan(d) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return type == '%' ? word + "%" : word;
  }
  if (type == 0 && spec.precision < 0) return float_repr(magnitude);
  int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  char c_type = type == 0 || type == 'n' ? 'g' : type == '%' ? 'f' : type;
  if (type == '%') magnitude *= 100;
  char format[8] = {'%'};
  char* f = format + 1;
  if (spec.alternate) *f++ = '#';
  *f++ = '.', *f++ = '*', *f = c_type;
  std::string text(static_cast<size_t>(precision) + 330, '\0');
  text.resize(
      static_cast<size_t>(std::snprintf(text.data(), text.size(), format, static_cast<int>(precision), magnitude)));
  if (type == 0 && text.find_first_of(".e") == std::string::npos) text += ".0";
  if (type == '%') text += '%';
  return text;
}

std::string sign_text(bool negative, char sign) { return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : ""; }

namespace {

class PercentFormatter {
 public:
  PercentFormatter(Machine& m, const Text& format, const Value& args) : m_(m), f_(format), args_(args) {}

  Value run() {
    const std::string& s = f_.bytes;
    m_.spend(s.size() / 32);
    size_t i = 0;
    while (i < s.size() && !m_.failed()) {
      size_t percent = s.find('%', i);
      size_t end = percent == std::string::npos ? s.size() : percent;
      if (!m_.room(out_, end - i)) return {};
      out_.append(f_, i, end);
      i = end;
      if (i < s.size()) convert(++i);
    }
    bool mapping = args_.is(Kind::kDict) || args_.is(Kind::kList) || args_.is_undefined();
    bool left = args_.is(Kind::kTuple) ? used_ < args_.items().size() : used_ == 0;
    if (left && !mapping) m_.fail("not all arguments of the format are used.");
    return m_.failed() ? Value() : m_.string(std::move(out_));
  }

 private:
  Value next_argument() {
    if (args_.is(Kind::kTuple)) {
      if (used_ < args_.items().size()) return args_.items()[used_++];
    } else if (used_++ == 0) {
      return args_;
    }
    return m_.fail("the format needs more arguments.");
  }
  int64_t number(size_t& i) {
    const std::string& s = f_.bytes;
    if (i < s.size() && s[i] == '*') {
      ++i;
      Value v = next_argument();
      if (!v.is(Kind::kInt)) m_.fail("'*' in a format needs an integer.");
      return m_.failed() ? 0 : std::clamp<int64_t>(v.as_int(), -kMaxWidth, kMaxWidth);
    }
    int64_t n = 0;
    for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) n = std::min<int64_t>(n * 10 + (s[i] - '0'), kMaxWidth);
    return n;
  }

  void convert(size_t& i) {
    const std::string& s = f_.bytes;
    Value value;
    bool has_value = false;
    if (i < s.size() && s[i] == '(') {
      size_t begin = ++i;
      for (int depth = 1; i < s.size(); ++i) {
        depth += s[i] == '(' ? 1 : s[i] == ')' ? -1 : 0;
        if (depth == 0) break;
      }
      if (i >= s.size() || !args_.is(Kind::kDict)) {
        m_.fail("'%(name)' in a format needs its ')' and a dict.");
        return;
      }
      const Value* found = args_.as<DictObject>()->find(std::string_view(s).substr(begin, i - begin));
      ++i;
      if (found == nullptr) {
        m_.fail("the format names a key that the dict does not have.");
        return;
      }
      value = *found;
      has_value = true;
      used_ = 1;
    }
    Spec spec;
    for (; i < s.size(); ++i) {
      if (s[i] == '-')
        spec.align = '<';
      else if (s[i] == '+')
        spec.sign = '+';
      else if (s[i] == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (s[i] == '#')
        spec.alternate = true;
      else if (s[i] == '0')
        spec.zero = true;
      else
        break;
    }
    spec.width = number(i);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (i < s.size() && s[i] == '.') spec.precision = std::max<int64_t>(number(++i), 0);
    while (i < s.size() && (s[i] == 'h' || s[i] == 'l' || s[i] == 'L')) ++i;
    if (i >= s.size()) {
      m_.fail("the format ends within a conversion.");
      return;
    }
    spec.type = s[i++];
    if (m_.failed()) return;
    if (spec.type == '%') return out_.append("%");
    if (!has_value) value = next_argument();
    if (!m_.failed()) put(spec, value);
  }

  void put(Spec spec, const Value& v) {
    switch (spec.type) {
      case 's':
      case 'r': {
        Text text;
        if (spec.type == 's') {
          m_.append_str(v, text);
        } else {
          m_.append_repr(v, text);
        }
        if (spec.precision >= 0) text = text.slice(0, byte_of_char(text.bytes, static_cast<size_t>(spec.precision)));
        return append_padded(m_, out_, spec, "", text, '>');
      }
      case 'c': {
        Text text;
        if (v.is_string() && length(v) == 1) text = v.text();
        if (v.is(Kind::kInt) && v.as_int() >= 0 && v.as_int() <= 0x10FFFF &&
            (v.as_int() < 0xD800 || v.as_int() > 0xDFFF)) {
          utf8::append(static_cast<uint32_t>(v.as_int()), text.bytes);
        }
        if (text.size() == 0) break;
        return append_padded(m_, out_, spec, "", text, '>');
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        if (!v.is_integral() && !(decimal && v.is(Kind::kFloat) && std::fabs(v.as_double()) < 9e18)) break;
        int64_t n = v.is(Kind::kFloat) ? static_cast<int64_t>(v.as_double()) : v.as_int();
        unsigned base = decimal ? 10 : spec.type == 'o' ? 8 : 16;
        std::string digits =
            digits_of(n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n), base, spec.type == 'X');
        if (spec.precision > kMaxPrecision) break;
        if (static_cast<int64_t>(digits.size()) < spec.precision) {
          digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
        }
        std::string prefix = sign_text(n < 0, spec.sign);
        if (spec.alternate && !decimal) prefix += std::string("0") + spec.type;
        return put_number(spec, prefix, digits);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!v.is_number() || spec.precision > kMaxPrecision) break;
        double d = v.as_double();
        return put_number(spec, sign_text(std::signbit(d) && !std::isnan(d), spec.sign), float_text(d, spec));
      }
      default:
        break;
    }
    m_.fail(std::string("the conversion '%") + (spec.type >= 32 ? spec.type : '?') +
            "' does not fit a value of type '" + type_name(v) + "', or asks too much.");
  }

  void put_number(Spec spec, const std::string& prefix, const std::string& digits) {
    if (spec.zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = '0';
    }
    append_padded(m_, out_, spec, prefix, digits, '>');
  }

  Machine& m_;
  const Text& f_;
  const Value& args_;
  size_t used_ = 0;
  Text out_;
};

}  // namespace

Value Machine::percent_format(const Value& format, const Value& args) {
  return PercentFormatter(*this, format.text(), args).run();
}

}  // namespace ibid::jinja
