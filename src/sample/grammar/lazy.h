// Lazy grammars, as llama.cpp's grammar_lazy: an answer is free text until a trigger; from the trigger's first byte on
// it is of the grammar. One automaton of both, so that a token which holds a trigger's end and what comes after it is
// masked right, and nothing is replayed.
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

// Makes the root such a text. The trigger that ends first counts, and of those that end there all do; of a pattern the
// grammar reads what it announces (regex.h), in whichever way it is found there. A trigger with which no text of the
// grammar begins cannot come. Where there are patterns the free text is UTF-8.
Status wait_for(const std::vector<Trigger>& triggers, Grammar& grammar);

}  // namespace ibid::grammar
