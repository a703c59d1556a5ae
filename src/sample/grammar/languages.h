// Compiles the languages in which users write grammars, each to a Grammar whose root is the whole answer. Texts are
// bytes from outside: every text leads to a grammar, or to a sentence that names the place, within the grammar's fuel.
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

// A structural tag: {"format": ...} as XGrammar has them, or {"structures": [...], "triggers": [...]}. Free text holds
// any bytes but triggers, excluded texts and, inside a tag, its end.
Status read_structural_tag(std::string_view text, const FindToken& find_token, Grammar& grammar);

// Lark, as guidance and OpenAI take it, read without a lexer: a terminal is an expression in which nothing is ignored,
// and no border of terminals is decided by the longest match. Root is the rule `start`.
Status read_lark(std::string_view text, const FindToken& find_token, Grammar& grammar);

// The answer is one of the texts.
Status read_choices(std::span<const std::string> choices, Grammar& grammar);

}  // namespace ibid::grammar
