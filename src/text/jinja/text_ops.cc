#include "text/jinja/text_ops.h"

#include <cstring>

namespace ibid::jinja {

// memmem is linear (two-way); std::string_view::find is not.
size_t find_bytes(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return kNotFound;
  if (what.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return hit == nullptr ? kNotFound : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t rfind_bytes(std::string_view text, std::string_view what) {
  std::string backwards(text.rbegin(), text.rend());
  std::string what_backwards(what.rbegin(), what.rend());
  size_t hit = find_bytes(backwards, what_backwards);
  return hit == kNotFound ? hit : text.size() - hit - what.size();
}

Text change_case(Machine& m, const Text& text, Case to) {
  Text out;
  if (!m.room(text.size() * 3) || !m.spend(text.size() / 16)) return out;
  bool previous_cased = false;
  std::string piece;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    uint32_t c = next_char(text.bytes, i);
    piece.clear();
    append_case(to != Case::kTitle ? to : previous_cased ? Case::kLower : Case::kTitle, text.bytes, begin, c, piece);
    if (to == Case::kTitle) {
      bool ascii_letter = (c | 32) >= 'a' && (c | 32) <= 'z';
      previous_cased = c < 0x80 ? ascii_letter : is_in(CharSet::kCased, c);
    }
    out.append(piece, text.has_marks() && text.is_marked(begin));
  }
  return out;
}

Text capitalize(Machine& m, const Text& text) {
  Text out;
  if (!m.room(text.size() * 3) || !m.spend(text.size() / 16)) return out;
  std::string piece;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    uint32_t c = next_char(text.bytes, i);
    piece.clear();
    append_case(begin == 0 ? Case::kTitle : Case::kLower, text.bytes, begin, c, piece);
    out.append(piece, text.has_marks() && text.is_marked(begin));
  }
  return out;
}

Text strip(Machine& m, const Text& text, const Text* chars, bool left, bool right) {
  m.spend(text.size() / 64);
  std::string_view s = text.bytes;
  auto goes = [&](size_t begin) {
    size_t end = begin;
    uint32_t c = next_char(s, end);
    if (chars == nullptr) return is_space(c);
    m.spend(1 + chars->size() / 64);
    return find_bytes(chars->bytes, s.substr(begin, end - begin)) != kNotFound;
  };
  size_t begin = 0;
  size_t end = s.size();
  while (left && begin < end && goes(begin) && !m.failed()) next_char(s, begin);
  while (right && end > begin && !m.failed()) {
    size_t last = previous_char(s, end);
    if (!goes(last)) break;
    end = last;
  }
  if (!m.room(end - begin)) return {};
  return text.slice(begin, end);
}

Text replace(Machine& m, const Text& text, const Text& from, const Text& to, int64_t count) {
  Text out;
  std::string_view s = text.bytes;
  size_t i = 0;
  auto put = [&](const Text& piece, size_t begin, size_t end) {
    if (!m.spend(1 + (end - begin) / 64) || !m.room(out, end - begin)) return false;
    out.append(piece, begin, end);
    return true;
  };
  if (from.size() == 0) {
    for (; count != 0; --count) {
      if (!put(to, 0, to.size())) return out;
      if (i >= s.size()) return out;
      size_t begin = i;
      next_char(s, i);
      if (!put(text, begin, i)) return out;
    }
  } else {
    for (; count != 0; --count) {
      size_t hit = find_bytes(s, from.bytes, i);
      if (hit == kNotFound) break;
      m.spend(from.size() / 64);
      if (!put(text, i, hit) || !put(to, 0, to.size())) return out;
      i = hit + from.size();
    }
  }
  put(text, i, s.size());
  return out;
}

std::vector<Text> split_lines(Machine& m, const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  std::string_view s = text.bytes;
  size_t begin = 0;
  for (size_t i = 0; i < s.size();) {
    size_t at = i;
    uint32_t c = next_char(s, i);
    bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i < s.size() && s[i] == '\n') ++i;
    if (!m.spend(2 + (i - begin) / 64) || !m.room((lines.size() + 1) * sizeof(Text) + s.size())) return lines;
    lines.push_back(text.slice(begin, keep_ends ? i : at));
    begin = i;
  }
  if (begin < s.size()) lines.push_back(text.slice(begin, s.size()));
  return lines;
}

Value join(Machine& m, const Text& separator, const Value& items, bool strict) {
  if (items.is_undefined()) return m.string("");
  if (!m.is_iterable(items)) return m.fail(std::string("a value of type '") + type_name(items) + "' cannot be joined.");
  Text out;
  Iter iter(items);
  Value item;
  bool first = true;
  while (m.spend() && iter.next(m, item)) {
    if (!std::exchange(first, false)) {
      if (!m.room(out, separator.size())) return {};
      m.spend(separator.size() / 64);
      out.append(separator);
    }
    if (strict && !item.is_string()) {
      return m.fail(std::string("join() needs strings; an item has the type '") + type_name(item) + "'.");
    }
    m.append_str(item, out);
    if (m.failed()) return {};
  }
  return m.failed() ? Value() : m.string(std::move(out));
}

Text pad(Machine& m, const Text& text, int64_t left, int64_t right, const Text& fill) {
  left = std::clamp<int64_t>(left, 0, int64_t{1} << 40);
  right = std::clamp<int64_t>(right, 0, int64_t{1} << 40);
  Text out;
  if (!m.room(text.size() +
              static_cast<uint64_t>(left + right) * (fill.size() + fill.marks.size() * sizeof(TextRange))))
    return out;
  m.spend(static_cast<uint64_t>(left + right) / 8);
  for (; left > 0; --left) out.append(fill);
  out.append(text);
  for (; right > 0; --right) out.append(fill);
  return out;
}

Text center(Machine& m, const Text& text, int64_t width, const Text& fill) {
  int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(utf8::count(text.bytes)), 0);
  int64_t left = missing / 2 + (missing & width & 1);
  return pad(m, text, left, missing - left, fill);
}

}  // namespace ibid::jinja
