// str.format.
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {
namespace {

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
  // `i` is after the '{' and then after the '}'.
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
      m_.spend(1 + args_.named.size() / 8);
      auto it = std::find_if(args_.named.begin(), args_.named.end(),
                             [&](const auto& arg) { return arg.first.str() == first; });
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
      m_.spend(text.size() / 64);
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
        utf8::append(static_cast<uint32_t>(v.as_int()), digits);
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

}  // namespace

Value Machine::brace_format(const Value& format, Args& args) {
  Text out;
  BraceFormatter(*this, args, format.is_markup()).run(format.text(), out, 0);
  return failed() ? Value() : string(std::move(out), format.is_markup());
}

}  // namespace ibid::jinja
