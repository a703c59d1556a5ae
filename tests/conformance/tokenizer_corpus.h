// The strings that tokenizers are compared on: string i of a corpus is a function of (seed, i), the same here and in
// tools/tokenizer_corpus.py, which describes their contents; change both or neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace ibid::corpus {
namespace detail {

inline const std::string_view kWords[] = {"the",
                                          "of",
                                          "and",
                                          "to",
                                          "in",
                                          "is",
                                          "it",
                                          "was",
                                          "for",
                                          "on",
                                          "that",
                                          "with",
                                          "he",
                                          "as",
                                          "his",
                                          "at",
                                          "be",
                                          "this",
                                          "from",
                                          "I",
                                          "have",
                                          "or",
                                          "by",
                                          "one",
                                          "had",
                                          "not",
                                          "but",
                                          "what",
                                          "all",
                                          "were",
                                          "when",
                                          "we",
                                          "there",
                                          "can",
                                          "an",
                                          "your",
                                          "which",
                                          "their",
                                          "said",
                                          "if",
                                          "do",
                                          "will",
                                          "each",
                                          "about",
                                          "how",
                                          "up",
                                          "out",
                                          "them",
                                          "then",
                                          "she",
                                          "many",
                                          "some",
                                          "so",
                                          "these",
                                          "would",
                                          "other",
                                          "into",
                                          "has",
                                          "more",
                                          "her",
                                          "two",
                                          "like",
                                          "him",
                                          "see",
                                          "time",
                                          "could",
                                          "no",
                                          "make",
                                          "than",
                                          "first",
                                          "been",
                                          "its",
                                          "who",
                                          "now",
                                          "people",
                                          "my",
                                          "made",
                                          "over",
                                          "did",
                                          "down",
                                          "only",
                                          "way",
                                          "find",
                                          "use",
                                          "may",
                                          "water",
                                          "long",
                                          "little",
                                          "very",
                                          "after",
                                          "words",
                                          "called",
                                          "just",
                                          "where",
                                          "most",
                                          "know",
                                          "don't",
                                          "I'll",
                                          "we've",
                                          "she's",
                                          "they'd",
                                          "I'm",
                                          "you're",
                                          "WE'LL",
                                          "IT'S",
                                          "He'D",
                                          "Strasse",
                                          "na\303\257ve",
                                          "caf\303\251",
                                          "fa\303\247ade",
                                          "Zo\303\253",
                                          "\303\205ngstr\303\266m",
                                          "\305\223uvre",
                                          "r\303\251sum\303\251",
                                          "HTTPServer",
                                          "camelCase",
                                          "snake_case",
                                          "TOKEN",
                                          "iPhone",
                                          "McDonald",
                                          "\307\204ungla",
                                          "\307\205",
                                          "\305\277ay'\305\277",
                                          "\357\254\201ne",
                                          "\304\260stanbul",
                                          "\303\237",
                                          "\341\272\236"};
// {} is a number; braces are doubled.
inline const std::string_view kCode[] = {
    "def f_{}(x, *args):\n    return x ** {} if x != 'a' else None\n",
    "#include <vector>\nint main() {{ std::vector<int> v{{{}}}; return v[{}] << 2; }}\n",
    "function f{}(a) {{\n\treturn a === {} ? `${{a}}` : null; // TODO\n}}\n",
    "fn main() {{ let x_{}: &'static str = \"{}\"; println!(\"{{:?}}\", x); }}\n",
    "public class A{} {{ private final int n = {}; @Override public String toString() {{ return \"\"; }} }}\n",
    "func (s *Server{}) Do(ctx context.Context) error {{\n\tif err := s.x[{}]; err != nil {{ return err }}\n}}\n",
    "SELECT a{}, COUNT(*) FROM t WHERE b >= {} GROUP BY 1 ORDER BY 2 DESC;\n",
    "for i in $(seq {}); do echo \"$i\" | sed -e 's/^[0-9]\\{{{}\\}}//g' >> out.txt; done\n",
    "main{} = do\n  let xs = [x | x <- [1..{}], even x]\n  mapM_ print $ xs >>= \\y -> [y, -y]\n",
    "<div class=\"c{}\" style='width: {}%'>&nbsp;&lt;b&gt;<!-- x --></div>\r\n"};
inline const char32_t kSpaces[] = {0x20,   0x20,   0x20, 0x9,    0xA, 0xD,    0xA,   0xA0,
                                   0x3000, 0x2028, 0x85, 0x2009, 0xB, 0x200B, 0x1680};
inline const char32_t kRuns[] = {0x61, 0x20, 0xA, 0x30, 0x2D, 0x1F600, 0x4E2D, 0x41, 0xE9, 0x301, 0x2581, 0x3D, 0x27};
inline const char32_t kEmoji[] = {0x1F600, 0x1F468, 0x1F469, 0x1F466, 0x200D,  0xFE0F,  0x1F3FD, 0x2764, 0x1F1E9,
                                  0x1F1EA, 0x1F525, 0x20E3,  0x31,    0x1F9D1, 0x1F680, 0x1FAE0, 0xE0067};
inline const char32_t kPunctuation[] = {0x2E,   0x2C,   0x3B,   0x3A,   0x21,   0x3F,   0x2D,   0x28,   0x29,   0x5B,
                                        0x5D,   0x7B,   0x7D,   0x3C,   0x3E,   0x2F,   0x5C,   0x7C,   0x40,   0x23,
                                        0x24,   0x25,   0x5E,   0x26,   0x2A,   0x5F,   0x2B,   0x3D,   0x7E,   0x60,
                                        0x27,   0x22,   0x201C, 0x201D, 0x2018, 0x2019, 0x2026, 0x2014, 0x3002, 0xFF0C,
                                        0x3001, 0xFF01, 0xFF1F, 0x300C, 0x300D, 0xFF08, 0xFF09, 0xFF5B, 0xFF5D};
inline const std::string_view kSpecials[] = {
    "<|endoftext|>", "<|im_start|>",  "<mask>", "[MASK]",       "<s>",    "</s>",  "<unk>", "[UNK]",
    "word",          "Stra\303\237e", "  ",     "\342\226\201", "<0x41>", "<pad>", "##",    "</w>",
    "\303\251a",     "<|im_",         "\n\n"};
inline const char32_t kRanges[][2] = {
    {0x0, 0x7F},        {0x80, 0x24F},      {0x250, 0x36F},     {0x370, 0x52F},     {0x531, 0x5FF},
    {0x600, 0x6FF},     {0x900, 0xDFF},     {0xE00, 0xFFF},     {0x10A0, 0x1CFF},   {0x1D00, 0x1FFF},
    {0x2000, 0x2BFF},   {0x2C00, 0x2E7F},   {0x2E80, 0x33FF},   {0x3400, 0x9FFF},   {0xA000, 0xABFF},
    {0xAC00, 0xD7FF},   {0xE000, 0xFAFF},   {0xFB00, 0xFFFF},   {0x10000, 0x107FF}, {0x10800, 0x12FFF},
    {0x13000, 0x1BFFF}, {0x1D000, 0x1D7FF}, {0x1E000, 0x1F2FF}, {0x1F300, 0x1FAFF}, {0x20000, 0x2FFFF},
    {0x30000, 0x3FFFF}, {0x40000, 0xDFFFF}, {0xE0000, 0xE0FFF}, {0xF0000, 0x10FFFF}};
inline const char32_t kNumberMarks[] = {0x2E, 0x2C, 0x3A, 0x65, 0x45, 0x2D, 0xBD, 0xB2, 0x663, 0x96B, 0x2167, 0x2460};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return (next() >> 33) % n; }
  template <typename T, size_t n>
  const T& of(const T (&items)[n]) {
    return items[below(n)];
  }
  char32_t between(char32_t low, char32_t high) {
    char32_t c = low + static_cast<char32_t>(below(high - low + 1));
    return c >= 0xD800 && c < 0xE000 ? 0xFFFD : c;
  }

 private:
  uint64_t state_;
};

inline void append_code(std::string_view text, uint64_t a, uint64_t b, std::string& out) {
  uint64_t numbers[2] = {a, b};
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] != '{' && text[i] != '}') || i + 1 == text.size()) {
      out += text[i];
    } else if (text[i] == '{' && text[i + 1] == '}') {
      out += std::to_string(numbers[n++]), ++i;
    } else {
      out += text[i++];
    }
  }
}

inline void append_piece(Random& r, uint64_t kind, std::string& out) {
  uint64_t n = 1 + r.below(12);
  auto put = [&out](char32_t c) { utf8::append(c, out); };
  switch (kind) {
    case 0:
      for (; n > 0; --n) {
        out += r.of(kWords);
        if (r.below(5) == 0) put(r.of(kPunctuation));
        out += ' ';
      }
      return;
    case 1:
      for (; n > 0; --n) put(r.of(kSpaces));
      return;
    case 2: {
      char32_t c = r.of(kRuns);
      for (uint64_t len = 1 + (r.below(20) == 0 ? r.below(600) : r.below(40)); len > 0; --len) put(c);
      return;
    }
    case 3:
      for (; n > 0; --n) put(r.of(kEmoji));
      return;
    case 4:
      for (; n > 0; --n) put(r.below(2) ? r.between(0x300, 0x345) : r.between(0x61, 0x7A));
      for (uint64_t k = r.below(4); k > 0; --k) put(r.between(0x1100, 0x11FF));
      return;
    case 5:
      for (; n > 0; --n) put(r.below(2) ? r.between(0x5D0, 0x5EA) : r.between(0x610, 0x6D3));
      return;
    case 6: {
      const auto& range = r.of(kRanges);
      for (; n > 0; --n) put(r.between(range[0], range[1]));
      return;
    }
    case 7: {
      uint64_t a = r.below(1000), b = r.below(100000);
      return append_code(r.of(kCode), a, b, out);
    }
    case 8:
      for (; n > 0; --n) put(r.below(6) ? r.between(0x30, 0x39) : r.of(kNumberMarks));
      return;
    case 9:
      for (; n > 0; --n) {
        char32_t choices[7] = {r.between(0x4E00, 0x9FA5)};
        choices[1] = r.between(0x3041, 0x30FF);
        choices[2] = r.between(0xAC00, 0xD7A3);
        choices[3] = 0x3002, choices[4] = 0xFF0C, choices[5] = 0x7684, choices[6] = 0x662F;
        put(r.of(choices));
      }
      return;
    case 10:
      for (; n > 0; --n) put(r.of(kPunctuation));
      return;
    default:
      out += r.of(kSpecials);
  }
}

}  // namespace detail

inline std::string string(uint64_t seed, uint64_t i) {
  detail::Random r(seed * 1000003 + i);
  std::string text;
  for (uint64_t n = 1 + r.below(6); n > 0; --n) {
    detail::append_piece(r, r.below(12), text);
    if (r.below(3) == 0) text += ' ';
  }
  return text;
}

}  // namespace ibid::corpus
