// Patterns that start a grammar within an answer that is free text before it.
#pragma once

#include <string_view>
#include <vector>

#include "sample/grammar/regex.h"

namespace ibid::grammar {

// One way through a pattern that starts a grammar, as llama.cpp's grammar_triggers: the grammar's text begins at the
// first non-empty group, or at the match's start if there is none.
struct Announcement {
  CodeDfa found;   // the texts that contain the whole pattern, or, for RegexUse::kWhole, begin with it
  CodeDfa before;  // what may precede the grammar's text
  CodeDfa from;    // the beginning of the grammar's text, up to the pattern's end
};
// Refused: patterns that match the empty text, groups that may be empty or repeat, anchors other than at the ends,
// look-ahead.
Result<std::vector<Announcement>> read_announcements(std::string_view regex, RegexUse use, Fuel& fuel);

}  // namespace ibid::grammar
