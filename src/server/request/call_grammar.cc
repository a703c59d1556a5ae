#include "server/request/call_grammar.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/json_writer.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/regex.h"
#include "server/request/tools.h"
#include "text/output/argument_types.h"
#include "text/output/schema_check.h"

namespace ibid {

using grammar::ExprId;
using grammar::Grammar;

namespace {

constexpr int kMaxNesting = 16;
constexpr size_t kMaxReadings = 16;
constexpr double kMaxCounted = 2000;  // characters of a string whose number is held

Json any_object() { return Json(Json::Object{{"type", Json(std::string("object"))}}); }

uint32_t next_match(std::string_view marker, uint32_t state, char byte) {
  std::string seen(marker.substr(0, state));
  seen += byte;
  while (!marker.starts_with(seen)) seen.erase(0, 1);
  return static_cast<uint32_t>(seen.size());
}

// Formats that put tags on lines read a line's end for one that was left out.
bool has_lines(const ToolFormat& format) { return format.name_ends.back().ends_with('\n'); }
bool has_type(const ToolFormat& format) {
  const std::string& end = format.key_ends[0];
  return end.find("\"true\"") != std::string::npos || end.find("type=") != std::string::npos;
}

// Where a reference leads that stands alone.
const Json& resolved(const Json& schema, const Json& root) {
  const Json* at = &schema;
  for (int i = 0; i < kMaxNesting && at->object() != nullptr; ++i) {
    const Json* reference = at->find("$ref");
    const Json* to = reference != nullptr ? SchemaCheck(root).target(*reference) : nullptr;
    if (to == nullptr) break;
    at = to;
  }
  return *at;
}

Json with_definitions(const Json& schema, const Json& root) {
  Json::Object out = schema.object() != nullptr ? *schema.object() : Json::Object();
  if (schema.boolean() != nullptr && !*schema.boolean()) out.emplace_back("not", Json(Json::Object()));
  for (const char* definitions : {"$defs", "definitions"}) {
    const Json* found = root.find(definitions);
    if (found != nullptr && schema.find(definitions) == nullptr) out.emplace_back(definitions, *found);
  }
  return Json(std::move(out));
}

// The schema that an object has for a member that its properties do not name.
Json unnamed(const Json& root, const std::string& name) {
  const Json* patterns = root.find("patternProperties");
  for (size_t i = 0; patterns != nullptr && patterns->object() != nullptr && i < patterns->object()->size(); ++i) {
    const auto& [pattern, schema] = (*patterns->object())[i];
    if (SchemaCheck(root).accepts(Json(Json::Object{{"pattern", Json(pattern)}}), Json(name))) return schema;
  }
  const Json* others = root.find("additionalProperties");
  return others != nullptr && others->object() != nullptr ? *others : Json(true);
}

std::string json_string(std::string_view text) {
  std::string out;
  JsonWriter(out).string(text);
  return out;
}

}  // namespace

bool CallGrammar::has_control(std::string_view text) const {
  std::vector<TokenId> ids;
  tokenizer_.encode(text, {.parse_special = true}, ids);
  return std::ranges::any_of(ids, [&](TokenId id) { return is_control(id); });
}

bool CallGrammar::is_control(TokenId id) const {
  return tokenizer_.token_bytes(id).empty() && !tokenizer_.token_bytes(id, true).empty();
}

ExprId CallGrammar::marked(std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer_.encode(text, {.parse_special = true}, ids);
  if (!has_control(text)) return out_.text(text);
  std::vector<ExprId> parts;
  for (const TokenId id : ids)
    parts.push_back(is_control(id) ? out_.tokens({{raw(id), raw(id)}}) : out_.text(tokenizer_.token_bytes(id)));
  return out_.sequence(std::move(parts));
}

ExprId CallGrammar::until(std::string_view marker) {
  const bool is_token = has_control(marker);
  grammar::Graph graph;
  const auto n = static_cast<uint32_t>(is_token ? 0 : marker.size());
  graph.n_states = n + 1;
  graph.accepting = {n};
  // The longest beginning of the marker that ends the text so far: Knuth, Morris and Pratt's automaton.
  for (uint32_t state = 0; state < n; ++state) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t to = next_match(marker, state, static_cast<char>(byte));
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

ExprId CallGrammar::blanks() { return out_.repeat(out_.choice({out_.text("\n"), out_.text(" ")}), 0, 4); }

Result<ExprId> CallGrammar::schema(const std::string& text) {
  const grammar::JsonSpace space = is_free_ ? grammar::JsonSpace::kFlexible : grammar::JsonSpace::kCompact;
  ASSIGN_OR_RETURN(const grammar::RuleId rule,
                   grammar::read_json_schema(text, {.is_strict = is_strict_, .space = space}, out_));
  return out_.call(rule);
}

Result<ExprId> CallGrammar::call_of(const ToolFormat& format, const Json& tool) {
  const std::string& name = tool_name(tool);
  is_strict_ = is_free_ && is_strict_tool(tool);
  const bool is_json = format.kind == ToolFormat::Kind::kObjects || format.kind == ToolFormat::Kind::kNamed;
  const Json root = is_free_ && is_json && !is_strict_ ? any_object() : tool_schema(tool);
  switch (format.kind) {
    case ToolFormat::Kind::kObjects: {
      const ExprId space = is_free_ ? out_.optional(out_.text(" ")) : out_.text(" ");
      ASSIGN_OR_RETURN(const ExprId arguments, schema(root.text()));
      if (format.is_name_key)
        return out_.sequence({out_.text("{" + json_string(name) + ":"), space, arguments, out_.text("}")});
      return out_.sequence({out_.text("{\"" + format.name_key + "\":"), space, out_.text(json_string(name) + ","),
                            space, out_.text("\"" + format.arguments_key + "\":"), space, arguments, out_.text("}")});
    }
    case ToolFormat::Kind::kNamed: {
      ASSIGN_OR_RETURN(const ExprId arguments, schema(root.text()));
      std::vector<ExprId> parts;
      if (!format.name_begin.empty()) {
        const ExprId letter = out_.choice({out_.byte('0', '9'), out_.byte('a', 'z')});
        parts = {out_.repeat(letter, 10, 10), marked(format.name_begin)};
      }
      parts.push_back(marked(format.is_id_name ? "functions." + name + ":" : name));
      if (format.is_id_name) parts.push_back(out_.repeat(out_.byte('0', '9'), 1, 3));
      parts.push_back(marked(format.name_ends[0]));
      parts.push_back(arguments);
      return out_.sequence(std::move(parts));
    }
    case ToolFormat::Kind::kChannels: {
      ASSIGN_OR_RETURN(const ExprId arguments, schema(root.text()));
      return out_.sequence({marked("<|channel|>commentary to=functions." + name + " json<|message|>"), arguments});
    }
    case ToolFormat::Kind::kPython:
    case ToolFormat::Kind::kTagged:
      return with_arguments(format, name, root);
    default:
      return unsupported("tool_choice cannot be held in this model's format of calls.", "tool_choice");
  }
}

void CallGrammar::Arguments::add(const std::string& name, const Json& schema) {
  const auto known = std::ranges::find(properties, name, &std::pair<std::string, Json>::first);
  if (known == properties.end()) return static_cast<void>(properties.emplace_back(name, schema));
  known->second = Json(Json::Object{{"allOf", Json(Json::Array{known->second, schema})}});
}

bool CallGrammar::Arguments::needs(const std::string& name) const {
  return std::ranges::find(required, name) != required.end();
}

// Of an object whose schema has parts: the combination of all of them, for each way to choose among alternatives.
std::vector<CallGrammar::Arguments> CallGrammar::readings(const Json& schema, const Json& root, int depth) const {
  std::vector<Arguments> all(1);
  if (schema.object() == nullptr || depth > kMaxNesting) return all;
  const Json* properties = schema.find("properties");
  for (size_t i = 0; properties != nullptr && properties->object() != nullptr && i < properties->object()->size(); ++i)
    all[0].add((*properties->object())[i].first, (*properties->object())[i].second);
  const Json* required = schema.find("required");
  for (size_t i = 0; required != nullptr && required->array() != nullptr && i < required->array()->size(); ++i) {
    const std::string* name = (*required->array())[i].string();
    if (name != nullptr && !all[0].needs(*name)) all[0].required.push_back(*name);
  }
  const auto join = [&](const std::vector<Arguments>& parts) {
    std::vector<Arguments> joined;
    for (const Arguments& one : all) {
      for (const Arguments& part : parts) {
        if (joined.size() == kMaxReadings) break;
        Arguments& both = joined.emplace_back(one);
        for (const auto& [name, property] : part.properties) both.add(name, property);
        for (const std::string& name : part.required)
          if (!both.needs(name)) both.required.push_back(name);
      }
    }
    all = std::move(joined);
  };
  if (const Json* reference = schema.find("$ref"); reference != nullptr) {
    const Json* to = SchemaCheck(root).target(*reference);
    if (to != nullptr) join(readings(*to, root, depth + 1));
  }
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = schema.find(key);
    if (list == nullptr || list->array() == nullptr || list->array()->empty()) continue;
    std::vector<Arguments> alternatives;
    for (const Json& part : *list->array()) {
      if (!SchemaCheck(root, SchemaCheck::How::kKind).accepts(part, Json(Json::Object()))) continue;
      const std::vector<Arguments> one = readings(part, root, depth + 1);
      if (std::string_view(key) == "allOf") {
        join(one);
      } else {
        alternatives.insert(alternatives.end(), one.begin(), one.end());
      }
    }
    if (!alternatives.empty()) join(alternatives);
  }
  return all;
}

// Each argument by itself, what is required first: then no comma hangs on what may be left out.
Result<ExprId> CallGrammar::with_arguments(const ToolFormat& format, const std::string& name, const Json& root) {
  const bool python = format.kind == ToolFormat::Kind::kPython;
  const std::string open = python                     ? name + "("
                           : !format.head_end.empty() ? name + "\" index=\"1\"" + format.head_end
                           : !has_lines(format) || format.name_ends[0] == "\n" ? name + format.name_ends[0]
                                                                               : name + format.name_ends[0] + "\n";
  std::vector<ExprId> choices;
  for (Arguments& arguments : readings(root, root, 0)) {
    for (const std::string& needed : arguments.required) {
      if (std::ranges::find(arguments.properties, needed, &std::pair<std::string, Json>::first) ==
          arguments.properties.end())
        arguments.properties.emplace_back(needed, unnamed(root, needed));
    }
    std::vector<ExprId> parts = {marked(open)};
    bool is_first = true;
    for (const bool wants_required : {true, false}) {
      for (const auto& [key, property] : arguments.properties) {
        if (arguments.needs(key) != wants_required) continue;
        if (!wants_required && python && is_first) continue;  // a call without what it does not need
        if (!wants_required && property.boolean() != nullptr && !*property.boolean()) continue;
        ASSIGN_OR_RETURN(ExprId argument, argument_of(format, key, property, root, is_first));
        parts.push_back(wants_required ? argument : out_.optional(argument));
        is_first = false;
      }
    }
    if (python) parts.push_back(out_.text(")"));
    choices.push_back(out_.sequence(std::move(parts)));
  }
  return out_.choice(std::move(choices));
}

ExprId CallGrammar::key(const ToolFormat& format, const std::string& key, bool is_text) {
  std::string end = format.key_ends[0];
  if (has_type(format) && !is_text)
    end = format.head_end.empty() ? format.key_ends[1] : "\" type=\"object\"" + format.head_end;
  return marked(format.key_begins[0] + key + end + (format.value_ends[0][0] == '\n' ? "\n" : ""));
}

Result<ExprId> CallGrammar::argument_of(const ToolFormat& format, const std::string& key, const Json& property,
                                        const Json& root, bool is_first) {
  if (format.kind == ToolFormat::Kind::kPython) {
    ASSIGN_OR_RETURN(const ExprId value, schema(with_definitions(property, root).text()));
    return out_.sequence({out_.text((is_first ? "" : ", ") + key + "="), value});
  }
  key_ = key;
  ASSIGN_OR_RETURN(const ExprId value, tagged_value(format, property, root, 0));
  return has_lines(format) ? out_.sequence({value, out_.text("\n")}) : value;
}

// From an argument's key to its closing tag: a string as it is, anything else as JSON.
Result<ExprId> CallGrammar::tagged_value(const ToolFormat& format, const Json& property, const Json& root, int depth) {
  const Json& own = resolved(property, root);
  const ExprId end = marked(format.value_ends[0]);
  const ExprId text = key(format, key_, true), json = key(format, key_, false);
  if (SchemaCheck(root).accepts_any_string(own)) return out_.sequence({text, until(format.value_ends.back())});
  const Json* any = own.find("anyOf");
  if (any == nullptr) any = own.find("oneOf");
  const bool is_alone = own.object() != nullptr && std::ranges::all_of(*own.object(), [&](const Json::Member& member) {
                          for (const char* key : {"anyOf", "oneOf", "title", "description", "default", "examples"})
                            if (member.first == key) return true;
                          return false;
                        });
  if (any != nullptr && any->array() != nullptr && !any->array()->empty() && is_alone && depth < kMaxNesting) {
    std::vector<ExprId> choices;
    for (const Json& one : *any->array()) {
      ASSIGN_OR_RETURN(const ExprId value, tagged_value(format, one, root, depth + 1));
      choices.push_back(value);
    }
    return out_.choice(std::move(choices));
  }
  const Json* values = own.find("enum");
  const Json* one = own.find("const");
  if ((values != nullptr && values->array() != nullptr) || one != nullptr) {
    const Json::Array all = values != nullptr && values->array() != nullptr ? *values->array() : Json::Array{*one};
    const ArgumentType type(std::make_shared<const Json>(root), own);
    const ValueHint as_text = has_type(format) ? ValueHint::kText : ValueHint::kNone;
    std::vector<ExprId> choices;
    for (const Json& value : all) {
      if (!SchemaCheck(root).accepts(own, value)) continue;
      const bool is_plain = value.string() != nullptr && type.read(*value.string(), as_text) == value.text();
      choices.push_back(
          out_.sequence({is_plain ? text : json, out_.text(is_plain ? *value.string() : value.text()), end}));
    }
    if (!choices.empty()) return out_.choice(std::move(choices));
  }
  const Json* type = own.find("type");
  if (type != nullptr && type->string() != nullptr && *type->string() == "string") {
    ASSIGN_OR_RETURN(const ExprId plain, string_value(format, own, root));
    if (plain != grammar::kNoExpr) return plain;
  }
  ASSIGN_OR_RETURN(const ExprId value, schema(with_definitions(own, root).text()));
  return out_.sequence({json, value, end});
}

// A string of bounded length, or of an expression for all of it; none where it can only be held as JSON.
Result<ExprId> CallGrammar::string_value(const ToolFormat& format, const Json& property, const Json&) {
  const auto bound = [&](const char* name, double absent) {
    const Json* value = property.find(name);
    return value != nullptr && value->is_number() ? value->number() : absent;
  };
  const double least = bound("minLength", 0), most = bound("maxLength", -1);
  const Json* pattern = property.find("pattern");
  for (const char* other : {"format", "allOf", "anyOf", "oneOf", "not", "if"})
    if (property.find(other) != nullptr && !(std::string_view(other) == "format" && pattern == nullptr))
      return grammar::kNoExpr;
  const ExprId text = key(format, key_, true), end = marked(format.value_ends[0]);
  if (pattern != nullptr) {
    const std::string* expression = pattern->string();
    if (expression == nullptr || most >= 0 || least > 0) return grammar::kNoExpr;
    const bool is_whole = expression->starts_with('^') && expression->ends_with('$') && !expression->ends_with("\\$") &&
                          expression->find('|') == std::string::npos;
    if (!is_whole) return grammar::kNoExpr;
    const Result<ExprId> value = grammar::regex_expression(*expression, out_);
    if (!value) return grammar::kNoExpr;
    return out_.sequence({text, *value, end});
  }
  if (property.find("format") != nullptr) return grammar::kNoExpr;
  if (least > kMaxCounted || (most >= 0 && most < least)) return grammar::kNoExpr;
  // Nothing that may be a tag, and what must be there is no line's end, which may be the tag's.
  const ExprId first = out_.code_points(grammar::CodeSet({{'<', '<'}, {'\n', '\n'}}).complement());
  const ExprId letter = out_.code_points(grammar::CodeSet({{'<', '<'}}).complement());
  const auto n_least = static_cast<uint32_t>(least);
  const ExprId begin = out_.repeat(first, n_least, n_least);
  if (most < 0 || most > kMaxCounted) return out_.sequence({text, begin, until(format.value_ends.back())});
  return out_.sequence({text, begin, out_.repeat(letter, 0, static_cast<uint32_t>(most) - n_least), end});
}

}  // namespace ibid
