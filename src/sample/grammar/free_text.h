// Free text: any bytes up to one of some words, then the expression of that word, then free text again. All words are
// matched at once (Aho and Corasick, CACM 18(6), 1975): the one that ends first counts, and all that end at the same
// place do.
#pragma once

#include <string>
#include <vector>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

struct FreeText {
  struct Word {
    std::string text;  // not empty
    ExprId then = kNoExpr;
  };
  std::vector<Word> words;
  std::vector<std::string> excluded;  // none of these appears; not empty ones
  bool at_least_one = false;          // word
  bool stops_after_first = false;
};

ExprId free_text(const FreeText& text, Grammar& grammar);

}  // namespace ibid::grammar
