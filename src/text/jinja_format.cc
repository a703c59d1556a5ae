// str % values, str.format and json.dumps.
#include <cmath>
#include <cstdio>

#include "text/jinja_machine.h"
#include "text/jinja_unicode.h"

namespace ibid::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;
constexpr int64_t kMaxWidth = int64_t{1} << 40;  // room() refuses long before

struct Spec {
  char32_t fill = ' ';
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, zero = false;
  char group = 0;  // , or _
  int64_t width = 0, precision = -1;
  char type = 0;
};

std::string digits_of(uint64_t n, unsigned base, bool upper) {
  std::string s;
  do {
    s.insert(s.begin(), (upper ? "0123456789ABCDEF" : "0123456789abcdef")[n % base]);
    n /= base;
  } while (n != 0);
  return s;
}

void append_fill(Machine& m, Text& out, char32_t fill, int64_t n) {
  if (n <= 0 || !m.room(out, static_cast<uint64_t>(n) * 4)) return;
  m.spend(static_cast<uint64_t>(n) / 64);
  std::string one;
  append_char(fill, one);
  for (int64_t i = 0; i < n; ++i) out.append(one);
}

// `prefix` (sign, 0x) stands before zero padding.
void append_padded(Machine& m, Text& out, const Spec& spec, std::string_view prefix, const Text& body, char align) {
  int64_t missing = spec.width - static_cast<int64_t>(count_chars(prefix) + count_chars(body.bytes));
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

// --- % ---

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
          append_char(static_cast<uint32_t>(v.as_int()), text.bytes);
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

// --- str.format ---

class BraceFormatter {
 public:
  BraceFormatter(Machine& m, Args& args, bool escapes) : m_(m), args_(args), escapes_(escapes) {}

  void run(const Text& format, Text& out, int depth) {
    const std::string& s = format.bytes;
    m_.spend(1 + s.size() / 32);
    if (depth > 1) {
      m_.fail("the fields of a format are nested too deeply.");
      return;
    }
    for (size_t i = 0; i < s.size() && !m_.failed();) {
      size_t brace = s.find_first_of("{}", i);
      size_t end = brace == std::string::npos ? s.size() : brace;
      if (!m_.room(out, end - i)) return;
      out.append(format, i, end);
      i = end;
      if (i == s.size()) return;
      if (i + 1 < s.size() && s[i + 1] == s[i]) {
        out.append(std::string_view(s).substr(i, 1));
        i += 2;
      } else if (s[i] == '}') {
        m_.fail("a single '}' in a format; write '}}'.");
      } else {
        field(format, ++i, out, depth);
      }
    }
  }

 private:
  // `i` is behind the '{'; leaves it behind the '}'.
  void field(const Text& format, size_t& i, Text& out, int depth) {
    const std::string& s = format.bytes;
    size_t begin = i;
    bool in_bracket = false;
    while (i < s.size() && (in_bracket || (s[i] != '!' && s[i] != ':' && s[i] != '}' && s[i] != '{'))) {
      in_bracket = s[i] == '[' || (in_bracket && s[i] != ']');
      ++i;
    }
    Value value = find(std::string_view(s).substr(begin, i - begin));
    if (m_.failed()) return;
    char conversion = 0;
    if (i < s.size() && s[i] == '!') {
      conversion = i + 1 < s.size() ? s[i + 1] : 0;
      i += 2;
    }
    Text spec_text;
    if (i < s.size() && s[i] == ':') {
      size_t spec_begin = ++i;
      for (int open = 0; i < s.size() && (open > 0 || s[i] != '}'); ++i) open += s[i] == '{' ? 1 : s[i] == '}' ? -1 : 0;
      run(format.slice(spec_begin, std::min(i, s.size())), spec_text, depth + 1);
    }
    if (i >= s.size() || s[i] != '}') {
      m_.fail("a field of a format is not closed by '}'.");
      return;
    }
    ++i;
    if (conversion != 0) {
      Text text;
      if (conversion == 's')
        m_.append_str(value, text);
      else if (conversion == 'r')
        m_.append_repr(value, text);
      else
        m_.fail("a format converts by !s or !r only.");
      value = m_.string(std::move(text));
    }
    if (m_.failed()) return;
    if (!escapes_ || value.is_markup()) return put(value, spec_text.bytes, out);
    Text text;
    put(value, spec_text.bytes, text);
    if (m_.room(out, text.size() * 6)) out.append(html_escaped(text));
  }

  Value find(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    std::string_view first = name.substr(0, end);
    Value value;
    bool numeric =
        !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos && first.size() < 9;
    if (first.empty() || numeric) {
      size_t index = first.empty() ? next_++ : static_cast<size_t>(std::stoul(std::string(first)));
      automatic_ |= first.empty();
      manual_ |= numeric;
      if (automatic_ && manual_) return m_.fail("a format numbers its fields either itself or not at all.");
      if (index >= args_.positional.size()) return m_.fail("the format needs more arguments.");
      value = args_.positional[index];
    } else {
      auto it =
          std::find_if(args_.named.begin(), args_.named.end(), [&](const auto& arg) { return arg.first == first; });
      if (it == args_.named.end()) return m_.fail("the format names an argument that is not given.");
      value = it->second;
    }
    while (end < name.size() && !m_.failed()) {
      if (name[end] == '.') {
        size_t next = std::min(name.find_first_of(".[", end + 1), name.size());
        value = m_.attribute(value, m_.string(name.substr(end + 1, next - end - 1)));
        end = next;
      } else if (name[end] == '[' && name.find(']', end) != std::string_view::npos) {
        size_t close = name.find(']', end);
        std::string_view key = name.substr(end + 1, close - end - 1);
        bool index = !key.empty() && key.size() < 18 && key.find_first_not_of("0123456789") == std::string_view::npos;
        value = m_.item(value, index ? Value::integer(std::stoll(std::string(key))) : m_.string(key));
        end = close + 1;
      } else {
        return m_.fail("the field of a format is malformed.");
      }
    }
    return value;
  }

  bool read_spec(std::string_view s, Spec& spec) {
    size_t i = 0;
    size_t after_fill = 0;
    uint32_t first = s.empty() ? 0 : next_char(s, after_fill);
    auto is_align = [&](size_t k) {
      return k < s.size() && std::string_view("<>=^").find(s[k]) != std::string_view::npos;
    };
    if (!s.empty() && is_align(after_fill)) {
      spec.fill = first;
      spec.align = s[after_fill];
      i = after_fill + 1;
    } else if (is_align(0)) {
      spec.align = s[i++];
    }
    if (i < s.size() && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) spec.sign = s[i++];
    if (i < s.size() && s[i] == '#') spec.alternate = true, ++i;
    if (i < s.size() && s[i] == '0') spec.zero = true, ++i;
    auto number = [&] {
      int64_t n = 0;
      for (; i < s.size() && s[i] >= '0' && s[i] <= '9'; ++i) n = std::min<int64_t>(n * 10 + (s[i] - '0'), kMaxWidth);
      return n;
    };
    spec.width = number();
    if (i < s.size() && (s[i] == ',' || s[i] == '_')) spec.group = s[i++];
    if (i < s.size() && s[i] == '.') {
      ++i;
      spec.precision = number();
    }
    if (i < s.size()) spec.type = s[i++];
    return i == s.size();
  }

  void put(const Value& v, std::string_view spec_text, Text& out) {
    if (spec_text.empty()) return m_.append_str(v, out);
    Spec spec;
    bool fine = read_spec(spec_text, spec);
    if (fine && v.is_string() && (spec.type == 0 || spec.type == 's') && spec.group == 0 && spec.align != '=') {
      if (spec.zero && spec.align == 0) spec.align = '<';
      if (spec.zero && spec.fill == ' ') spec.fill = '0';
      Text text = v.text();
      if (spec.precision >= 0) text = text.slice(0, byte_of_char(text.bytes, static_cast<size_t>(spec.precision)));
      return append_padded(m_, out, spec, "", text, '<');
    }
    if (fine && v.is_number() && spec.precision <= kMaxPrecision) {
      if (spec.zero && spec.align == 0) {
        spec.align = '=';
        spec.fill = '0';
      }
      std::string prefix, digits;
      bool as_int = v.is_integral() && std::string_view("\0bdoxXn", 7).find(spec.type) != std::string_view::npos;
      bool is_char =
          spec.type == 'c' && v.is_integral() && v.as_int() >= 0 && v.as_int() < 0xD800 && spec.precision < 0;
      if (is_char) {
        append_char(static_cast<uint32_t>(v.as_int()), digits);
        return append_padded(m_, out, spec, "", digits, '<');
      }
      if (as_int && spec.precision < 0) {
        int64_t n = v.as_int();
        unsigned base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : (spec.type | 32) == 'x' ? 16 : 10;
        digits = digits_of(n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n), base, spec.type == 'X');
        if (spec.group != 0) digits = grouped(digits, spec.group, base == 10 ? 3 : 4);
        prefix = sign_text(n < 0, spec.sign);
        if (spec.alternate && base != 10) prefix += std::string("0") + spec.type;
        return append_padded(m_, out, spec, prefix, digits, '>');
      }
      if (!as_int && std::string_view("\0eEfFgGn%", 9).find(spec.type) != std::string_view::npos) {
        double d = v.as_double();
        digits = float_text(d, spec);
        size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
        if (spec.group != 0) digits = grouped(digits.substr(0, whole), spec.group, 3) + digits.substr(whole);
        prefix = sign_text(std::signbit(d) && !std::isnan(d), spec.sign);
        return append_padded(m_, out, spec, prefix, digits, '>');
      }
    }
    m_.fail("the format '" + std::string(spec_text.substr(0, byte_of_char(spec_text, 40))) +
            "' does not fit a value of type '" + type_name(v) + "', or asks too much.");
  }

  Machine& m_;
  Args& args_;
  bool escapes_;  // the format is Markup
  size_t next_ = 0;
  bool automatic_ = false, manual_ = false;
};

// --- JSON ---

void append_json_string(Machine& m, const Text& text, bool ascii, Text& out) {
  const std::string& s = text.bytes;
  if (!m.room(out, s.size() * (ascii ? 6 : 2) + 2)) return;
  m.spend(1 + s.size() / 16);
  out.append("\"");
  for (size_t i = 0; i < s.size();) {
    size_t begin = i;
    uint32_t c = next_char(s, i);
    char escape[16];
    static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kTo = "\"\\nrtfb";
    size_t known = c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    bool mark = text.has_marks() && text.is_marked(begin);
    if (known != std::string_view::npos) {
      escape[0] = '\\', escape[1] = kTo[known], escape[2] = 0;
    } else if (c >= 0x20 && (!ascii || c < 0x7F)) {
      out.append(std::string_view(s).substr(begin, i - begin), mark);
      continue;
    } else if (c < 0x10000) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
    } else {
      std::snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                    0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    out.append(escape, mark);
  }
  out.append("\"");
}

}  // namespace

Value Machine::percent_format(const Value& format, const Value& args) {
  return PercentFormatter(*this, format.text(), args).run();
}

Value Machine::brace_format(const Value& format, Args& args) {
  Text out;
  BraceFormatter(*this, args, format.is_markup()).run(format.text(), out, 0);
  return failed() ? Value() : string(std::move(out), format.is_markup());
}

void append_json(Machine& m, const Value& v, const JsonStyle& style, Text& out, int level) {
  if (!m.spend() || !m.room(out, 64)) return;
  auto newline = [&](int deep) {
    if (!style.indent) return;
    if (!m.room(out, style.indent->size() * static_cast<size_t>(deep) + 1)) return;
    m.spend(style.indent->size() * static_cast<size_t>(deep) / 64);
    out.append("\n");
    for (int i = 0; i < deep; ++i) out.append(*style.indent);
  };
  switch (v.kind()) {
    case Kind::kNone:
      return out.append("null");
    case Kind::kBool:
      return out.append(v.as_bool() ? "true" : "false");
    case Kind::kInt:
      return out.append(std::to_string(v.as_int()));
    case Kind::kBigInt:
      return m.append_str(v, out);
    case Kind::kFloat: {
      double d = v.as_double();
      return out.append(std::isnan(d) ? "NaN" : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : float_repr(d));
    }
    case Kind::kString:
      return append_json_string(m, v.text(), style.ensure_ascii, out);
    case Kind::kList:
    case Kind::kTuple: {
      if (v.items().empty()) return out.append("[]");
      out.append("[");
      for (size_t i = 0; i < v.items().size() && !m.failed(); ++i) {
        if (i > 0) out.append(style.item_separator);
        newline(level + 1);
        append_json(m, v.items()[i], style, out, level + 1);
      }
      newline(level);
      return out.append("]");
    }
    case Kind::kDict: {
      const auto& entries = v.as<DictObject>()->entries;
      if (entries.empty()) return out.append("{}");
      std::vector<const std::pair<Value, Value>*> order;
      for (const auto& entry : entries) order.push_back(&entry);
      if (style.sort_keys) {
        std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) { return m.less(a->first, b->first); });
      }
      out.append("{");
      for (size_t i = 0; i < order.size() && !m.failed(); ++i) {
        if (i > 0) out.append(style.item_separator);
        newline(level + 1);
        const Value& key = order[i]->first;
        if (key.is_string()) {
          append_json_string(m, key.text(), style.ensure_ascii, out);
        } else if (key.is_number() || key.is_none() || key.is(Kind::kBigInt)) {
          out.append("\"");
          append_json(m, key, style, out);
          out.append("\"");
        } else {
          m.fail(std::string("JSON has no key of type '") + type_name(key) + "'.");
        }
        out.append(style.key_separator);
        append_json(m, order[i]->second, style, out, level + 1);
      }
      newline(level);
      return out.append("}");
    }
    default:
      m.fail(std::string("JSON has no word for a value of type '") + type_name(v) + "'.");
  }
}

}  // namespace ibid::jinja
