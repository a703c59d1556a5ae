#include "text/tokenizer/unicode.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/utf8.h"

namespace ibid::unicode {
namespace {

std::span<const uint32_t> mapping(char32_t c, const uint32_t* keys, const uint32_t* pool, size_t count) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    keys[2 * middle] < c ? low = middle + 1 : high = middle;
  }
  if (low == count || keys[2 * low] != c) return {};
  uint32_t where = keys[2 * low + 1];
  return {pool + (where >> 8), where & 0xFF};
}

char32_t composed(char32_t a, char32_t b) {
  if (a >= 0x1100 && a < 0x1113 && b >= 0x1161 && b < 0x1176) return 0xAC00 + ((a - 0x1100) * 21 + (b - 0x1161)) * 28;
  if (a >= 0xAC00 && a < 0xD7A4 && (a - 0xAC00) % 28 == 0 && b > 0x11A7 && b < 0x11C3) return a + (b - 0x11A7);
  size_t low = 0, high = kCompositionCount;
  auto before = [a, b](const uint32_t* t) { return t[0] != a ? t[0] < a : t[1] < b; };
  while (low < high) {
    size_t middle = (low + high) / 2;
    before(kCompositions + 3 * middle) ? low = middle + 1 : high = middle;
  }
  const uint32_t* t = kCompositions + 3 * low;
  return low < kCompositionCount && t[0] == a && t[1] == b ? t[2] : 0;
}

struct Element {
  char32_t value;
  int combining;
};

// A starter with the marks after it, decomposed; written out when the next starter comes that cannot compose with it.
class Run {
 public:
  // marks: empty working memory.
  Run(bool compat, bool compose, std::string& out, std::vector<Element>& marks)
      : compat_(compat), compose_(compose), out_(out), marks_(marks) {}

  void add(char32_t c) {
    uint32_t r = record(c);
    if (!(r & (kDecomposes | kCompatDecomposes))) return add_decomposed(c, static_cast<int>(r >> 24));
    if (c >= 0xAC00 && c < 0xD7A4) {
      char32_t s = c - 0xAC00;
      add_decomposed(0x1100 + s / 588, 0);
      add_decomposed(0x1161 + s % 588 / 28, 0);
      if (s % 28 != 0) add_decomposed(0x11A7 + s % 28, 0);
      return;
    }
    std::span<const uint32_t> parts;
    if (compat_) parts = mapping(c, kNfkdKeys, kNfkdPool, kNfkdCount);
    if (parts.empty()) parts = mapping(c, kNfdKeys, kNfdPool, kNfdCount);
    if (parts.empty()) return add_decomposed(c, static_cast<int>(r >> 24));
    for (char32_t part : parts) add_decomposed(part, combining_class(part));
  }

  void flush() {
    order_and_compose();
    if (has_starter_) utf8::append(starter_, out_);
    for (const Element& m : marks_) utf8::append(m.value, out_);
    marks_.clear();
    has_starter_ = false;
  }

 private:
  void add_decomposed(char32_t c, int combining) {
    if (combining != 0) return marks_.push_back({c, combining});
    if (compose_ && has_starter_) {
      // A starter composes with the one before it only where nothing stays between them.
      order_and_compose();
      if (marks_.empty()) {
        if (char32_t joined = composed(starter_, c)) {
          starter_ = joined;
          return;
        }
      }
    }
    flush();
    starter_ = c;
    has_starter_ = true;
  }

  void order_and_compose() {
    if (marks_.empty()) return;
    auto lower = [](const Element& a, const Element& b) { return a.combining < b.combining; };
    // The library's stable sort allocates; few marks are sorted by insertion.
    constexpr size_t kFew = 32;
    if (marks_.size() > kFew) {
      std::stable_sort(marks_.begin(), marks_.end(), lower);
    } else {
      for (auto m = marks_.begin(); m != marks_.end(); ++m) {
        std::rotate(std::upper_bound(marks_.begin(), m, *m, lower), m, m + 1);
      }
    }
    if (!compose_ || !has_starter_) return;
    int blocked_by = -1;  // class of the last mark that stays between the starter and here
    size_t kept = 0;
    for (const Element& m : marks_) {
      char32_t c = blocked_by < m.combining ? composed(starter_, m.value) : 0;
      if (c != 0) {
        starter_ = c;
      } else {
        blocked_by = m.combining;
        marks_[kept++] = m;
      }
    }
    marks_.resize(kept);
  }

  bool compat_;
  bool compose_;
  std::string& out_;
  bool has_starter_ = false;
  char32_t starter_ = 0;
  std::vector<Element>& marks_;
};

}  // namespace

void append_normalized(std::string_view text, Form form, std::string& out) {
  bool compat = form == Form::kNfkc || form == Form::kNfkd;
  bool compose = form == Form::kNfc || form == Form::kNfkc;
  constexpr size_t kKeptMarks = 4096;
  thread_local std::vector<Element> marks;
  marks.clear();
  if (marks.capacity() > kKeptMarks) marks.shrink_to_fit();
  Run run(compat, compose, out, marks);
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    utf8::CodePoint c = utf8::decode(p, end);
    if (c.valid) {
      run.add(c.value);
    } else {
      run.flush();
      out.append(p, c.len);
    }
    p += c.len;
  }
  run.flush();
}

void append_lower(std::string_view text, std::string& out) {
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    utf8::CodePoint c = utf8::decode(p, end);
    if (c.value < 0x80) {
      out.push_back(c.value >= 'A' && c.value <= 'Z' ? static_cast<char>(c.value + 32) : *p);
    } else if (c.valid && has(c.value, kHasLower)) {
      for (char32_t lower : mapping(c.value, kLowerKeys, kLowerPool, kLowerCount)) utf8::append(lower, out);
    } else {
      out.append(p, c.len);
    }
    p += c.len;
  }
}

}  // namespace ibid::unicode
