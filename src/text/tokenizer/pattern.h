// Pattern: a regular expression of a tokenizer.json that has no hand-written splitter. PCRE2 with limits on its steps,
// on how far they see, and on memory: all expressions applied to a text share one budget, and once it is used up they
// find no further match; the rest stays one piece. Matches depend on the text alone, never on time.
//
// PCRE2 10.42 has the categories of Unicode 14, the reference those of Unicode 16: characters that were assigned in
// between may be cut differently. The expressions with hand-written splitters do not use this class.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid {

class Pattern {
 public:
  static constexpr size_t kMaxBytes = 8192;
  static Result<Pattern> compile(std::string_view expression);
  Pattern() = default;

  // The budget of one text, for matches that take more than a few steps.
  struct Budget {
    uint32_t steps = 0;
    bool careful = false;  // some match did: from then on every beginning is tried on its own, and paid for
    static Budget of_text(size_t n_bytes);
  };

  // Finds the first match at or after `from`; an empty match counts. valid: the text is UTF-8, which saves a look at
  // all of it at every call.
  struct Found {
    size_t begin;
    size_t end;
  };
  bool find(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const;

 private:
  struct Code;
  struct Reach;
  static const Reach kFree;
  int match(std::string_view text, bool valid, size_t from, uint32_t options, Reach reach, Found& found) const;
  int match_here(std::string_view text, bool valid, size_t from, Budget& budget, Found& found) const;
  std::shared_ptr<const Code> code_;
};

}  // namespace ibid
