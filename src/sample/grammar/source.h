// Source: a grammar as requested, in its own language: the form in a record, and the key under which it is compiled
// once for all requests. For one that a caller makes (Grammars::made) the text spells all its parts; a record has its
// rules (rules_bytes.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sample/grammar/languages.h"

namespace ibid::grammar {

// In records and digests: the numbers never change.
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
// The language of a text that is GBNF or Lark: rules with ::= are GBNF.
Language language_of_grammar(std::string_view text);

struct Source {
  Language language = Language::kNone;
  bool is_strict = false;  // for schemas: a keyword that cannot be enforced is an error
  std::string text;        // of the schema, the expression or the grammar; for kMade its rules, or all its parts
  std::vector<std::string> choices;  // of kChoices
  auto operator<=>(const Source&) const = default;
};

Status read(const Source& source, const FindToken& find_token, Grammar& grammar);

// All that masks depend on, as bytes that are the same on every machine and differ for any two sources: for digests.
std::string spell(const Source& source, bool closes_in_time);

}  // namespace ibid::grammar
