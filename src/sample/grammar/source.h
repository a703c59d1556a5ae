// Source: a grammar as it was asked for, in its own language: what a record keeps, and what is compiled once for all
// who ask for the same. Of one that a caller makes (Grammars::made) the text spells all that it is
// made of; a record has its rules (rules_bytes.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sample/grammar/languages.h"

namespace ibid::grammar {

// In records and digests: numbers stay.
enum class Language : uint8_t {
  kNone,
  kJsonObject,
  kJsonSchema,
  kRegex,
  kChoices,
  kGbnf,
  kMade,
  kLark,
  kStructuralTag,
};
inline constexpr Language kLastLanguage = Language::kStructuralTag;
// Of a text that is GBNF or Lark: what defines rules by ::= is GBNF.
Language language_of_grammar(std::string_view text);

struct Source {
  Language language = Language::kNone;
  bool is_strict = false;  // of schemas: what cannot be held is an error
  std::string text;  // of the schema, the expression or the grammar; of kMade its rules, or all that it is made of
  std::vector<std::string> choices;  // of kChoices
  auto operator<=>(const Source&) const = default;
};

Status read(const Source& source, const FindToken& find_token, Grammar& grammar);

// All that decides about masks, as bytes that are the same on every machine and tell any two apart: for digests.
std::string spell(const Source& source, bool closes_in_time);

}  // namespace ibid::grammar
