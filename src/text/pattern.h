// Pattern: a regular expression out of a tokenizer.json that is none of those we know by heart. PCRE2 with a limit on
// its steps and memory: an expression that explodes finds nothing more in its text, and the rest stays one piece.
//
// PCRE2 10.42 has the categories of Unicode 14, the reference those of Unicode 16: characters that were assigned in
// between may be cut differently. The known expressions do not pass here.
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

  // Finds the first match at or after `from`; an empty match counts. Steps are taken from `budget`; none are left after
  // an expression has exploded. valid: the text is UTF-8, which saves a look at all of it at every call.
  struct Found {
    size_t begin;
    size_t end;
  };
  bool find(std::string_view text, bool valid, size_t from, uint32_t& budget, Found& found) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace ibid
