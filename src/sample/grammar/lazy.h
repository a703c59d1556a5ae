// Lazy grammars, as llama.cpp's grammar_lazy: an answer is free text until a trigger; from the trigger's first byte on
// it is of the grammar. One automaton of both, so that a token which holds a trigger's end and what comes behind it is
// masked right, and nothing is replayed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// What may follow `text` in the texts of the grammar's root: the Brzozowski derivative of a context-free grammar, by
// rules for each place within `text` (1964, JACM 11(4), for expressions).
ExprId behind(std::string_view text, Grammar& grammar);

struct Trigger {
  std::string text;    // not empty
  int32_t token = -1;  // a control token that stands for the text; -1: the text itself
};
inline constexpr size_t kMaxTriggerBytes = 256;

// Makes the root such a text. A trigger with which no text of the grammar begins cannot come.
void wait_for(const std::vector<Trigger>& triggers, Grammar& grammar);

}  // namespace ibid::grammar
