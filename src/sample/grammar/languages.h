// The languages in which users write grammars, each to a Grammar whose root is the whole answer. Texts are bytes from
// outside: whatever they are, the end is a grammar, or a sentence that names the place, within the grammar's fuel.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "sample/grammar/grammar.h"

namespace ibid::grammar {

// The id of a token by its spelling ("<think>"), or TokenId::kNone.
using FindToken = std::function<TokenId(std::string_view)>;

// GBNF, as llama.cpp's grammars/README.md describes it, left recursion too; the root is the rule `root`.
Status read_gbnf(std::string_view text, const FindToken& find_token, Grammar& grammar);

// The answer is one of the texts.
Status read_choices(std::span<const std::string> choices, Grammar& grammar);

}  // namespace ibid::grammar
