// Lazy grammars, as llama.cpp's grammar_lazy: an answer is free text until a trigger; from the trigger's first byte on
// the grammar applies. One automaton covers both, so that a token which holds a trigger's end and bytes after it is
// masked correctly, and nothing is replayed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// What may follow `text` in the texts of the grammar's root.
ExprId following(std::string_view text, Grammar& grammar);

struct Trigger {
  enum class Kind : uint8_t {
    kText,     // itself
    kPattern,  // a regular expression that is found in the text
    kWhole,    // one that the whole text so far is of
  };
  std::string text;    // not empty
  int32_t token = -1;  // a control token that stands for the text; -1: the text itself
  Kind kind = Kind::kText;
};
inline constexpr size_t kMaxTriggerBytes = 256;

// Makes the root such a text. The trigger that ends first counts, and all that end at the same place do; for a pattern
// the grammar reads what it announces (announcements.h), in every way that it matches there. A trigger that begins no
// text of the grammar cannot occur. With patterns the free text is UTF-8.
Status wait_for(const std::vector<Trigger>& triggers, Grammar& grammar);

}  // namespace ibid::grammar
