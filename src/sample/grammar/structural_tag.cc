// Structural tags, as vLLM, SGLang and XGrammar take them: a tree of formats, and the older list of structures.
#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/quoted.h"
#include "sample/grammar/free_text.h"
#include "sample/grammar/json_schema.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/regex.h"

namespace ibid::grammar {
namespace {

constexpr int kMaxDepth = 64;       // of formats in formats
constexpr int64_t kTreeBytes = 24;  // what a byte of JSON may take while it becomes a tree, which counts nothing itself

// What it takes of a heap besides itself.
int64_t bytes_of(const Json& json) {
  int64_t bytes = 0;
  if (const std::string* text = json.string()) bytes = block_of(*text);
  if (const Json::Array* array = json.array()) {
    bytes = block(array->capacity() * sizeof(Json));
    for (const Json& item : *array) bytes += bytes_of(item);
  }
  if (const Json::Object* object = json.object()) {
    bytes = block(object->capacity() * sizeof(Json::Member));
    for (const auto& [key, value] : *object) bytes += block_of(key) + bytes_of(value);
  }
  return bytes;
}

class TagReader {
 public:
  TagReader(const FindToken& find_token, Grammar& grammar) : find_token_(find_token), g_(grammar) {}

  Result<ExprId> format(const Json& json, const std::string& at, int depth = 0) {
    if (depth > kMaxDepth) return invalid(at + " is nested too deeply.");
    ASSIGN_OR_RETURN(const std::string type, text_of(json, "type", at));
    if (type == "const_string") {
      TRY(has_only(json, {"value"}, at));
      ASSIGN_OR_RETURN(const std::string value, text_of(json, "value", at));
      return g_.text(value);
    }
    if (type == "json_schema") {
      TRY(has_only(json, {"json_schema", "style"}, at));
      const Json* style = json.find("style");
      if (style != nullptr && (style->string() == nullptr || *style->string() != "json"))
        return invalid(at + ".style must be \"json\".");
      const Json* schema = json.find("json_schema");
      if (schema == nullptr) return invalid(at + ".json_schema is missing.");
      return schema_of(*schema);
    }
    if (type == "regex") {
      TRY(has_only(json, {"pattern"}, at));
      ASSIGN_OR_RETURN(const std::string pattern, text_of(json, "pattern", at));
      return regex_expression(pattern, g_);
    }
    if (type == "grammar") {
      TRY(has_only(json, {"grammar"}, at));
      ASSIGN_OR_RETURN(const std::string text, text_of(json, "grammar", at));
      TRY(read_gbnf(text, find_token_, g_));
      return g_.call(g_.root());
    }
    if (type == "any_text") {
      TRY(has_only(json, {"excludes"}, at));
      FreeText free;
      ASSIGN_OR_RETURN(free.excluded, excludes_of(json, at));
      return free_text(free, g_);
    }
    if (type == "sequence" || type == "or") {
      TRY(has_only(json, {"elements"}, at));
      ASSIGN_OR_RETURN(const Json::Array* elements, list_of(json, "elements", at));
      std::vector<ExprId> parts;
      for (size_t i = 0; i < elements->size(); ++i) {
        ASSIGN_OR_RETURN(const ExprId part,
                         format((*elements)[i], at + ".elements[" + std::to_string(i) + "]", depth + 1));
        parts.push_back(part);
      }
      return type == "or" ? g_.choice(std::move(parts)) : g_.sequence(std::move(parts));
    }
    if (type == "optional" || type == "plus" || type == "star" || type == "repeat")
      return repeated(json, type, at, depth);
    if (type == "tag") {
      ASSIGN_OR_RETURN(const Tag tag, tag_of(json, at, depth));
      return g_.sequence({g_.text(tag.begin), tag.rest});
    }
    if (type == "triggered_tags") {
      TRY(has_only(json, {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"}, at));
      return triggered(json, at, depth);
    }
    if (type == "tags_with_separator") return separated(json, at, depth);
    return invalid(at + ".type is " + in_quotes(type, 40) +
                   "; served are const_string, json_schema, regex, grammar, any_text, sequence, or, optional, plus, "
                   "star, repeat, tag, triggered_tags and tags_with_separator.");
  }

  // {"structures": [{"begin", "schema", "end"}], "triggers": [...]}.
  Result<ExprId> structures(const Json& json) {
    ASSIGN_OR_RETURN(const Json::Array* list, list_of(json, "structures", "structural_tag"));
    std::vector<Tag> tags;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string at = "structures[" + std::to_string(i) + "]";
      Tag tag;
      ASSIGN_OR_RETURN(tag.begin, text_of((*list)[i], "begin", at));
      ASSIGN_OR_RETURN(const std::string end, text_of((*list)[i], "end", at));
      const Json* schema = (*list)[i].find("schema");
      ExprId content = kNoExpr;
      if (schema == nullptr) {
        content = g_.call(any_json(g_, JsonSpace::kFlexible));
      } else {
        ASSIGN_OR_RETURN(content, schema_of(*schema));
      }
      tag.rest = g_.sequence({content, g_.text(end)});
      tags.push_back(std::move(tag));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> triggers, texts_of(json, "triggers", "structural_tag"));
    return dispatch(triggers, tags, {}, "structural_tag");
  }

 private:
  struct Tag {
    std::string begin;
    ExprId rest = kNoExpr;  // content and end
  };

  static Status has_only(const Json& json, std::set<std::string> keys, const std::string& at) {
    keys.insert("type");
    for (const auto& [key, value] : *json.object())
      if (!keys.contains(key) && !value.is_null()) return invalid(at + "." + key + " is not served.");
    return {};
  }
  static Result<std::string> text_of(const Json& json, const char* key, const std::string& at) {
    if (json.object() == nullptr) return invalid(at + " must be an object.");
    const Json* value = json.find(key);
    if (value == nullptr || value->string() == nullptr) return invalid(at + "." + key + " must be a string.");
    return *value->string();
  }
  static Result<const Json::Array*> list_of(const Json& json, const char* key, const std::string& at) {
    const Json* value = json.object() == nullptr ? nullptr : json.find(key);
    if (value == nullptr || value->array() == nullptr || value->array()->empty())
      return invalid(at + "." + key + " must be a list of at least one.");
    return value->array();
  }
  static Result<std::vector<std::string>> texts_of(const Json& json, const char* key, const std::string& at) {
    ASSIGN_OR_RETURN(const Json::Array* list, list_of(json, key, at));
    std::vector<std::string> texts;
    for (const Json& item : *list) {
      if (item.string() == nullptr || item.string()->empty())
        return invalid(at + "." + key + " must be strings that are not empty.");
      texts.push_back(*item.string());
    }
    return texts;
  }
  static Result<std::vector<std::string>> excludes_of(const Json& json, const std::string& at) {
    const Json* value = json.find("excludes");
    if (value == nullptr || value->is_null() || (value->array() != nullptr && value->array()->empty()))
      return std::vector<std::string>();
    return texts_of(json, "excludes", at);
  }
  static Result<bool> flag_of(const Json& json, const char* key, const std::string& at) {
    const Json* value = json.find(key);
    if (value == nullptr || value->is_null()) return false;
    if (value->boolean() == nullptr) return invalid(at + "." + key + " must be true or false.");
    return *value->boolean();
  }

  Result<ExprId> schema_of(const Json& schema) {
    ASSIGN_OR_RETURN(const RuleId rule, read_json_schema(schema.text(), {.is_strict = false}, g_));
    return g_.call(rule);
  }

  Result<ExprId> repeated(const Json& json, const std::string& type, const std::string& at, int depth) {
    TRY(has_only(json, {"content", "min", "max"}, at));
    const Json* content = json.find("content");
    if (content == nullptr) return invalid(at + ".content is missing.");
    ASSIGN_OR_RETURN(const ExprId part, format(*content, at + ".content", depth + 1));
    if (type == "optional") return g_.optional(part);
    if (type != "repeat") return g_.repeat(part, type == "plus" ? 1 : 0, kUnbounded);
    const auto count = [&](const char* key) -> int64_t {
      const Json* value = json.find(key);
      const int64_t* n = value == nullptr ? nullptr : value->integer();
      return n && *n >= -1 && *n <= int64_t{kMaxRepeat} ? *n : -2;
    };
    const int64_t min = count("min"), max = count("max");
    if (min < 0 || max < -1 || (max >= 0 && max < min))
      return invalid(at + " needs min, and max of at least that or -1.");
    return g_.repeat(part, static_cast<uint32_t>(min), max < 0 ? kUnbounded : static_cast<uint32_t>(max));
  }

  // Free text as a tag's content, or the last of its sequence, goes up to the first of the ends.
  Result<ExprId> until(const Json& content, const std::vector<std::string>& ends, const std::string& at, int depth) {
    const Json* type = content.object() == nullptr ? nullptr : content.find("type");
    const std::string name = type != nullptr && type->string() != nullptr ? *type->string() : "";
    const bool has_ends = std::none_of(ends.begin(), ends.end(), [](const std::string& end) { return end.empty(); });
    if (name == "any_text" && has_ends) {
      TRY(has_only(content, {"excludes"}, at));
      FreeText free{.at_least_one = true, .stops_after_first = true};
      for (const std::string& end : ends) free.words.push_back({end, g_.empty()});
      ASSIGN_OR_RETURN(free.excluded, excludes_of(content, at));
      return free_text(free, g_);
    }
    if (name == "sequence") {
      ASSIGN_OR_RETURN(const Json::Array* elements, list_of(content, "elements", at));
      std::vector<ExprId> parts;
      for (size_t i = 0; i < elements->size(); ++i) {
        const std::string where = at + ".elements[" + std::to_string(i) + "]";
        const bool is_last = i + 1 == elements->size();
        ASSIGN_OR_RETURN(const ExprId part, is_last ? until((*elements)[i], ends, where, depth + 1)
                                                    : format((*elements)[i], where, depth + 1));
        parts.push_back(part);
      }
      return g_.sequence(std::move(parts));
    }
    ASSIGN_OR_RETURN(const ExprId part, format(content, at, depth + 1));
    std::vector<ExprId> choices;
    for (const std::string& end : ends) choices.push_back(g_.text(end));
    return g_.sequence({part, g_.choice(std::move(choices))});
  }

  Result<Tag> tag_of(const Json& json, const std::string& at, int depth) {
    Tag tag;
    ASSIGN_OR_RETURN(tag.begin, text_of(json, "begin", at));
    TRY(has_only(json, {"begin", "content", "end"}, at));
    const Json *content = json.find("content"), *end = json.find("end");
    if (content == nullptr) return invalid(at + ".content is missing.");
    std::vector<std::string> ends;
    if (end != nullptr && end->string() != nullptr) {
      ends.push_back(*end->string());
    } else {
      ASSIGN_OR_RETURN(ends, texts_of(json, "end", at));
    }
    ASSIGN_OR_RETURN(tag.rest, until(*content, ends, at + ".content", depth + 1));
    return tag;
  }

  Result<std::vector<Tag>> tags_of(const Json& json, const std::string& at, int depth) {
    ASSIGN_OR_RETURN(const Json::Array* list, list_of(json, "tags", at));
    std::vector<Tag> tags;
    for (size_t i = 0; i < list->size(); ++i) {
      ASSIGN_OR_RETURN(Tag tag, tag_of((*list)[i], at + ".tags[" + std::to_string(i) + "]", depth + 1));
      tags.push_back(std::move(tag));
    }
    return tags;
  }

  // Each tag begins with a trigger, and after a trigger comes the rest of a tag that does.
  Result<ExprId> dispatch(const std::vector<std::string>& triggers, const std::vector<Tag>& tags, FreeText free,
                          const std::string& at) {
    for (const std::string& trigger : triggers) {
      if (!g_.fuel().burn(1 + static_cast<int64_t>(tags.size()) / 8)) return out_of_fuel();
      std::vector<ExprId> then;
      for (const Tag& tag : tags)
        if (tag.begin.starts_with(trigger))
          then.push_back(g_.sequence({g_.text(std::string_view(tag.begin).substr(trigger.size())), tag.rest}));
      if (then.empty()) return invalid(at + ": no tag begins with the trigger " + in_quotes(trigger, 40) + ".");
      free.words.push_back({trigger, g_.choice(std::move(then))});
    }
    for (const Tag& tag : tags) {
      if (!g_.fuel().burn(1 + static_cast<int64_t>(triggers.size()) / 8)) return out_of_fuel();
      if (std::none_of(triggers.begin(), triggers.end(), [&](auto& t) { return tag.begin.starts_with(t); }))
        return invalid(at + ": the tag " + in_quotes(tag.begin, 40) + " begins with none of the triggers.");
    }
    return free_text(free, g_);
  }

  Result<ExprId> triggered(const Json& json, const std::string& at, int depth) {
    FreeText free;
    ASSIGN_OR_RETURN(free.at_least_one, flag_of(json, "at_least_one", at));
    ASSIGN_OR_RETURN(free.stops_after_first, flag_of(json, "stop_after_first", at));
    ASSIGN_OR_RETURN(free.excluded, excludes_of(json, at));
    ASSIGN_OR_RETURN(const std::vector<std::string> triggers, texts_of(json, "triggers", at));
    ASSIGN_OR_RETURN(const std::vector<Tag> tags, tags_of(json, at, depth));
    return dispatch(triggers, tags, std::move(free), at);
  }

  Result<ExprId> separated(const Json& json, const std::string& at, int depth) {
    TRY(has_only(json, {"tags", "separator", "at_least_one", "stop_after_first"}, at));
    ASSIGN_OR_RETURN(const std::string separator, text_of(json, "separator", at));
    ASSIGN_OR_RETURN(const bool at_least_one, flag_of(json, "at_least_one", at));
    ASSIGN_OR_RETURN(const bool stops, flag_of(json, "stop_after_first", at));
    ASSIGN_OR_RETURN(const std::vector<Tag> tags, tags_of(json, at, depth));
    std::vector<ExprId> choices;
    for (const Tag& tag : tags) choices.push_back(g_.sequence({g_.text(tag.begin), tag.rest}));
    const ExprId one = g_.choice(std::move(choices));
    const ExprId all =
        stops ? one : g_.sequence({one, g_.repeat(g_.sequence({g_.text(separator), one}), 0, kUnbounded)});
    return at_least_one ? all : g_.optional(all);
  }

  const FindToken& find_token_;
  Grammar& g_;
};

}  // namespace

Status read_structural_tag(std::string_view text, const FindToken& find_token, Grammar& grammar) {
  if (text.size() > (1 << 20)) return invalid("The structural tag is longer than a mebibyte.");
  Held held(grammar.fuel());
  if (!held.add(kTreeBytes * static_cast<int64_t>(text.size()))) return out_of_fuel();
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "the structural tag"));
  if (!held.set(grammar.fuel(), bytes_of(json))) return out_of_fuel();
  if (json.object() == nullptr) return invalid("A structural tag must be an object.");
  TagReader reader(find_token, grammar);
  const Json* format = json.find("format");
  ASSIGN_OR_RETURN(const ExprId body, json.find("structures") != nullptr ? reader.structures(json)
                                      : format != nullptr                ? reader.format(*format, "format")
                                                                         : reader.format(json, "structural_tag"));
  grammar.set_root(grammar.rule("structural tag", body));
  return grammar.fuel().is_empty() ? Status(out_of_fuel()) : Status();
}

}  // namespace ibid::grammar
