// What is found through windows is what the library finds in the whole text.
#include "text/tokenizer/pattern.h"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>
#include <vector>

namespace ibid {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

Ranges found_by_library(const std::string& expression, const std::string& text) {
  int number = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &number, &offset, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  Ranges all;
  for (size_t from = 0; from <= text.size();) {
    if (pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, 0, data, nullptr) < 0) break;
    const size_t* ends = pcre2_get_ovector_pointer(data);
    all.emplace_back(ends[0], ends[1]);
    from = ends[1] + (ends[0] == ends[1]);
    while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
  }
  pcre2_match_data_free(data);
  pcre2_code_free(code);
  return all;
}

Ranges found_by_us(const Pattern& pattern, const std::string& text) {
  Pattern::Budget budget = Pattern::Budget::of_text(1 << 20);
  Ranges all;
  Pattern::Found f;
  for (size_t from = 0; from <= text.size() && pattern.find(text, true, from, budget, f);) {
    all.emplace_back(f.begin, f.end);
    from = f.end + (f.begin == f.end);
    while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
  }
  return all;
}

TEST(Pattern, WindowsChangeNothingThatIsFound) {
  const char* kExpressions[] = {"a+b|a",       "a+$",     "a+(?!b)",     "a+\\b",        "a*",       "(?<=a)b|c",
                                "(?<=aaa)b",   "a++b",    "(?>a+)[0-9]", "(a|\u00e9)+c", "\u00e9+x", "\\s+(?!\\S)|\\s+",
                                "^a+",         "^b|c$",   "[^a]+",       "\\p{L}+",      "a(?=a*c)", "(?i)AB|\u00c9+B",
                                "\\X",         "(a+)\\1", "a{3,}?b",     ".*",           "x",        "a+\\z|\\Ac",
                                "(?:a|b){60,}"};
  for (const char* expression : kExpressions) {
    auto made = Pattern::compile(expression);
    ASSERT_TRUE(made.ok()) << expression << made.error().message;
    for (const size_t n : {1, 2, 5, 57, 60, 61, 62, 63, 64, 65, 66, 67, 68, 127, 129, 511, 512, 513, 700}) {
      for (const char* unit : {"a", "\u00e9", " ", "ab ", "e\u0301"}) {
        std::string run;
        while (run.size() < n) run += unit;
        for (const std::string& text :
             {run, run + "b", run + "c" + run + "b", run + "\n" + run + "c", "b" + run + " x"})
          ASSERT_EQ(found_by_us(*made, text), found_by_library(expression, text)) << expression << ": " << text;
      }
    }
  }
}

}  // namespace
}  // namespace ibid
