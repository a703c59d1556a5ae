#include "server/request/build_grammar.h"

#include <algorithm>

#include "sample/grammar/lazy.h"
#include "server/request/tool_grammar.h"
#include "server/request/tools.h"

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
    return invalid("grammar_lazy needs grammar_triggers: without one the grammar would never begin.", "grammar_lazy");
  return out;
}

enum class Calls : uint8_t { kNone, kRequired, kAuto, kOrText };  // that a grammar holds

// All that an answer's grammar is made of, besides the tokenizer: the text that was asked for, calls of tools, and what
// may stand before both. make() sees nothing else, and the key of what it makes has every field.
struct AnswerGrammar {
  grammar::Source text;  // of kNone and kOrText
  Calls calls = Calls::kNone;
  std::vector<std::string> tools;          // that may be called
  std::vector<grammar::Trigger> triggers;  // empty: the grammar begins at once
  AnswerFormat format;                     // of calls and reasoning; not read where there is neither
  bool may_reason = false;                 // before all else
  bool is_reasoning = false;               // the prompt has opened it
};

// An answer that is what was asked for, or a call of a tool: as OpenAI has it where tools stand beside a format.
Status read_text_or_calls(const AnswerGrammar& of, const Tokenizer& tokenizer, const grammar::FindToken& find,
                          grammar::Grammar& out) {
  TRY(grammar::read(of.text, find, out));
  const grammar::RuleId as_text = out.root();
  TRY(read_required_calls(of.tools, of.format, tokenizer, out));
  out.set_root(out.rule("text or calls", out.choice({out.call(as_text), out.call(out.root())})));
  return {};
}

Status make(const AnswerGrammar& of, const Tokenizer& tokenizer, const grammar::FindToken& find,
            grammar::Grammar& out) {
  TRY(of.calls == Calls::kRequired ? read_required_calls(of.tools, of.format, tokenizer, out)
      : of.calls == Calls::kAuto   ? read_auto_calls(of.tools, of.format, tokenizer, out)
      : of.calls == Calls::kOrText ? read_text_or_calls(of, tokenizer, find, out)
                                   : grammar::read(of.text, find, out));
  if (Status waits = of.triggers.empty() ? Status() : grammar::wait_for(of.triggers, out); !waits) {
    const Error& why = waits.error();
    return Error{why.kind, "grammar_triggers: " + why.message, "grammar_triggers"};
  }
  if (of.may_reason) allow_reasoning(of.format, of.is_reasoning, tokenizer, out);
  return {};
}

}  // namespace

bool needs_grammar(const ApiRequest& api, const AnswerFormat& format) {
  if (api.grammar.kind != Kind::kNone || !api.gbnf.empty()) return true;
  const bool must_call = api.chat.tools.array() != nullptr && api.tool_choice == ToolChoice::kRequired;
  return must_call || holds_auto_calls(api, format);
}

Result<std::shared_ptr<grammar::Compiled>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                         const std::string& tenant,
                                                         const AnswerParser::Options* parser) {
  GrammarRequest asked = api.grammar;
  if (!api.gbnf.empty()) {
    if (asked.kind != Kind::kNone)
      return invalid("grammar and " + asked.field + " both restrict the answer; expected one of them.", "grammar");
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
  AnswerGrammar of = {.calls = held, .triggers = std::move(triggers)};
  if (held == Calls::kNone || held == Calls::kOrText) of.text = source_of(asked);
  if (held != Calls::kNone) of.tools = callable_tools(api);
  of.may_reason = parser != nullptr && may_reason(*parser);
  of.is_reasoning = of.may_reason && parser->is_reasoning;
  if (held != Calls::kNone || of.may_reason) of.format = *parser->format;
  const bool is_plain = held == Calls::kNone && of.triggers.empty() && !of.may_reason;
  auto made = is_plain ? backend.grammars().get(of.text, tenant) : backend.grammars().made(of, tenant, make);
  if (!made) {
    Error error = refused(asked, made.error());
    if (must_call && made.error().where != "tools") {
      std::string names;
      for (const Json& tool : *api.chat.tools.array())
        if (may_be_called(api, tool_name(tool))) names += (names.empty() ? "" : ", ") + tool_name(tool);
      error.message += " It would have to be the arguments of a call of " + names + ".";
    }
    return error;
  }
  return made;
}

std::shared_ptr<grammar::Matcher> make_matcher(const std::shared_ptr<grammar::Compiled>& compiled,
                                               const ApiRequest& api, const Backend& backend) {
  if (compiled == nullptr) return nullptr;
  return std::make_shared<grammar::Matcher>(compiled, backend.tokenizer().vocabulary().end_of_generation,
                                            std::max({api.n, api.best_of, api.search.width}), api.closes_in_time);
}

}  // namespace ibid
