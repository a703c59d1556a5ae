#include "text/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/utf8.h"

namespace ibid {

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_code* of_valid = nullptr;  // the same for valid UTF-8 only, which need not be checked at every match
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_code_free(code);
    pcre2_code_free(of_valid);
  }
};

namespace {

// The working memory of a thread's matches.
struct MatchMemory {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  MatchMemory() = default;
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;
  ~MatchMemory() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

constexpr uint32_t kHeapKibibytes = 16 * 1024;
constexpr uint32_t kDepth = 50'000;
constexpr uint32_t kFreeSteps = 128;  // words of the expressions in use take some 10

// [a[bc]] and [a&&[^b]]: the reference's engine reads a set within a set, PCRE2 reads other characters.
bool has_set_in_set(std::string_view expression) {
  bool inside = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const std::string_view rest = expression.substr(i);
    if (rest[0] == '\\') {
      ++i;
    } else if (!inside) {
      inside = rest[0] == '[';
      // A bracket that comes first is a character of the set.
      if (inside && (rest.starts_with("[]") || rest.starts_with("[^]"))) i += rest[1] == '^' ? 2 : 1;
    } else if (rest.starts_with("[:")) {
      const size_t end = rest.find(":]");
      if (end != rest.npos) i += end + 1;
    } else if (rest[0] == '[' || rest.starts_with("&&")) {
      return true;
    } else {
      inside = rest[0] != ']';
    }
  }
  return false;
}

}  // namespace

Result<Pattern> Pattern::compile(std::string_view expression) {
  if (expression.size() > kMaxBytes) {
    return unsupported("a regular expression of " + std::to_string(expression.size()) + " bytes; at most " +
                       std::to_string(kMaxBytes) + " are read");
  }
  if (has_set_in_set(expression)) {
    return unsupported("a regular expression with a set of characters within a set, which is read for known ones only");
  }
  auto code = std::make_shared<Code>();
  int number = 0;
  size_t offset = 0;
  // The reference's engine lets . match all but \n and $ match before every line end.
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                             options | PCRE2_MATCH_INVALID_UTF, &number, &offset, nullptr);
  if (!code->code) {
    char text[160] = {};
    pcre2_get_error_message(number, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    return unsupported("a regular expression that does not compile, at its byte " + std::to_string(offset) + ": " +
                       text);
  }
  code->of_valid = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), options, &number,
                                 &offset, nullptr);
  Pattern pattern;
  pattern.code_ = std::move(code);
  return pattern;
}

Pattern::Budget Pattern::Budget::of_text(size_t n_bytes) {
  return {.steps = static_cast<uint32_t>(std::min<size_t>(20'000'000, 100'000 + 100 * n_bytes))};
}

// The library's return code. steps: the limit of each beginning; not of all of them together, as the library counts
// anew at each.
int Pattern::match(std::string_view text, bool valid, size_t from, uint32_t options, uint32_t steps,
                   Found& found) const {
  thread_local MatchMemory memory;
  if (!memory.data || !memory.context) return PCRE2_ERROR_NOMEMORY;
  pcre2_set_match_limit(memory.context, steps);
  pcre2_set_depth_limit(memory.context, kDepth);
  pcre2_set_heap_limit(memory.context, kHeapKibibytes);
  bool trusted = valid && code_->of_valid;
  int rc = pcre2_match(trusted ? code_->of_valid : code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options | (trusted ? PCRE2_NO_UTF_CHECK : 0), memory.data, memory.context);
  if (rc < 0) return rc;
  const size_t* ends = pcre2_get_ovector_pointer(memory.data);
  // \K may set a begin behind the end; such a match is none.
  if (ends[0] > ends[1] || ends[0] < from) return PCRE2_ERROR_BADOFFSET;
  found = {ends[0], ends[1]};
  return rc;
}

// A match that begins at `from`. The first few steps are free; behind them the limit grows eightfold from try to try,
// and each limit is paid in full, as the library does not tell how much of it was used.
int Pattern::match_here(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const {
  int rc = match(text, valid, from, PCRE2_ANCHORED, kFreeSteps, found);
  for (uint32_t limit = 8 * kFreeSteps; rc == PCRE2_ERROR_MATCHLIMIT && budget.steps > 0; limit *= 8) {
    limit = std::min(limit, budget.steps);
    budget.steps -= limit;
    rc = match(text, valid, from, PCRE2_ANCHORED, limit, found);
  }
  return rc;
}

bool Pattern::find(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const {
  if (!code_ || budget.steps == 0) return false;
  int rc = PCRE2_ERROR_MATCHLIMIT;
  if (!budget.careful) rc = match(text, valid, from, 0, kFreeSteps, found);
  budget.careful |= rc == PCRE2_ERROR_MATCHLIMIT;
  if (budget.careful) {
    while ((rc = match_here(text, valid, from, budget, found)) == PCRE2_ERROR_NOMATCH && from < text.size()) {
      from += utf8::decode(text.data() + from, text.data() + text.size()).len;
    }
  }
  if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) budget.steps = 0;
  return rc >= 0;
}

}  // namespace ibid
