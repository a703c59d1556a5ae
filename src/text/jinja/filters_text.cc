// Filters that make text, and those that turn values into numbers.
#include "text/jinja/filters.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace ibid::jinja {
namespace {

// The subject as text: soft_str().
Text soft(Machine& m, const Value& v) { return m.str(v); }

Value keep_markup(Machine& m, const Value& subject, Text text) {
  return m.string(std::move(text), subject.is_markup());
}

template <Case to>
Value to_case(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "the filter", {})) return {};
  return keep_markup(m, subject, change_case(m, soft(m, subject), to));
}

Value to_capitalized(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "capitalize", {})) return {};
  return keep_markup(m, subject, capitalize(m, soft(m, subject)));
}

Value title(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "title", {})) return {};
  Text text = soft(m, subject);
  if (!m.room(text.size() * 3) || !m.spend(text.size() / 16)) return {};
  Text out;
  bool first = true;  // of a word
  size_t after_first = 0;
  // The rest of a word is lowered by itself, so that a final sigma is judged inside it.
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    uint32_t c = next_char(text.bytes, i);
    bool between =
        is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
    std::string piece;
    if (between) {
      utf8::append(c, piece);
      first = true;
    } else {
      if (first) after_first = i;
      const std::string_view whole = text.bytes;
      append_case(first ? Case::kUpper : Case::kLower, first ? whole : whole.substr(after_first),
                  first ? begin : begin - after_first, c, piece);
      first = false;
    }
    out.append(piece, text.is_marked(begin));
  }
  return m.string(std::move(out));
}

Value trim(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "trim", {"chars"});
  if (!p) return {};
  const Text* chars = p.has(0) && !p[0].is_none() ? &p.text(0) : nullptr;
  Text text = soft(m, subject);
  return m.failed() ? Value() : keep_markup(m, subject, strip(m, text, chars, true, true));
}

Value replace_filter(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "replace", {"old", "new", "count"}, 2);
  if (!p) return {};
  int64_t n = p.has(2) && !p[2].is_none() ? p.integer(2, -1) : -1;
  Text text = m.str(subject);
  Text from = m.str(p[0]);
  Text to = m.str(p[1]);
  return m.failed() ? Value() : m.string(replace(m, text, from, to, n));
}

Value escape(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "escape", {})) return {};
  if (subject.is_markup()) return subject;
  Text text = m.str(subject);
  if (!m.room(text.size() * 6) || !m.spend(text.size() / 8)) return {};
  return m.string(html_escaped(text), true);
}

Value force_escape(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "forceescape", {})) return {};
  Text text = m.str(subject);
  if (!m.room(text.size() * 6) || !m.spend(text.size() / 8)) return {};
  return m.string(html_escaped(text), true);
}

Value safe(Machine& m, const Value& subject, Args& args) {
  return Params(m, args, "safe", {}) ? m.string(m.str(subject), true) : Value();
}

Value to_string(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "string", {})) return {};
  return subject.is_string() ? subject : m.string(m.str(subject));
}

Value indent(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "indent", {"width", "first", "blank"});
  if (!p) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (!subject.is_string()) return m.fail(std::string("indent needs a string, not '") + type_name(subject) + "'.");
  Text by("    ");
  if (p.has(0) && p[0].is_string()) {
    by = p.text(0);
  } else if (p.has(0)) {
    by = pad(m, "", p.integer(0, 4), 0, " ");
  }
  bool blank = p.flag(2, false);
  Text text = subject.text();
  text.append("\n");  // so that a last empty line counts, as in Jinja
  std::vector<Text> lines = split_lines(m, text, false);
  Text out;
  if (p.flag(1, false)) out.append(by);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!m.spend(1 + (by.size() + lines[i].size()) / 64) || !m.room(out, by.size() + lines[i].size() + 1)) return {};
    if (i > 0) {
      out.append("\n");
      if (blank || lines[i].size() > 0) out.append(by);
    }
    out.append(lines[i]);
  }
  return keep_markup(m, subject, std::move(out));
}

Value center_filter(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "center", {"width"});
  if (!p) return {};
  Text text = soft(m, subject);
  return m.failed() ? Value() : keep_markup(m, subject, center(m, text, p.width(0, 80), " "));
}

Value truncate(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "truncate", {"length", "killwords", "end", "leeway"});
  if (!p) return {};
  if (subject.is_undefined() && !p.has(3)) return m.string("");
  if (!subject.is_string()) return m.fail(std::string("truncate needs a string, not '") + type_name(subject) + "'.");
  int64_t size = p.width(0, 255);
  Text end = p.has(2) ? p.text(2) : Text("...");
  m.spend((subject.text().size() + end.size()) / 64);
  int64_t leeway = p.has(3) && !p[3].is_none() ? p.width(3, 5) : 5;
  auto end_len = static_cast<int64_t>(utf8::count(end.bytes));
  if (m.failed()) return {};
  if (size < end_len || leeway < 0) return m.fail("truncate needs a length that holds its end.");
  if (length(subject) <= size + leeway) return subject;
  const Text& text = subject.text();
  Text out = text.slice(0, byte_of_char(text.bytes, static_cast<size_t>(size - end_len)));
  if (!p.flag(1, false)) {
    size_t space = out.bytes.rfind(' ');
    if (space != std::string::npos) out = out.slice(0, space);
  }
  out.append(end);
  return m.string(std::move(out));
}

Value wordcount(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "wordcount", {})) return {};
  Text text = soft(m, subject);
  m.spend(text.size() / 16);
  int64_t n = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    uint32_t c = next_char(text.bytes, i);
    bool word = c == '_' || is_in(CharSet::kAlpha, c) || is_in(CharSet::kDecimal, c) || is_in(CharSet::kNumeric, c);
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

Value format_filter(Machine& m, const Value& subject, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) return m.fail("format takes either named or unnamed arguments.");
  Value text = subject.is_string() ? subject : m.string(m.str(subject));
  if (args.named.empty()) return m.percent_format(text, m.tuple(std::move(args.positional)));
  return m.percent_format(text, m.dict_from(args, "format"));
}

Value urlencode(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "urlencode", {})) return {};
  auto quote = [&](const Value& v, bool in_query, Text& out) {
    Text text = m.str(v);
    if (!m.room(out, text.size() * 3) || !m.spend(text.size() / 8)) return;
    for (size_t i = 0; i < text.size(); ++i) {
      auto c = static_cast<uint8_t>(text.bytes[i]);
      bool plain = ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' ||
                   c == '~' || (c == '/' && !in_query);
      if (!(c < 0x80)) plain = false;
      char hex[4];
      std::snprintf(hex, sizeof hex, "%%%02X", c);
      if (in_query && c == ' ') {
        out.append("+", text.is_marked(i));
      } else {
        out.append(plain ? std::string_view(text.bytes).substr(i, 1) : std::string_view(hex), text.is_marked(i));
      }
    }
  };
  Text out;
  if (subject.is_string() || !m.is_iterable(subject)) {
    quote(subject, false, out);
    return m.string(std::move(out));
  }
  std::vector<Value> pairs;
  if (subject.is(Kind::kDict)) {
    for (const auto& [key, value] : subject.as<DictObject>()->entries) pairs.push_back(m.tuple({key, value}));
  } else if (!m.collect(subject, pairs)) {
    return {};
  }
  for (size_t i = 0; i < pairs.size() && !m.failed(); ++i) {
    std::vector<Value> parts;
    if (!m.collect(pairs[i], parts)) return {};
    if (parts.size() != 2) return m.fail("urlencode needs pairs of key and value.");
    if (i > 0) out.append("&");
    quote(parts[0], true, out);
    out.append("=");
    quote(parts[1], true, out);
  }
  return m.failed() ? Value() : m.string(std::move(out));
}

Value tojson(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (!p) return {};
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  if (p.has(1) && !p[1].is_none()) {
    Text by = p[1].is_string() ? p.text(1) : pad(m, "", p.integer(1, 0), 0, " ");
    style.indent = std::move(by);
    style.item_separator = ",";
  }
  if (p.has(2) && !p[2].is_none()) {
    std::vector<Value> parts;
    if (!m.collect(p[2], parts)) return {};
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string())
      return m.fail("separators needs two strings.");
    style.item_separator = parts[0].text();
    style.key_separator = parts[1].text();
    if (!m.room(style.item_separator.size() + style.key_separator.size())) return {};
  }
  style.sort_keys = p.flag(3, false);
  Text out;
  append_json(m, subject, style, out);
  return m.failed() ? Value() : m.string(std::move(out));
}

// --- Numbers ---

std::string number_text(std::string_view s) {  // Python allows white space around and single underscores within
  while (!s.empty() && is_space(static_cast<uint8_t>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && is_space(static_cast<uint8_t>(s.back()))) s.remove_suffix(1);
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    bool between = i > 0 && i + 1 < s.size() && std::isalnum(static_cast<uint8_t>(s[i - 1])) &&
                   std::isalnum(static_cast<uint8_t>(s[i + 1]));
    if (s[i] == '_' && between) continue;
    out += s[i];
  }
  return out;
}

bool parse_float(std::string_view text, double& d) {
  std::string s = number_text(text);
  if (s.empty() || s.size() > 4096 || s.find_first_of("xXpP(") != std::string::npos) return false;
  char* end = nullptr;
  d = std::strtod(s.c_str(), &end);
  return end == s.c_str() + s.size();
}

Value to_float(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "float", {"default"});
  if (!p) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  double d = 0;
  if (subject.is_number()) return Value::real(subject.as_double());
  if ((subject.is_string() || subject.is(Kind::kBigInt)) && m.spend(subject.text().size() / 16) &&
      parse_float(subject.str(), d))
    return Value::real(d);
  return p.has(0) ? p[0] : Value::real(0.0);
}

Value to_int(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "int", {"default", "base"});
  if (!p) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (subject.is_integral()) return Value::integer(subject.as_int());
  if (subject.is(Kind::kBigInt)) return subject;
  Value otherwise = p.has(0) ? p[0] : Value::integer(0);
  double d = 0;
  if (subject.is(Kind::kFloat)) {
    d = subject.as_double();
  } else if (subject.is_string()) {
    int64_t base = p.integer(1, 10);
    if (!m.spend(subject.text().size() / 8) || !m.room(subject.text().size() * 2)) return {};
    std::string s = number_text(subject.str());
    bool negative = !s.empty() && s[0] == '-';
    size_t i = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
    auto prefixed = [&](char c) { return s.size() > i + 1 && s[i] == '0' && (s[i + 1] | 32) == c; };
    for (auto [c, b] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
      if (prefixed(c) && (base == b || base == 0)) {
        base = b;
        i += 2;
        break;
      }
    }
    if (base == 0) base = 10;
    int64_t n = 0;
    if (base >= 2 && base <= 36 && i < s.size() && s[i] != '-') {
      std::string digits = (negative ? "-" : "") + s.substr(i);
      auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n, static_cast<int>(base));
      if (error == std::errc::result_out_of_range && end == digits.data() + digits.size()) {
        return m.fail("an integer leaves the range of 64 bits.");
      }
      if (error == std::errc() && end == digits.data() + digits.size()) return Value::integer(n);
    }
    if (!parse_float(subject.str(), d)) return otherwise;
  } else {
    return otherwise;
  }
  if (!std::isfinite(d)) return otherwise;
  if (std::fabs(d) >= 9.2e18) return m.fail("an integer leaves the range of 64 bits.");
  return Value::integer(static_cast<int64_t>(d));
}

Value absolute(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "abs", {})) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (subject.is(Kind::kFloat)) return Value::real(std::fabs(subject.as_double()));
  if (!subject.is_integral()) return m.fail(std::string("abs needs a number, not '") + type_name(subject) + "'.");
  return subject.as_int() < 0 ? m.binary(Op::kSub, Value::integer(0), subject) : Value::integer(subject.as_int());
}

// Python's round(): to the nearest, ties to even, correctly for the decimal value of the double.
Value round_filter(Machine& m, const Value& subject, Args& args) {
  Params p(m, args, "round", {"precision", "method"});
  if (!p) return {};
  int64_t precision = p.integer(0, 0);
  std::string method = p.has(1) ? p.text(1).bytes : "common";
  if (m.failed()) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (!subject.is_number()) return m.fail(std::string("round needs a number, not '") + type_name(subject) + "'.");
  if (precision < -300 || precision > 300) return m.fail("round serves precisions of -300 to 300.");
  if (method == "common") {
    if (subject.is_integral()) {
      if (precision >= 0) return Value::integer(subject.as_int());
      if (precision < -18) return Value::integer(0);
      int64_t unit = 1;
      for (int64_t i = precision; i < 0; ++i) unit *= 10;
      int64_t n = subject.as_int();
      int64_t rest = ((n % unit) + unit) % unit;
      auto down = static_cast<int64_t>((static_cast<__int128>(n) - rest) / unit);
      bool up = rest * 2 > unit || (rest * 2 == unit && down % 2 != 0);
      return m.binary(Op::kMul, Value::integer(down + up), Value::integer(unit));
    }
    double d = subject.as_double();
    if (!std::isfinite(d)) return subject;
    if (precision >= 0) {
      char text[800];
      std::snprintf(text, sizeof text, "%.*f", static_cast<int>(precision), d);
      return Value::real(std::strtod(text, nullptr));
    }
    double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::real(std::nearbyint(d / unit) * unit);
  }
  if (method != "ceil" && method != "floor") return m.fail("round has the methods common, ceil and floor.");
  double d = subject.as_double();
  double unit = std::pow(10.0, static_cast<double>(precision));
  double scaled = d * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

}  // namespace

const FilterEntry kTextFilters[] = {
    {"abs", absolute},
    {"capitalize", to_capitalized},
    {"center", center_filter},
    {"e", escape},
    {"escape", escape},
    {"float", to_float},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"int", to_int},
    {"lower", to_case<Case::kLower>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe},
    {"string", to_string},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", to_case<Case::kUpper>},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {"", nullptr},
};

}  // namespace ibid::jinja
