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

// What a try may take at each beginning: steps, and bytes of the text after it that it sees.
struct Pattern::Reach {
  uint32_t steps;
  size_t bytes;
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
constexpr size_t kBytesOfAStep = 2048;  // that a step may see without costing more

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

size_t window_end(std::string_view text, size_t from, size_t n_bytes) {
  if (text.size() - from <= n_bytes) return text.size();
  size_t end = from + n_bytes;
  while (utf8::goes_on(text[end])) --end;
  return end;
}

}  // namespace

constexpr Pattern::Reach Pattern::kFree = {.steps = 128, .bytes = 64};  // words of the expressions in use take some 10

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

// The library's return code. reach.steps: the limit of each beginning; not of all of them together, as the library
// counts again at each. PCRE2_ERROR_PARTIAL: a beginning, found.begin, looked beyond the window; what would be found is
// not known.
int Pattern::match(std::string_view text, bool valid, size_t from, uint32_t options, Reach reach, Found& found) const {
  thread_local MatchMemory memory;
  if (!memory.data || !memory.context) return PCRE2_ERROR_NOMEMORY;
  pcre2_set_match_limit(memory.context, reach.steps);
  pcre2_set_depth_limit(memory.context, kDepth);
  pcre2_set_heap_limit(memory.context, kHeapKibibytes);
  bool trusted = valid && code_->of_valid;
  const size_t end = valid ? window_end(text, from, reach.bytes) : text.size();
  if (end < text.size()) options |= PCRE2_PARTIAL_HARD;
  int rc = pcre2_match(trusted ? code_->of_valid : code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), end, from,
                       options | (trusted ? PCRE2_NO_UTF_CHECK : 0), memory.data, memory.context);
  const size_t* ends = pcre2_get_ovector_pointer(memory.data);
  if (rc == PCRE2_ERROR_PARTIAL) found = {ends[0], ends[1]};
  if (rc < 0) return rc;
  // \K may set a begin after the end; such a match is none.
  if (ends[0] > ends[1] || ends[0] < from) return PCRE2_ERROR_BADOFFSET;
  found = {ends[0], ends[1]};
  return rc;
}

// A match that begins at `from`. A short look is free; after it the limit of steps, or the window, grows eightfold
// from try to try, and each limit is charged in full, because the library does not report how much of it was used.
// Steps that see more cost more: a possessive repeat reads to its end in one.
int Pattern::match_here(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const {
  Reach reach = kFree;
  for (bool is_free = true;; is_free = false) {
    const size_t rest = text.size() - from, seen = valid ? std::min(reach.bytes, rest) : rest;
    const size_t price = (is_free ? 0 : 1) + seen / kBytesOfAStep;
    if (price > 0) reach.steps = static_cast<uint32_t>(std::min<size_t>(reach.steps, budget.steps / price));
    budget.steps -= static_cast<uint32_t>(reach.steps * price);
    if (reach.steps == 0) return PCRE2_ERROR_MATCHLIMIT;
    const int rc = match(text, valid, from, PCRE2_ANCHORED, reach, found);
    if (rc == PCRE2_ERROR_MATCHLIMIT) {
      reach.steps *= 8;
    } else if (rc == PCRE2_ERROR_PARTIAL) {
      reach.bytes *= 8;
    } else {
      return rc;
    }
  }
}

bool Pattern::find(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const {
  if (!code_ || budget.steps == 0) return false;
  budget.careful |= !valid;  // no windows there: a cut within an invalid sequence would change what it is
  for (;;) {
    int rc = PCRE2_ERROR_MATCHLIMIT;
    if (!budget.careful) {
      rc = match(text, valid, from, 0, kFree, found);
      const size_t end = window_end(text, from, kFree.bytes);
      if (rc == PCRE2_ERROR_NOMATCH && end < text.size()) {
        from = end;
        continue;
      }
      if (rc == PCRE2_ERROR_PARTIAL) from = found.begin;
      budget.careful |= rc == PCRE2_ERROR_MATCHLIMIT;
    }
    if (budget.careful || rc == PCRE2_ERROR_PARTIAL) {
      rc = match_here(text, valid, from, budget, found);
      if (rc == PCRE2_ERROR_NOMATCH && from < text.size()) {
        from += utf8::decode(text.data() + from, text.data() + text.size()).len;
        continue;
      }
    }
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) budget.steps = 0;
    return rc >= 0;
  }
}

}  // namespace ibid
