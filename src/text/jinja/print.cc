// str() and repr() as Python writes them.
#include <charconv>
#include <cmath>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view all(buffer, static_cast<size_t>(end - buffer));
  std::string sign = all[0] == '-' ? "-" : "";
  all.remove_prefix(sign.size());
  size_t e = all.find('e');
  int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  std::string digits(1, all[0]);
  if (e > 2) digits += all.substr(2, e - 2);
  auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits[0];
    if (n > 1) out += "." + digits.substr(1);
    std::snprintf(buffer, sizeof buffer, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

namespace {

void append_quoted(const Text& text, Text& out) {
  const std::string& s = text.bytes;
  bool twice = s.find('\'') != std::string::npos && s.find('"') == std::string::npos;
  char quote = twice ? '"' : '\'';
  out.append(std::string_view(&quote, 1));
  for (size_t i = 0; i < s.size();) {
    size_t begin = i;
    uint32_t c = next_char(s, i);
    bool mark = text.is_marked(begin);
    char escape[16];
    if (c == '\\' || c == static_cast<uint8_t>(quote)) {
      std::snprintf(escape, sizeof escape, "\\%c", static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      std::snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if ((c >= 0x20 && c < 0x7F) || (c >= 0x80 && is_in(CharSet::kPrintable, c))) {
      out.append(std::string_view(s).substr(begin, i - begin), mark);
      continue;
    } else {
      std::snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    out.append(escape, mark);
  }
  out.append(std::string_view(&quote, 1));
}

}  // namespace

void Machine::append_str(const Value& v, Text& out) {
  if (failed()) return;
  if (v.is_string() || v.is(Kind::kBigInt)) {
    if (!room(out, v.text().size())) return;
    spend(v.text().size() / 64);
    out.append(v.text());
  } else if (v.is_undefined()) {
    ++n_undefined_;
  } else {
    append_repr(v, out);
  }
}

void Machine::append_repr(const Value& v, Text& out) {
  if (!spend() || !room(out, 64)) return;
  if (depth_ > limits_.depth + static_cast<int>(kMaxDepth)) {
    fail("a value is nested too deeply to be printed.");
    return;
  }
  ++depth_;
  auto print_items = [&](const char* open, const std::vector<Value>& items, const char* close) {
    out.append(open);
    for (size_t i = 0; i < items.size() && !failed(); ++i) {
      if (i > 0) out.append(", ");
      append_repr(items[i], out);
    }
    if (v.is(Kind::kTuple) && items.size() == 1) out.append(",");
    out.append(close);
  };
  auto print_entries = [&](const auto& entries, auto&& print_key) {
    out.append("{");
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (failed()) break;
      if (!std::exchange(first, false)) out.append(", ");
      print_key(key);
      out.append(": ");
      append_repr(value, out);
    }
    out.append("}");
  };
  switch (v.kind()) {
    case Kind::kUndefined:
      out.append("Undefined");
      break;
    case Kind::kNone:
      out.append("None");
      break;
    case Kind::kBool:
      out.append(v.as_bool() ? "True" : "False");
      break;
    case Kind::kInt:
      out.append(std::to_string(v.as_int()));
      break;
    case Kind::kFloat:
      out.append(float_repr(v.as_double()));
      break;
    case Kind::kBigInt:
      out.append(v.text());
      break;
    case Kind::kString:
      if (!room(out, v.text().size() * 10)) break;
      spend(v.text().size() / 8);
      if (v.is_markup()) out.append("Markup(");
      append_quoted(v.text(), out);
      if (v.is_markup()) out.append(")");
      break;
    case Kind::kList:
      print_items("[", v.items(), "]");
      break;
    case Kind::kTuple:
      print_items("(", v.items(), ")");
      break;
    case Kind::kDict:
      print_entries(v.as<DictObject>()->entries, [&](const Value& key) { append_repr(key, out); });
      break;
    case Kind::kNamespace:
      out.append("<Namespace ");
      print_entries(v.as<NamespaceObject>()->attributes, [&](const Value& key) { append_repr(key, out); });
      out.append(">");
      break;
    case Kind::kRange: {
      const auto* r = v.as<RangeObject>();
      out.append("range(" + std::to_string(r->start) + ", " + std::to_string(r->stop) +
                 (r->step == 1 ? "" : ", " + std::to_string(r->step)) + ")");
      break;
    }
    case Kind::kDictView: {
      std::vector<Value> items;
      collect(v, items);
      out.append(type_name(v));
      print_items("([", items, "])");
      break;
    }
    case Kind::kMacro:
      out.append("<Macro '" + v.as<MacroObject>()->def->name + "'>");
      break;
    default:
      fail(std::string("a value of type '") + type_name(v) + "' is printed; Python would print its address.");
  }
  --depth_;
}

Text Machine::str(const Value& v) {
  Text out;
  append_str(v, out);
  return out;
}

std::string Machine::repr(const Value& v) {
  if (v.is_string()) {
    Text out;
    append_quoted(v.text().slice(0, byte_of_char(v.text().bytes, 40)), out);
    return out.bytes;
  }
  if (v.is_number()) return v.is(Kind::kFloat) ? float_repr(v.as_double()) : std::to_string(v.as_int());
  return std::string("a ") + type_name(v);
}

Text html_escaped(const Text& text) {
  Text out;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string_view piece(text.bytes.data() + i, 1);
    switch (text.bytes[i]) {
      case '&':
        piece = "&amp;";
        break;
      case '<':
        piece = "&lt;";
        break;
      case '>':
        piece = "&gt;";
        break;
      case '\'':
        piece = "&#39;";
        break;
      case '"':
        piece = "&#34;";
        break;
      default:
        break;
    }
    out.append(piece, text.is_marked(i));
  }
  return out;
}

}  // namespace ibid::jinja
