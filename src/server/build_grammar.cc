#include "server/build_grammar.h"

namespace ibid {
namespace {

using Kind = GrammarRequest::Kind;

grammar::Source source_of(const GrammarRequest& asked) {
  using grammar::Language;
  const Language language = asked.kind == Kind::kJsonObject   ? Language::kJsonObject
                            : asked.kind == Kind::kJsonSchema ? Language::kJsonSchema
                            : asked.kind == Kind::kRegex      ? Language::kRegex
                            : asked.kind == Kind::kChoice     ? Language::kChoices
                                                              : Language::kGbnf;
  return {.language = language, .is_strict = asked.is_strict, .text = asked.text, .choices = asked.choices};
}

Error refused(const GrammarRequest& asked, const Error& error) {
  return invalid(asked.field + ": " + error.message, asked.field);
}

}  // namespace

Result<std::shared_ptr<grammar::Compiled>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                         const std::string& tenant) {
  GrammarRequest asked = api.grammar;
  if (!api.gbnf.empty()) {
    if (asked.kind != Kind::kNone)
      return invalid("grammar and " + asked.field + " both say what the answer must be; one would do.", "grammar");
    asked = {.kind = Kind::kGbnf, .text = api.gbnf, .field = "grammar"};
  }
  if (asked.kind == Kind::kNone) return std::shared_ptr<grammar::Compiled>();
  auto made = backend.grammars().get(source_of(asked), tenant);
  if (!made) return refused(asked, made.error());
  return made;
}

std::shared_ptr<grammar::Matcher> make_matcher(const std::shared_ptr<grammar::Compiled>& compiled,
                                               const ApiRequest& api, const Backend& backend) {
  if (compiled == nullptr) return nullptr;
  return std::make_shared<grammar::Matcher>(compiled, backend.tokenizer().vocabulary().end_of_generation, api.n,
                                            api.closes_in_time);
}

}  // namespace ibid
