#include "server/build_grammar.h"

#include <algorithm>

#include "sample/grammar/lazy.h"
#include "server/tool_grammar.h"
#include "server/tools.h"

namespace ibid {
namespace {

using Kind = GrammarRequest::Kind;

grammar::Source source_of(const GrammarRequest& asked) {
  using grammar::Language;
  const Language language = asked.kind == Kind::kJsonObject   ? Language::kJsonObject
                            : asked.kind == Kind::kJsonSchema ? Language::kJsonSchema
                            : asked.kind == Kind::kRegex      ? Language::kRegex
                            : asked.kind == Kind::kChoice     ? Language::kChoices
                            : asked.kind == Kind::kTag        ? Language::kStructuralTag
                                                              : grammar::language_of_grammar(asked.text);
  return {.language = language, .is_strict = asked.is_strict, .text = asked.text, .choices = asked.choices};
}

Error refused(const GrammarRequest& asked, const Error& error) {
  Error out = error;
  if (out.where == "grammar_triggers" || out.where == "tools") return out;
  if (out.kind == ErrorKind::kInvalid) out.message = asked.field + ": " + out.message, out.where = asked.field;
  return out;
}

// A control token stands for what it spells; any other is its text.
Result<std::vector<grammar::Trigger>> triggers_of(const ApiRequest& api, const Tokenizer& tokenizer) {
  std::vector<grammar::Trigger> out;
  for (const GrammarTrigger& given : api.triggers) {
    grammar::Trigger trigger{.text = given.text, .kind = given.kind};
    if (given.token != TokenId::kNone) {
      const bool is_known = raw(given.token) < tokenizer.vocab_size();
      trigger.text = is_known ? tokenizer.token_bytes(given.token, true) : "";
      if (trigger.text.empty()) return invalid("grammar_triggers: the model has no such token.", "grammar_triggers");
      if (tokenizer.token_bytes(given.token).empty()) trigger.token = raw(given.token);
    }
    out.push_back(std::move(trigger));
  }
  if (out.empty())
    return invalid("grammar_lazy wants grammar_triggers: without one the grammar would never begin.", "grammar_lazy");
  return out;
}

enum class Calls : uint8_t { kNone, kRequired, kAuto, kOrText };  // that a grammar holds

// An answer that is what was asked for, or a call of a tool: as OpenAI has it where tools stand beside a format.
Status read_text_or_calls(const grammar::Source& text, const ApiRequest& api, const AnswerFormat& format,
                          const Tokenizer& tokenizer, const grammar::FindToken& find, grammar::Grammar& out) {
  TRY(grammar::read(text, find, out));
  const grammar::RuleId as_text = out.root();
  TRY(read_required_calls(api, format, tokenizer, out));
  out.set_root(out.rule("text or calls", out.choice({out.call(as_text), out.call(out.root())})));
  return {};
}

// What tools must be called, and what may stand before any grammar, is the server's to say; the source names it.
Result<std::shared_ptr<grammar::Compiled>> make_around(const GrammarRequest& asked, const ApiRequest& api,
                                                       const Backend& backend, const std::string& tenant,
                                                       const AnswerParser::Options* parser, Calls held,
                                                       const std::vector<grammar::Trigger>& triggers) {
  const bool has_text = held == Calls::kNone || held == Calls::kOrText;
  const grammar::Source inner = has_text ? source_of(asked) : grammar::Source();
  grammar::Source source = {.language = grammar::Language::kMade, .text = grammar::spell(inner, false)};
  source.choices.push_back(parser != nullptr && parser->is_reasoning ? "reasoning" : "");
  for (const grammar::Trigger& trigger : triggers) {
    source.choices.push_back("trigger " + std::to_string(trigger.token) + " " +
                             std::to_string(static_cast<int>(trigger.kind)));
    source.choices.push_back(trigger.text);
  }
  if (held != Calls::kNone) {
    source.choices.emplace_back(held == Calls::kRequired ? "required" : held == Calls::kAuto ? "auto" : "or text");
    for (const Json& tool : *api.chat.tools.array())
      if (may_be_called(api, tool_name(tool))) source.choices.push_back(tool.text());
  }
  return backend.grammars().get(source, tenant, [&](const grammar::FindToken& find, grammar::Grammar& out) -> Status {
    TRY(held == Calls::kRequired ? read_required_calls(api, *parser->format, backend.tokenizer(), out)
        : held == Calls::kAuto   ? read_auto_calls(api, *parser->format, backend.tokenizer(), out)
        : held == Calls::kOrText ? read_text_or_calls(inner, api, *parser->format, backend.tokenizer(), find, out)
                                 : grammar::read(inner, find, out));
    if (Status waits = triggers.empty() ? Status() : grammar::wait_for(triggers, out); !waits) {
      const Error& why = waits.error();
      return Error{why.kind, "grammar_triggers: " + why.message, "grammar_triggers"};
    }
    if (parser != nullptr) allow_reasoning(*parser, backend.tokenizer(), out);
    return {};
  });
}

}  // namespace

Result<std::shared_ptr<grammar::Compiled>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                         const std::string& tenant,
                                                         const AnswerParser::Options* parser) {
  GrammarRequest asked = api.grammar;
  if (!api.gbnf.empty()) {
    if (asked.kind != Kind::kNone)
      return invalid("grammar and " + asked.field + " both say what the answer must be; one would do.", "grammar");
    asked = {.kind = Kind::kGbnf, .text = api.gbnf, .field = "grammar"};
  }
  const bool must_call = parser != nullptr && parser->tools && api.tool_choice == ToolChoice::kRequired;
  const bool may_call =
      asked.kind == Kind::kNone && parser != nullptr && parser->tools && holds_auto_calls(api, *parser->format);
  const bool is_format = asked.kind == Kind::kJsonObject || asked.kind == Kind::kJsonSchema;
  const bool may_call_instead = is_format && parser != nullptr && parser->tools &&
                                api.tool_choice == ToolChoice::kAuto &&
                                required_format(parser->format) == parser->format;
  const Calls held = must_call          ? Calls::kRequired
                     : may_call         ? Calls::kAuto
                     : may_call_instead ? Calls::kOrText
                                        : Calls::kNone;
  if (asked.kind == Kind::kNone && held == Calls::kNone) return std::shared_ptr<grammar::Compiled>();
  if (must_call || may_call) asked.field = "tools";
  std::vector<grammar::Trigger> triggers;
  if (api.is_lazy && held == Calls::kNone) {
    ASSIGN_OR_RETURN(triggers, triggers_of(api, backend.tokenizer()));
  }
  const bool is_made = held != Calls::kNone || !triggers.empty() || (parser != nullptr && may_reason(*parser));
  auto made = is_made ? make_around(asked, api, backend, tenant, parser, held, triggers)
                      : backend.grammars().get(source_of(asked), tenant);
  if (!made) return refused(asked, made.error());
  return made;
}

std::shared_ptr<grammar::Matcher> make_matcher(const std::shared_ptr<grammar::Compiled>& compiled,
                                               const ApiRequest& api, const Backend& backend) {
  if (compiled == nullptr) return nullptr;
  return std::make_shared<grammar::Matcher>(compiled, backend.tokenizer().vocabulary().end_of_generation,
                                            std::max({api.n, api.best_of, api.search.width}), api.closes_in_time);
}

}  // namespace ibid
