// Methods of str.
#include <algorithm>

#include "text/jinja/text_ops.h"

namespace ibid::jinja {
namespace {

struct Method {
  std::string_view name;
  MethodFn fn;
};

Value same_kind(Machine& m, const Value& self, Text text) { return m.string(std::move(text), self.is_markup()); }

template <Case to>
Value cased(Machine& m, const Value& self, Args& args) {
  if (!Params(m, args, "the method", {})) return {};
  return same_kind(m, self, change_case(m, self.text(), to));
}

Value capitalized(Machine& m, const Value& self, Args& args) {
  if (!Params(m, args, "capitalize()", {})) return {};
  return same_kind(m, self, capitalize(m, self.text()));
}

Value swapcase(Machine& m, const Value& self, Args& args) {
  if (!Params(m, args, "swapcase()", {}) || !m.room(self.text().size() * 3)) return {};
  const Text& text = self.text();
  m.spend(text.size() / 16);
  Text out;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    uint32_t c = next_char(text.bytes, i);
    std::string piece;
    bool upper = c < 0x80 ? c >= 'A' && c <= 'Z' : is_in(CharSet::kUpper, c);
    bool lower = c < 0x80 ? c >= 'a' && c <= 'z' : is_in(CharSet::kLower, c);
    if (upper || lower) {
      append_case(upper ? Case::kLower : Case::kUpper, text.bytes, begin, c, piece);
    } else {
      utf8::append(c, piece);
    }
    out.append(piece, text.is_marked(begin));
  }
  return same_kind(m, self, std::move(out));
}

template <bool left, bool right>
Value stripped(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "strip()", {"chars"});
  if (!p) return {};
  const Text* chars = p.has(0) && !p[0].is_none() ? &p.text(0) : nullptr;
  return m.failed() ? Value() : same_kind(m, self, strip(m, self.text(), chars, left, right));
}

// The pieces of `text` between runs of white space, at most n_splits times from the left or the right.
std::vector<TextRange> split_spaces(std::string_view s, int64_t n_splits, bool from_right) {
  std::vector<TextRange> words;
  for (size_t i = 0; i < s.size();) {
    size_t begin = i;
    if (is_space(next_char(s, i))) continue;
    size_t end = i;
    while (i < s.size() && !is_space(next_char(s, i))) end = i;
    words.push_back({begin, end});
  }
  auto n_words = static_cast<int64_t>(words.size());
  if (n_splits < 0 || n_words <= n_splits) return words;
  auto keep = static_cast<size_t>(n_splits) + 1;
  if (from_right) {  // the first piece takes all that is left of it, but for white space at the very start
    size_t first = words.size() - keep;
    TextRange head = {words[0].begin, words[first].end};
    head.begin = 0;
    words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(first));
    words[0] = head;
  } else {
    words.resize(keep);
    words.back().end = s.size();
  }
  return words;
}

// Where `what` stands, without overlaps, counted from the left or from the right ("aaa" has "aa" at 0 or at 1).
std::vector<size_t> find_all(Machine& m, std::string_view s, std::string_view what, int64_t limit, bool from_right) {
  std::string back, what_back;
  if (from_right) {
    back.assign(s.rbegin(), s.rend());
    what_back.assign(what.rbegin(), what.rend());
    s = back;
    what = what_back;
  }
  std::vector<size_t> hits;
  for (size_t i = 0; (i = find_bytes(s, what, i)) != kNotFound; i += what.size()) {
    if (limit >= 0 && static_cast<int64_t>(hits.size()) >= limit) break;
    if (!m.spend(2 + what.size() / 64) || ((hits.size() & 255) == 0 && !m.room(hits.size() * 24))) break;
    hits.push_back(from_right ? s.size() - i - what.size() : i);
  }
  if (from_right) std::reverse(hits.begin(), hits.end());
  return hits;
}

template <bool from_right>
Value split(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "split()", {"sep", "maxsplit"});
  if (!p) return {};
  const Text& text = self.text();
  std::string_view s = text.bytes;
  int64_t n_splits = p.integer(1, -1);
  m.spend(s.size() / 16);
  std::vector<TextRange> ranges;
  if (!m.room(s.size())) return {};
  if (!p.has(0) || p[0].is_none()) {
    if (!m.room(s.size() * 8)) return {};
    ranges = split_spaces(s, n_splits, from_right);
  } else {
    std::string_view separator = p.text(0).bytes;
    if (m.failed()) return {};
    if (separator.empty()) return m.fail("split() by an empty string.");
    std::vector<size_t> hits = find_all(m, s, separator, n_splits, from_right);
    size_t begin = 0;
    for (size_t hit : hits) {
      ranges.push_back({begin, hit});
      begin = hit + separator.size();
    }
    ranges.push_back({begin, s.size()});
  }
  std::vector<Value> items;
  for (const TextRange& range : ranges) {
    if (m.failed()) return {};
    items.push_back(same_kind(m, self, text.slice(range.begin, range.end)));
  }
  return m.list(std::move(items));
}

Value splitlines(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "splitlines()", {"keepends"});
  if (!p) return {};
  std::vector<Value> items;
  for (Text& line : split_lines(m, self.text(), p.flag(0, false))) {
    items.push_back(same_kind(m, self, std::move(line)));
    if (m.failed()) return {};
  }
  return m.list(std::move(items));
}

template <bool from_right>
Value partition(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "partition()", {"sep"}, 1);
  if (!p) return {};
  const Text& text = self.text();
  const Text& separator = p.text(0);
  if (m.failed()) return {};
  if (separator.size() == 0) return m.fail("partition() by an empty string.");
  m.spend((text.size() + separator.size()) / 32);
  if (!m.room(text.size() * 2)) return {};
  size_t hit = from_right ? rfind_bytes(text.bytes, separator.bytes) : find_bytes(text.bytes, separator.bytes);
  if (hit == kNotFound) {
    if (from_right) return m.tuple({m.string(""), m.string(""), self});
    return m.tuple({self, m.string(""), m.string("")});
  }
  return m.tuple({same_kind(m, self, text.slice(0, hit)), m.string(text.slice(hit, hit + separator.size())),
                  same_kind(m, self, text.slice(hit + separator.size(), text.size()))});
}

// The part [start, end) of a string that find(), count() and startswith() look at; false where start is past the end.
bool part_of(Machine& m, const Value& self, const Params& p, size_t& begin, size_t& end) {
  int64_t n = length(self);
  auto index = [&](size_t i, int64_t otherwise) {
    int64_t v = p.has(i) && !p[i].is_none() ? p.integer(i, 0) : otherwise;
    return std::max<int64_t>(v < 0 ? v + n : v, 0);
  };
  int64_t from = index(1, 0);
  int64_t to = std::min(index(2, n), n);
  if (m.failed() || from > to) return false;
  begin = byte_of_char(self.str(), static_cast<size_t>(from));
  end = begin + byte_of_char(self.str().substr(begin), static_cast<size_t>(to - from));
  return true;
}

template <bool from_right, bool must>
Value find(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "find()", {"sub", "start", "end"}, 1);
  if (!p) return {};
  std::string_view what = p.text(0).bytes;
  m.spend((self.text().size() + what.size()) / 32);
  if (!m.room(self.text().size())) return {};
  size_t begin = 0;
  size_t end = 0;
  size_t hit = kNotFound;
  if (part_of(m, self, p, begin, end)) {
    std::string_view part = self.str().substr(begin, end - begin);
    hit = from_right ? rfind_bytes(part, what) : find_bytes(part, what);
  }
  if (m.failed()) return {};
  if (hit == kNotFound) return must ? m.fail("the substring is not found.") : Value::integer(-1);
  return Value::integer(static_cast<int64_t>(utf8::count(self.str().substr(0, begin + hit))));
}

Value count(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "count()", {"sub", "start", "end"}, 1);
  if (!p) return {};
  std::string_view what = p.text(0).bytes;
  m.spend(self.text().size() / 16);
  size_t begin = 0;
  size_t end = 0;
  if (!part_of(m, self, p, begin, end)) return Value::integer(0);
  std::string_view part = self.str().substr(begin, end - begin);
  if (what.empty()) return Value::integer(static_cast<int64_t>(utf8::count(part)) + 1);
  int64_t n = 0;
  for (size_t i = 0; (i = find_bytes(part, what, i)) != kNotFound; i += what.size()) {
    ++n;
    if (!m.spend(1 + what.size() / 64)) return {};
  }
  return Value::integer(n);
}

template <bool at_end>
Value starts_or_ends(Machine& m, const Value& self, Args& args) {
  Params p(m, args, at_end ? "endswith()" : "startswith()", {"prefix", "start", "end"}, 1);
  if (!p) return {};
  const bool is_whole = !p.has(1) && !p.has(2);
  m.spend(is_whole ? 0 : self.text().size() / 64);
  size_t begin = 0;
  size_t end = self.text().size();
  bool inside = is_whole || part_of(m, self, p, begin, end);
  std::string_view part = inside ? self.str().substr(begin, end - begin) : std::string_view();
  auto hit = [&](const Value& v) -> bool {
    if (!v.is_string()) {
      m.fail("startswith() and endswith() need a string or a tuple of strings.");
      return false;
    }
    if (!m.spend(std::min(part.size(), v.text().size()) / 64)) return false;
    return inside && (at_end ? part.ends_with(v.str()) : part.starts_with(v.str()));
  };
  if (p[0].is(Kind::kTuple)) {
    for (const Value& item : p[0].items()) {
      if (m.spend() && hit(item)) return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  bool yes = hit(p[0]);
  return m.failed() ? Value() : Value::boolean(yes);
}

template <bool at_end>
Value remove_affix(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "removeprefix()", {"prefix"}, 1);
  if (!p) return {};
  std::string_view affix = p.text(0).bytes;
  const Text& text = self.text();
  m.spend(std::min(text.size(), affix.size()) / 64);
  bool there = at_end ? self.str().ends_with(affix) : self.str().starts_with(affix);
  if (!there || affix.empty()) return self;
  if (at_end) return same_kind(m, self, text.slice(0, text.size() - affix.size()));
  return same_kind(m, self, text.slice(affix.size(), text.size()));
}

Value replaced(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "replace()", {"old", "new", "count"}, 2);
  if (!p) return {};
  const Text& from = p.text(0);
  const Text& to = p.text(1);
  int64_t n = p.integer(2, -1);
  return m.failed() ? Value() : same_kind(m, self, replace(m, self.text(), from, to, n));
}

Value joined(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "join()", {"iterable"}, 1);
  return p ? join(m, self.text(), p[0], true) : Value();
}

enum class Side { kLeft, kRight, kCenter };
template <Side side>
Value justified(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "the method", {"width", "fillchar"}, 1);
  if (!p) return {};
  static const Text kSpace(" ");
  const Text& fill = p.has(1) ? p.text(1) : kSpace;
  int64_t width = p.width(0, 0);
  if (m.failed()) return {};
  if (utf8::count(fill.bytes) != 1) return m.fail("the fill must be one character.");
  if (side == Side::kCenter) return same_kind(m, self, center(m, self.text(), width, fill));
  int64_t missing = width - length(self);
  return same_kind(m, self,
                   pad(m, self.text(), side == Side::kRight ? missing : 0, side == Side::kLeft ? missing : 0, fill));
}

Value zfill(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "zfill()", {"width"}, 1);
  if (!p) return {};
  const Text& text = self.text();
  size_t sign = !text.bytes.empty() && (text.bytes[0] == '+' || text.bytes[0] == '-') ? 1 : 0;
  Text rest = pad(m, text.slice(sign, text.size()), p.width(0, 0) - length(self), 0, "0");
  Text out = text.slice(0, sign);
  out.append(rest);
  return same_kind(m, self, std::move(out));
}

Value expandtabs(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "expandtabs()", {"tabsize"});
  if (!p) return {};
  int64_t size = std::max<int64_t>(p.integer(0, 8), 0);
  if (size > INT32_MAX) return m.fail("expandtabs() takes tabs of at most 2147483647 columns.");
  Text out;
  int64_t column = 0;
  const Text& text = self.text();
  for (size_t i = 0; i < text.size() && m.spend();) {
    size_t begin = i;
    uint32_t c = next_char(text.bytes, i);
    if (c == '\t') {
      int64_t n = size > 0 ? size - column % size : 0;
      if (!m.room(out, static_cast<uint64_t>(n))) return {};
      out.append(std::string(static_cast<size_t>(n), ' '));
      column += n;
    } else {
      out.append(text, begin, i);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return same_kind(m, self, std::move(out));
}

Value format(Machine& m, const Value& self, Args& args) { return m.brace_format(self, args); }

Value format_map(Machine& m, const Value& self, Args& args) {
  Params p(m, args, "format_map()", {"mapping"}, 1);
  if (!p) return {};
  if (!p[0].is(Kind::kDict)) return m.fail("format_map() needs a dict.");
  Args named;
  m.spend(static_cast<uint64_t>(length(p[0])));
  for (const auto& [key, value] : p[0].as<DictObject>()->entries) {
    if (key.is_string()) named.named.emplace_back(key, value);
  }
  return m.brace_format(self, named);
}

constexpr Method kStringMethods[] = {
    {"strip", stripped<true, true>},
    {"lstrip", stripped<true, false>},
    {"rstrip", stripped<false, true>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", splitlines},
    {"startswith", starts_or_ends<false>},
    {"endswith", starts_or_ends<true>},
    {"replace", replaced},
    {"upper", cased<Case::kUpper>},
    {"lower", cased<Case::kLower>},
    {"casefold", cased<Case::kFold>},
    {"title", cased<Case::kTitle>},
    {"capitalize", capitalized},
    {"swapcase", swapcase},
    {"join", joined},
    {"format", format},
    {"format_map", format_map},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"ljust", justified<Side::kLeft>},
    {"rjust", justified<Side::kRight>},
    {"center", justified<Side::kCenter>},
    {"zfill", zfill},
    {"expandtabs", expandtabs},
};

}  // namespace

MethodFn find_string_method(std::string_view name) {
  for (const Method& method : kStringMethods) {
    if (method.name == name) return method.fn;
  }
  return find_classifier(name);
}

}  // namespace ibid::jinja
