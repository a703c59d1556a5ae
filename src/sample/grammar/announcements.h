// What announces a grammar within an answer that is free before it.
#pragma once

#include <string_view>
#include <vector>

#include "sample/grammar/regex.h"

namespace ibid::grammar {

// A pattern that announces something, as llama.cpp's grammar_triggers have them, in one of its ways: what it announces
// begins with the first of its groups that reads anything, or with all of it where it has none.
struct Announcement {
  CodeDfa found;   // the texts that have the whole pattern in them, or, of RegexUse::kWhole, begin with it
  CodeDfa before;  // what may stand before what it announces
  CodeDfa from;    // how that begins, up to the pattern's end
};
// Refused: what the empty text has, groups that may be empty or repeat, anchors but at the ends, look-ahead.
Result<std::vector<Announcement>> read_announcements(std::string_view regex, RegexUse use, Fuel& fuel);

}  // namespace ibid::grammar
