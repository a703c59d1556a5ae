#include "sample/grammar/source.h"

#include "sample/grammar/json_schema.h"
#include "sample/grammar/regex.h"
#include "sample/grammar/rules_bytes.h"

namespace ibid::grammar {

Language language_of_grammar(std::string_view text) {
  return text.starts_with("%llguidance") || text.find("::=") == std::string_view::npos ? Language::kLark
                                                                                       : Language::kGbnf;
}

Status read(const Source& source, const FindToken& find_token, Grammar& grammar) {
  switch (source.language) {
    case Language::kNone:
      return invalid("There is no grammar.");
    case Language::kMade:
      return read_rules(source.text, grammar);
    case Language::kJsonObject:
      grammar.set_root(any_json_object(grammar, JsonSpace::kFlexible));
      return {};
    case Language::kJsonSchema: {
      Result<RuleId> root = read_json_schema(source.text, {.is_strict = source.is_strict}, grammar);
      return root ? Status() : Status(std::move(root).error());
    }
    case Language::kRegex:
      return read_regex(source.text, grammar);
    case Language::kChoices:
      return read_choices(source.choices, grammar);
    case Language::kLark:
      return read_lark(source.text, find_token, grammar);
    case Language::kStructuralTag:
      return read_structural_tag(source.text, find_token, grammar);
    case Language::kGbnf:
      break;
  }
  return read_gbnf(source.text, find_token, grammar);
}

std::string spell(const Source& source, bool closes_in_time) {
  std::string bytes = {static_cast<char>(source.language), static_cast<char>(source.is_strict),
                       static_cast<char>(closes_in_time)};
  auto add = [&](const std::string& text) { bytes += std::to_string(text.size()) + ':' + text; };
  add(source.text);
  for (const std::string& choice : source.choices) add(choice);
  return bytes;
}

}  // namespace ibid::grammar
