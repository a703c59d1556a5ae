#include "server/request/tool_grammar.h"

#include <algorithm>
#include <string_view>

#include "sample/grammar/free_text.h"
#include "server/fields/parse_body.h"
#include "server/request/call_grammar.h"
#include "server/request/tools.h"

namespace ibid {
namespace {

using grammar::ExprId;
using grammar::Grammar;

}  // namespace

std::shared_ptr<const AnswerFormat> required_format(const std::shared_ptr<const AnswerFormat>& own) {
  if (own->tools.kind != ToolFormat::Kind::kGemma && own->tools.kind != ToolFormat::Kind::kNone) return own;
  auto generic = std::make_shared<AnswerFormat>(*own);
  generic->tools = AnswerFormat::of_template({}).tools;
  return generic;
}

namespace {

// Some formats put a call on lines of its own, some have lists of calls.
bool is_on_lines(const ToolFormat& tools) {
  return tools.kind == ToolFormat::Kind::kObjects && !tools.begins.empty() && tools.begins[0].starts_with('<');
}
bool is_listed(const ToolFormat& tools) {
  const bool has_begin = !tools.begins.empty() && !tools.is_bare;
  return tools.kind == ToolFormat::Kind::kPython ||
         (tools.kind == ToolFormat::Kind::kObjects && !is_on_lines(tools) && has_begin);
}

// One call of the tools that may be called, without what stands around it.
Result<ExprId> any_call(const std::vector<std::string>& callable, const ToolFormat& tools, CallGrammar& calls,
                        Grammar& out) {
  std::vector<ExprId> choices;
  for (const std::string& spelled : callable) {
    ASSIGN_OR_RETURN(const Json tool, parse_body(spelled));
    Result<ExprId> call = calls.call_of(tools, tool);
    if (!call) {
      return invalid("tools: the arguments of " + tool_name(tool) + " cannot be held: " + call.error().message,
                     "tools");
    }
    choices.push_back(*call);
  }
  return out.choice(std::move(choices));
}

}  // namespace

std::vector<std::string> callable_tools(const ApiRequest& api) {
  std::vector<std::string> out;
  for (const Json& tool : *api.chat.tools.array())
    if (may_be_called(api, tool_name(tool))) out.push_back(tool.text());
  return out;
}

Status read_required_calls(const std::vector<std::string>& callable, const AnswerFormat& format,
                           const Tokenizer& tokenizer, Grammar& out) {
  CallGrammar calls(tokenizer, false, out);
  const ToolFormat& tools = format.tools;
  ASSIGN_OR_RETURN(const ExprId call, any_call(callable, tools, calls, out));
  const std::string begin = tools.begins.empty() || tools.is_bare ? "" : tools.begins[0];
  const std::string end = tools.ends.empty() ? "" : tools.ends[0];
  const bool on_lines = is_on_lines(tools) && !begin.empty();
  std::vector<ExprId> parts;
  if (tools.around.size() >= 2 && tools.kind == ToolFormat::Kind::kNamed)
    parts.push_back(calls.marked(tools.around[0]));
  if (tools.kind == ToolFormat::Kind::kTagged && !tools.around.empty())
    parts.push_back(calls.marked(tools.around[0] + "\n"));
  const bool is_list = is_listed(tools);
  if (!begin.empty()) parts.push_back(calls.marked(begin + (on_lines ? "\n" : "")));
  if (is_list && !begin.ends_with('[')) parts.push_back(out.text("["));
  parts.push_back(call);
  if (is_list) parts.push_back(out.text("]"));
  if (!end.empty()) parts.push_back(calls.marked((on_lines ? "\n" : "") + end));
  if (tools.around.size() >= 2 && tools.kind == ToolFormat::Kind::kNamed)
    parts.push_back(calls.marked(tools.around[1]));
  if (tools.kind == ToolFormat::Kind::kTagged && !tools.around.empty())
    parts.push_back(calls.marked("\n" + tools.around[1]));
  out.set_root(out.rule("calls", out.sequence(std::move(parts))));
  return {};
}

bool holds_auto_calls(const ApiRequest& api, const AnswerFormat& format) {
  using Kind = ToolFormat::Kind;
  const ToolFormat& tools = format.tools;
  if (api.chat.tools.array() == nullptr || api.tool_choice != ToolChoice::kAuto) return false;
  const bool has_opening = tools.kind == Kind::kObjects || tools.kind == Kind::kNamed || tools.kind == Kind::kTagged ||
                           tools.kind == Kind::kPython;
  const bool is_within_reasoning = !format.reasoning.is_none() && format.reasoning.is_ended_by_call;
  if (!has_opening || tools.is_bare || tools.begins.empty() || is_within_reasoning) return false;
  return std::ranges::any_of(*api.chat.tools.array(), [&](const Json& tool) {
    return is_strict_tool(tool) && may_be_called(api, tool_name(tool));
  });
}

Status read_auto_calls(const std::vector<std::string>& callable, const AnswerFormat& format, const Tokenizer& tokenizer,
                       Grammar& out) {
  CallGrammar calls(tokenizer, true, out);
  const ToolFormat& tools = format.tools;
  ASSIGN_OR_RETURN(const ExprId call, any_call(callable, tools, calls, out));
  const ExprId line = out.optional(out.text("\n"));
  const auto following = [&](const std::string& begin) {
    std::vector<ExprId> parts;
    if (is_on_lines(tools)) parts.push_back(line);
    const bool is_list = is_listed(tools);
    if (is_list && !begin.ends_with('[')) parts.push_back(out.text("["));
    parts.push_back(call);
    if (is_list) {
      const ExprId next = out.sequence({out.text(","), out.optional(out.text(" ")), call});
      parts.push_back(out.repeat(next, 0, grammar::kUnbounded));
      parts.push_back(out.text("]"));
    }
    if (is_on_lines(tools)) parts.push_back(line);
    if (!tools.ends.empty()) parts.push_back(calls.marked(tools.ends[0]));
    return out.sequence(std::move(parts));
  };
  // An opening that is a control token is itself alone; one that is text may come to stand in any tokens.
  grammar::FreeText free;
  std::vector<ExprId> held;
  for (const std::string& begin : tools.begins) {
    if (calls.has_control(begin)) {
      held.push_back(out.sequence({calls.marked(begin), following(begin)}));
    } else if (!begin.empty()) {
      free.words.push_back({begin, following(begin)});
    }
  }
  const ExprId text = free.words.empty() ? out.repeat(out.byte(0, 255), 0, grammar::kUnbounded) : free_text(free, out);
  const ExprId more = out.repeat(out.sequence({out.choice(std::move(held)), text}), 0, grammar::kUnbounded);
  out.set_root(out.rule("text and calls", out.sequence({text, more})));
  return {};
}

bool may_reason(const AnswerParser::Options& parser) {
  return parser.format->tools.kind == ToolFormat::Kind::kChannels || !parser.format->reasoning.is_none();
}

void allow_reasoning(const AnswerFormat& format, bool is_open, const Tokenizer& tokenizer, Grammar& out) {
  const ReasoningFormat& reasoning = format.reasoning;
  CallGrammar calls(tokenizer, false, out);
  ExprId before = grammar::kNoExpr;
  if (format.tools.kind == ToolFormat::Kind::kChannels) {
    before = out.optional(out.sequence(
        {calls.marked("<|channel|>analysis<|message|>"), calls.until("<|end|>"), calls.marked("<|start|>assistant")}));
  } else if (!reasoning.is_none() && is_open) {
    before = out.sequence({calls.until(reasoning.end), calls.blanks()});
  } else if (!reasoning.is_none()) {
    before = out.optional(out.sequence({calls.marked(reasoning.begin), calls.until(reasoning.end), calls.blanks()}));
  }
  if (before == grammar::kNoExpr) return;
  out.set_root(out.rule("answer", out.sequence({before, out.call(out.root())})));
}

}  // namespace ibid
