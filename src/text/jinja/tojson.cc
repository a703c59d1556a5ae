// json.dumps.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {
namespace {

void append_json_string(Machine& m, const Text& text, bool ascii, Text& out) {
  const std::string& s = text.bytes;
  if (!m.spend(1 + s.size() / 16)) return;
  auto n_control = static_cast<size_t>(std::count_if(s.begin(), s.end(), [](unsigned char c) { return c < 0x20; }));
  if (!m.room(out, (ascii ? s.size() * 6 : s.size() * 2 + n_control * 4) + 2)) return;
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

void append_json(Machine& m, const Value& v, const JsonStyle& style, Text& out, int level) {
  if (!m.spend() || !m.room(out, 64)) return;
  auto newline = [&](int deep) {
    if (!style.indent) return;
    size_t n_bytes = style.indent->size() + style.indent->marks.size() * sizeof(TextRange);
    if (!m.room(out, n_bytes * static_cast<size_t>(deep) + 1)) return;
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
