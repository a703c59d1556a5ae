#include "server/build_grammar.h"

#include <algorithm>

#include "sample/grammar/json_schema.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/regex.h"
#include "server/tool_grammar.h"

namespace ibid {
namespace {

using Kind = GrammarRequest::Kind;

Status read(const GrammarRequest& asked, const Tokenizer& tokenizer, grammar::Grammar& out) {
  switch (asked.kind) {
    case Kind::kNone:
      return {};
    case Kind::kJsonObject:
      out.set_root(grammar::any_json_object(out, grammar::JsonSpace::kFlexible));
      return {};
    case Kind::kJsonSchema: {
      Result<grammar::RuleId> root = grammar::read_json_schema(asked.text, {.is_strict = asked.is_strict}, out);
      return root ? Status() : Status(std::move(root).error());
    }
    case Kind::kRegex:
      return grammar::read_regex(asked.text, out);
    case Kind::kChoice:
      return grammar::read_choices(asked.choices, out);
    case Kind::kGbnf:
      break;
  }
  const auto find = [&](std::string_view spelled) {
    const std::vector<std::string>& tokens = tokenizer.vocabulary().tokens;
    const auto at = std::find(tokens.begin(), tokens.end(), spelled);
    return at == tokens.end() ? TokenId::kNone : TokenId{static_cast<int32_t>(at - tokens.begin())};
  };
  return grammar::read_gbnf(asked.text, find, out);
}

Error refused(const GrammarRequest& asked, const Error& error) {
  return invalid(asked.field + ": " + error.message, asked.field);
}

}  // namespace

std::shared_ptr<const grammar::TokenTrie> make_token_trie(const Tokenizer& tokenizer) {
  std::vector<std::string_view> bytes;
  bytes.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int t = 0; t < tokenizer.vocab_size(); ++t) bytes.push_back(tokenizer.token_bytes(TokenId{t}));
  // What ends an answer is no part of its text.
  for (TokenId id : tokenizer.vocabulary().end_of_generation)
    if (raw(id) >= 0 && raw(id) < tokenizer.vocab_size()) bytes[static_cast<size_t>(raw(id))] = {};
  return std::make_shared<const grammar::TokenTrie>(bytes);
}

Result<std::shared_ptr<const grammar::Automaton>> build_grammar(const ApiRequest& api, const Backend& backend,
                                                                const AnswerParser::Options* parser) {
  GrammarRequest asked = api.grammar;
  if (!api.gbnf.empty()) {
    if (asked.kind != Kind::kNone)
      return invalid("grammar and " + asked.field + " both say what the answer must be; one would do.", "grammar");
    asked = {.kind = Kind::kGbnf, .text = api.gbnf, .field = "grammar"};
  }
  const bool must_call = parser != nullptr && parser->tools && api.tool_choice == ToolChoice::kRequired;
  if (asked.kind == Kind::kNone && !must_call) return std::shared_ptr<const grammar::Automaton>();
  grammar::Fuel fuel;
  grammar::Grammar rules(fuel);
  if (must_call) {
    TRY(read_required_calls(api, *parser->format, backend.tokenizer(), rules));
    asked.field = "tools";
  } else {
    Status done = read(asked, backend.tokenizer(), rules);
    if (!done) return refused(asked, done.error());
  }
  if (parser != nullptr) allow_reasoning(*parser, backend.tokenizer(), rules);
  Result<std::shared_ptr<const grammar::Automaton>> made = grammar::compile(rules, *backend.token_trie());
  if (!made) return refused(asked, made.error());
  return made;
}

std::shared_ptr<grammar::Matcher> make_matcher(std::shared_ptr<const grammar::Automaton> automaton,
                                               const ApiRequest& api, const Backend& backend) {
  if (automaton == nullptr) return nullptr;
  return std::make_shared<grammar::Matcher>(std::move(automaton), backend.token_trie(),
                                            backend.tokenizer().vocabulary().end_of_generation, api.n,
                                            api.closes_in_time);
}

}  // namespace ibid
