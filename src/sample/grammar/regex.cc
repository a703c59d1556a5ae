#include "sample/grammar/regex.h"

#include "sample/grammar/regex_reader.h"

namespace ibid::grammar {
namespace {

// As an expression of a grammar: no anchors but at the ends.
Result<ExprId> expression_of(const Regex& regex, uint32_t id, Grammar& g, bool first, bool last) {
  const Regex::Node& node = regex.nodes[id];
  if (g.fuel().is_empty()) return out_of_fuel();
  switch (node.kind) {
    case Regex::Node::kEmpty:
      return g.empty();
    case Regex::Node::kSet:
      return g.code_points(regex.sets[node.set]);
    case Regex::Node::kBegin:
      if (!first) return invalid("^ within the expression is not served here.");
      return g.empty();
    case Regex::Node::kEnd:
      if (!last) return invalid("$ within the expression is not served here.");
      return g.empty();
    case Regex::Node::kRepeat: {
      const bool once = node.max <= 1;
      ASSIGN_OR_RETURN(const ExprId part, expression_of(regex, node.parts[0], g, first && once, last && once));
      return g.repeat(part, node.min, node.max);
    }
    case Regex::Node::kSequence:
    case Regex::Node::kChoice:
      break;
  }
  const bool is_choice = node.kind == Regex::Node::kChoice;
  std::vector<ExprId> parts;
  for (size_t i = 0; i < node.parts.size(); ++i) {
    ASSIGN_OR_RETURN(const ExprId part, expression_of(regex, node.parts[i], g, first && (is_choice || i == 0),
                                                      last && (is_choice || i + 1 == node.parts.size())));
    parts.push_back(part);
  }
  return is_choice ? g.choice(std::move(parts)) : g.sequence(std::move(parts));
}

}  // namespace

Result<CodeDfa> read_regex(std::string_view text, RegexUse use, Fuel& fuel) {
  ASSIGN_OR_RETURN(const Regex regex, parse_regex(text, fuel));
  const bool is_search = use == RegexUse::kSearch;
  ASSIGN_OR_RETURN(CodeDfa found, regex_dfa(regex, regex.root, is_search && regex.excluded.empty(), is_search, fuel));
  if (regex.excluded.empty()) return found;
  // The look-ahead and all after it stand at the text's start, or the expression would be found anywhere.
  if (is_search && text.substr(0, 1) != "^") return invalid("Look-ahead without ^ before it is not served.");
  ASSIGN_OR_RETURN(const CodeDfa none, regex_dfa(regex, regex.excluded[0], false, true, fuel));
  return CodeDfa::combine(found, none, CodeDfa::How::kFirstOnly, fuel);
}

Result<ExprId> regex_expression(std::string_view text, Grammar& grammar) {
  ASSIGN_OR_RETURN(const Regex regex, parse_regex(text, grammar.fuel()));
  if (regex.excluded.empty()) {
    Result<ExprId> plain = expression_of(regex, regex.root, grammar, true, true);
    if (plain || grammar.fuel().is_empty()) return plain;
  }
  ASSIGN_OR_RETURN(const CodeDfa dfa, read_regex(text, RegexUse::kWhole, grammar.fuel()));
  return dfa.spell(grammar, CodeDfa::Spelling::kPlain);
}

Status read_regex(std::string_view text, Grammar& grammar) {
  ASSIGN_OR_RETURN(const ExprId body, regex_expression(text, grammar));
  grammar.set_root(grammar.rule("regex", body));
  return grammar.fuel().is_empty() ? Status(out_of_fuel()) : Status();
}

}  // namespace ibid::grammar
