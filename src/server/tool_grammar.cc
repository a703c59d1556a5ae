#include "server/tool_grammar.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/json_writer.h"
#include "sample/grammar/free_text.h"
#include "sample/grammar/json_schema.h"
#include "server/parse_body.h"
#include "server/tools.h"

namespace ibid {
namespace {

using grammar::ExprId;
using grammar::Grammar;

class CallGrammar {
 public:
  // `is_free`: the model begins calls by itself, and spaces them as it likes; what a tool that is not strict takes is
  // any object.
  CallGrammar(const Tokenizer& tokenizer, bool is_free, Grammar& out)
      : tokenizer_(tokenizer), is_free_(is_free), out_(out) {}

  bool has_control(std::string_view text) const {
    std::vector<TokenId> ids;
    tokenizer_.encode(text, {.parse_special = true}, ids);
    return std::ranges::any_of(ids, [&](TokenId id) { return is_control(id); });
  }

  // A text of which control tokens are themselves, and not what they spell.
  ExprId marked(std::string_view text) {
    std::vector<TokenId> ids;
    tokenizer_.encode(text, {.parse_special = true}, ids);
    if (!has_control(text)) return out_.text(text);
    std::vector<ExprId> parts;
    for (const TokenId id : ids)
      parts.push_back(is_control(id) ? out_.tokens({{raw(id), raw(id)}}) : out_.text(tokenizer_.token_bytes(id)));
    return out_.sequence(std::move(parts));
  }

  // Any text up to the first time that it has the marker, with it.
  ExprId until(std::string_view marker) {
    std::vector<TokenId> ids;
    tokenizer_.encode(marker, {.parse_special = true}, ids);
    const bool is_token = ids.size() == 1 && is_control(ids[0]);
    grammar::Graph graph;
    const auto n = static_cast<uint32_t>(is_token ? 0 : marker.size());
    graph.n_states = n + 1;
    graph.accepting = {n};
    // The longest beginning of the marker that ends the text so far: Knuth, Morris and Pratt's automaton.
    for (uint32_t state = 0; state < n; ++state) {
      for (int byte = 0; byte < 256; ++byte) {
        const uint32_t to = after(marker, state, static_cast<char>(byte));
        if (!graph.edges.empty() && graph.edges.back().from == state && graph.edges.back().to == to) {
          graph.edges.back().hi = static_cast<uint8_t>(byte);
        } else {
          graph.edges.push_back({state, to, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte)});
        }
      }
    }
    if (!is_token) return out_.graph(std::move(graph));
    return out_.sequence({out_.repeat(out_.byte(0, 255), 0, grammar::kUnbounded), marked(marker)});
  }

  ExprId blanks() { return out_.repeat(out_.choice({out_.text("\n"), out_.text(" ")}), 0, 4); }

  Result<ExprId> schema(const std::string& text) {
    const grammar::JsonSpace space = is_free_ ? grammar::JsonSpace::kFlexible : grammar::JsonSpace::kCompact;
    ASSIGN_OR_RETURN(const grammar::RuleId rule,
                     grammar::read_json_schema(text, {.is_strict = is_strict_, .space = space}, out_));
    return out_.call(rule);
  }

  Result<ExprId> call_of(const ToolFormat& format, const Json& tool) {
    const std::string& name = tool_name(tool);
    is_strict_ = is_free_ && is_strict_tool(tool);
    const bool is_json = format.kind == ToolFormat::Kind::kObjects || format.kind == ToolFormat::Kind::kNamed;
    const Json schema_of_all = is_free_ && is_json && !is_strict_ ? any_object() : tool_schema(tool);
    switch (format.kind) {
      case ToolFormat::Kind::kObjects: {
        std::string named;
        JsonWriter(named).string(name);
        const ExprId space = is_free_ ? out_.optional(out_.text(" ")) : out_.text(" ");
        ASSIGN_OR_RETURN(const ExprId arguments, schema(schema_of_all.text()));
        return out_.sequence({out_.text("{\"" + format.name_key + "\":"), space, out_.text(named + ","), space,
                              out_.text("\"" + format.arguments_key + "\":"), space, arguments, out_.text("}")});
      }
      case ToolFormat::Kind::kNamed: {
        ASSIGN_OR_RETURN(const ExprId arguments, schema(schema_of_all.text()));
        return out_.sequence(
            {marked(format.is_id_name ? "functions." + name + ":0" : name), marked(format.name_ends[0]), arguments});
      }
      case ToolFormat::Kind::kChannels: {
        ASSIGN_OR_RETURN(const ExprId arguments, schema(schema_of_all.text()));
        return out_.sequence({marked("<|channel|>commentary to=functions." + name + " json<|message|>"), arguments});
      }
      case ToolFormat::Kind::kPython:
      case ToolFormat::Kind::kTagged:
        return with_arguments(format, name, schema_of_all);
      default:
        return unsupported("tool_choice cannot be held in this model's format of calls.", "tool_choice");
    }
  }

 private:
  bool is_control(TokenId id) const {
    return tokenizer_.token_bytes(id).empty() && !tokenizer_.token_bytes(id, true).empty();
  }

  static uint32_t after(std::string_view marker, uint32_t state, char byte) {
    std::string seen(marker.substr(0, state));
    seen += byte;
    while (!marker.starts_with(seen)) seen.erase(0, 1);
    return static_cast<uint32_t>(seen.size());
  }

  // Each argument by itself, in the schema's order.
  Result<ExprId> with_arguments(const ToolFormat& format, const std::string& name, const Json& schema_of_all) {
    const bool python = format.kind == ToolFormat::Kind::kPython;
    std::vector<ExprId> parts = {marked(python ? name + "(" : name + begin_of_arguments(format))};
    const Json* properties = schema_of_all.find("properties");
    const Json* required = schema_of_all.find("required");
    std::set<std::string_view> needed;
    if (required != nullptr && required->array() != nullptr) {
      for (const Json& item : *required->array())
        if (item.string() != nullptr) needed.insert(*item.string());
    }
    bool is_first = true;
    for (const bool wants_required : {true, false}) {  // what must come first: then no comma hangs on what may
      if (properties == nullptr || properties->object() == nullptr) break;
      for (const auto& [key, property] : *properties->object()) {
        if (needed.contains(key) != wants_required) continue;
        if (!wants_required && python && is_first) continue;  // a call without what it does not need
        ASSIGN_OR_RETURN(ExprId argument, argument_of(format, key, property, schema_of_all, is_first));
        parts.push_back(wants_required ? argument : out_.optional(argument));
        is_first = false;
      }
    }
    if (python) parts.push_back(out_.text(")"));
    return out_.sequence(std::move(parts));
  }

  static std::string begin_of_arguments(const ToolFormat& format) {
    const std::string& end = format.name_ends[0];
    return end == "\n" || end.ends_with('>') ? (end == "\n" ? "\n" : end + "\n") : end;
  }

  Result<ExprId> argument_of(const ToolFormat& format, const std::string& key, const Json& property,
                             const Json& schema_of_all, bool is_first) {
    const bool python = format.kind == ToolFormat::Kind::kPython;
    Json::Object with_definitions = property.object() != nullptr ? *property.object() : Json::Object();
    for (const char* definitions : {"$defs", "definitions"}) {
      const Json* found = schema_of_all.find(definitions);
      if (found != nullptr && property.find(definitions) == nullptr) with_definitions.emplace_back(definitions, *found);
    }
    const Json* type = property.find("type");
    const Json* values = property.find("enum");
    const bool is_text = !python && type != nullptr && type->string() != nullptr && *type->string() == "string";
    if (python) {
      ASSIGN_OR_RETURN(const ExprId value, schema(Json(std::move(with_definitions)).text()));
      return out_.sequence({out_.text((is_first ? "" : ", ") + key + "="), value});
    }
    const bool says_type = format.key_ends[0].find("\"true\"") != std::string::npos;
    const std::string& key_end = format.key_ends[says_type && !is_text ? 1 : 0];
    const std::string& end = format.value_ends[0];
    const ExprId begin = marked(format.key_begins[0] + key + key_end + (end[0] == '\n' ? "\n" : ""));
    const ExprId line = out_.text("\n");
    if (is_text && values == nullptr) return out_.sequence({begin, until(end), line});
    if (is_text && values->array() != nullptr) {
      std::vector<ExprId> choices;
      for (const Json& value : *values->array())
        if (value.string() != nullptr) choices.push_back(out_.text(*value.string()));
      return out_.sequence({begin, out_.choice(std::move(choices)), marked(end), line});
    }
    ASSIGN_OR_RETURN(const ExprId value, schema(Json(std::move(with_definitions)).text()));
    return out_.sequence({begin, value, marked(end), line});
  }

  static Json any_object() { return Json(Json::Object{{"type", Json(std::string("object"))}}); }

  const Tokenizer& tokenizer_;
  bool is_free_, is_strict_ = false;
  Grammar& out_;
};

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
  const auto behind = [&](const std::string& begin) {
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
      held.push_back(out.sequence({calls.marked(begin), behind(begin)}));
    } else if (!begin.empty()) {
      free.words.push_back({begin, behind(begin)});
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
