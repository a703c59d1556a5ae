// Calls of tools through whole families: random calls to random schemas, printed by a template as a message of the
// assistant's, are read back as they were; streamed in any pieces; and cut anywhere they are never other calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/json.h"
#include "conformance/tool_families.h"
#include "outside_data.h"
#include "source_paths.h"
#include "text/jinja/chat_template.h"
#include "text/output/answer_parser.h"

namespace ibid {
namespace {

using Random = std::mt19937;
size_t draw(Random& random, size_t n) { return random() % n; }
Json word(const std::string& text) { return Json(text); }

// An independent validator of the schemas that are drawn here.
struct Valid {
  const Json& root;
  bool operator()(const Json& schema, const Json& value) const {
    if (schema.boolean() != nullptr) return *schema.boolean();
    if (const Json* to = schema.find("$ref"))
      return (*this)(*root.find("$defs")->find(to->string()->substr(std::string_view("#/$defs/").size())), value);
    if (const Json* type = schema.find("type")) {
      const Json::Array types = type->array() != nullptr ? *type->array() : Json::Array{*type};
      if (std::ranges::none_of(types, [&](const Json& t) { return is(*t.string(), value); })) return false;
    }
    const auto same = [&](const Json& one) { return one.text() == value.text(); };
    if (const Json* values = schema.find("enum"); values && std::ranges::none_of(*values->array(), same)) return false;
    if (const Json* one = schema.find("const"); one && !same(*one)) return false;
    const auto fits = [&](const Json& one) { return (*this)(one, value); };
    if (const Json* any = schema.find("anyOf"); any && std::ranges::none_of(*any->array(), fits)) return false;
    if (const Json* one = schema.find("oneOf"); one && std::ranges::count_if(*one->array(), fits) != 1) return false;
    if (const Json* all = schema.find("allOf"); all && !std::ranges::all_of(*all->array(), fits)) return false;
    const Json* most = schema.find("maxLength");
    if (most && value.string() != nullptr && n_letters(*value.string()) > static_cast<size_t>(*most->integer()))
      return false;
    const Json* least = schema.find("minimum");
    if (least && value.is_number() && value.number() < least->number()) return false;
    const Json* items = schema.find("items");
    for (size_t i = 0; items && value.array() != nullptr && i < value.array()->size(); ++i)
      if (!(*this)(*items, (*value.array())[i])) return false;
    if (value.object() == nullptr) return true;
    if (const Json* required = schema.find("required")) {
      for (const Json& name : *required->array())
        if (value.find(*name.string()) == nullptr) return false;
    }
    const Json* properties = schema.find("properties");
    return properties == nullptr || std::ranges::all_of(*value.object(), [&](const Json::Member& member) {
             const Json* one = properties->find(member.first);
             return one == nullptr || (*this)(*one, member.second);
           });
  }
  static size_t n_letters(const std::string& text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static bool is(const std::string& type, const Json& v) {
    return type == "null"      ? v.is_null()
           : type == "boolean" ? v.boolean() != nullptr
           : type == "integer" ? v.is_number() && std::floor(v.number()) == v.number()
           : type == "number"  ? v.is_number()
           : type == "string"  ? v.string() != nullptr
           : type == "array"   ? v.array() != nullptr
                               : v.object() != nullptr;
  }
};

const char* const kTypes[] = {"string", "integer", "number", "boolean", "null", "array", "object"};

Json schema_of(Random& random, int depth) {
  const auto sub = [&] { return schema_of(random, depth + 1); };
  switch (draw(random, depth > 2 ? 8 : 14)) {
    case 0:
    case 1:
      return *parse_json(R"({"type":"string"})");
    case 2:
      return Json(Json::Object{{"type", word(kTypes[draw(random, 5)])}});
    case 3:
      return Json(
          Json::Object{{"type", Json(Json::Array{word(kTypes[draw(random, 5)]), word(kTypes[draw(random, 5)])})}});
    case 4:
      return *parse_json(draw(random, 2) ? R"({"enum":["a","12","null","true"]})"
                                         : R"({"enum":["a",3,null,true,"3"]})");
    case 5:
      return *parse_json(draw(random, 2) ? R"({"type":"string","maxLength":3})" : R"({"type":"integer","minimum":5})");
    case 6:
      return draw(random, 2) ? Json(Json::Object{}) : Json(Json::Object{{"const", word("12")}});
    case 7:
      return *parse_json(draw(random, 2) ? R"({"$ref":"#/$defs/text"})" : R"({"$ref":"#/$defs/point"})");
    case 8:
      return Json(Json::Object{{"type", word("array")}, {"items", sub()}});
    case 9:
      return Json(Json::Object{{"type", word("object")},
                               {"properties", Json(Json::Object{{"x", sub()}, {"y", sub()}})},
                               {"required", Json(Json::Array{word("x")})}});
    case 10:
      return Json(Json::Object{{"allOf", Json(Json::Array{sub()})}});
    case 11:
      return Json(Json::Object{{"oneOf", Json(Json::Array{sub(), sub()})}});
    default:
      return Json(Json::Object{
          {"anyOf", Json(Json::Array{sub(), draw(random, 2) ? *parse_json(R"({"type":"null"})") : sub()})}});
  }
}

// Pieces of texts: what looks like JSON, like markup, and like the markup's ends where a value goes on after them.
std::string text_of(Random& random) {
  static const std::vector<std::string> kPieces = {"a",
                                                   "Zürich",
                                                   " ",
                                                   "\n",
                                                   "\n\n",
                                                   "\"",
                                                   "'",
                                                   "\\",
                                                   "\\n",
                                                   "<",
                                                   ">",
                                                   "&",
                                                   "{",
                                                   "}",
                                                   "[1, 2]",
                                                   "{\"x\": [1]}",
                                                   "null",
                                                   "12345",
                                                   "true",
                                                   "-1.5",
                                                   "None",
                                                   "</",
                                                   "<b>bold</b>",
                                                   "</parameter>.",
                                                   "\n</parameter>.",
                                                   "</arg_value>.",
                                                   "</param>.",
                                                   "</function> no",
                                                   "\n</function> no",
                                                   "</tool_call>.",
                                                   "\n</invoke> x",
                                                   "<tool_call>.",
                                                   "<parameter=zz>",
                                                   "<arg_key>zz",
                                                   "</｜DSML｜parameter>.",
                                                   "<｜DSML｜",
                                                   "[ARGS]",
                                                   "```",
                                                   "<function=zz>",
                                                   "é",
                                                   "\t",
                                                   "}}]"};
  std::string text;
  for (size_t n = draw(random, 5); n > 0; --n) text += kPieces[draw(random, kPieces.size())];
  return text;
}

Json value_of(Random& random, int depth) {
  switch (draw(random, depth > 1 ? 7 : 9)) {
    case 0:
    case 1:
    case 2:
      return word(text_of(random));
    case 3:
      return Json(static_cast<int64_t>(draw(random, 20)) - 5);
    case 4:
      return Json(static_cast<double>(draw(random, 100)) + 0.5);
    case 5:
      return Json(draw(random, 2) == 0);
    case 6:
      return draw(random, 3) ? word(std::vector<std::string>{"a", "12", "null", "true", "3"}[draw(random, 5)]) : Json();
    case 7: {
      Json::Array items;
      for (size_t n = draw(random, 3); n > 0; --n) items.push_back(value_of(random, depth + 1));
      return Json(std::move(items));
    }
    default:
      return Json(Json::Object{{"x", value_of(random, depth + 1)}, {"y", value_of(random, depth + 1)}});
  }
}

struct Call {
  std::string name, id, arguments;
  bool is_whole = false;
};

struct Told {
  std::vector<Call> calls;
  std::string text;
  bool are_whole = false;
};

Told read(const AnswerParser::Options& options, std::string_view text, Random* random, bool is_own_end) {
  AnswerParser parser(options);
  std::vector<AnswerPart> parts;
  for (size_t at = 0; at < text.size();) {
    size_t end = random == nullptr ? text.size() : std::min(text.size(), at + 1 + draw(*random, 9));
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    parser.push(text.substr(at, end - at), parts);
    at = end;
  }
  parser.finish(parts, is_own_end);
  Told told;
  told.are_whole = parser.are_calls_whole();
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kText) told.text += part.text;
    if (part.kind != AnswerPart::Kind::kCall) continue;
    if (part.begins) told.calls.push_back({part.name, part.id, "", false});
    told.calls.back().arguments += part.text;
    told.calls.back().is_whole = told.calls.back().is_whole || part.ends;
  }
  return told;
}

std::string canonical(const Json& value) {
  if (value.object() == nullptr && value.array() == nullptr) return value.text();
  std::string out = value.array() != nullptr ? "[" : "{";
  if (value.array() != nullptr) {
    for (const Json& item : *value.array()) out += canonical(item) + ",";
    return out + "]";
  }
  Json::Object members = *value.object();
  std::ranges::sort(members, {}, &Json::Member::first);
  for (const auto& [key, member] : members) out += Json(key).text() + ":" + canonical(member) + ",";
  return out + "}";
}

std::string canonical(const std::string& json) {
  const Result<Json> value = parse_json(json, "arguments", {.last_key_counts = true});
  return value ? canonical(*value) : "no JSON: " + json;
}

Json call_json(const std::string& name, const std::string& id, const Json& arguments) {
  return Json(
      Json::Object{{"id", word(id)},
                   {"type", word("function")},
                   {"function", Json(Json::Object{{"name", word(name)}, {"arguments", word(arguments.text())}})}});
}

// What a value that is printed between tags is by the schema, as docs/users/tools.md has it.
Json expected(const Json& value, const Json& schema, const Json& root, bool is_typed, bool spells_python) {
  const Valid valid{root};
  if (is_typed) return value;
  const bool is_word = spells_python && (value.is_null() || value.boolean() != nullptr);
  const std::string printed = value.string() != nullptr ? *value.string()
                              : !is_word                ? value.text()
                              : value.is_null()         ? "None"
                              : *value.boolean()        ? "True"
                                                        : "False";
  if (value.string() != nullptr) {
    std::string trimmed = printed;
    while (!trimmed.empty() && std::string_view(" \n\t").find(trimmed.back()) < 3) trimmed.pop_back();
    trimmed.erase(0, std::min(trimmed.size(), trimmed.find_first_not_of(" \n\t")));
    return trimmed == "null" && valid(schema, Json()) ? Json() : value;
  }
  if (value.is_null() && !spells_python) return value;
  return valid(schema, word(printed)) ? Json(std::string("\x01"))
                                      : value;  // a string: of what spelling is the template's
}

std::string answer_of(const ChatTemplate& chat, const Json::Array& calls, const std::string& said) {
  ChatInput input;
  const Json asked(Json::Object{{"role", word("user")}, {"content", word("?")}});
  const Json answered(Json::Object{{"role", word("assistant")}, {"content", word(said)}, {"tool_calls", Json(calls)}});
  input.messages = Json(Json::Array{asked, answered}).text();
  input.tools = R"([{"type":"function","function":{"name":"f","parameters":{}}}])";
  input.add_generation_prompt = false;
  const Result<RenderedPrompt> printed = chat.render(input);
  if (!printed) return ADD_FAILURE() << printed.error().message, "";
  const size_t begin = printed->text.find("<a>") + 3;
  return printed->text.substr(begin, printed->text.rfind("<e>") - begin);
}

TEST(ToolCalls, OfEveryFamilyAreReadBackAsTheyWerePrinted) {
  Random random(20);
  int n_families = 0, n_texts = 0;
  for (const ToolTemplate& family : tool_templates()) {
    const Result<ChatTemplate> chat = ChatTemplate::for_model(family.source());
    ASSERT_TRUE(chat.ok()) << family.name << ": " << chat.error().message;
    const auto format = std::make_shared<const AnswerFormat>(chat->answer_format());
    const bool is_tagged = format->tools.kind == ToolFormat::Kind::kTagged;
    const bool has_channels = format->tools.kind == ToolFormat::Kind::kChannels;
    ++n_families;
    for (int round = 0; round < 60; ++round) {
      Json::Object properties;
      for (const char* key : {"a", "b", "other_key", "k4"}) properties.emplace_back(key, schema_of(random, 0));
      const Json root(Json::Object{
          {"type", word("object")},
          {"properties", Json(properties)},
          {"$defs",
           *parse_json(
               R"({"text":{"type":"string"},"point":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}})")}});
      const auto tools = std::make_shared<const std::vector<DeclaredTool>>(
          std::vector<DeclaredTool>{{"get_it", std::make_shared<const Json>(root)}, {"now", nullptr}});
      Json::Array calls;
      std::vector<std::string> want, ids;
      std::vector<Json::Object> wanted;
      for (size_t n = family.has_one_call ? 1 : 1 + draw(random, 3); n > 0; --n) {
        Json::Object arguments, as_read;
        for (const auto& [key, schema] : properties) {
          for (int i = 0; i < 12 && draw(random, 6) > 0; ++i) {
            const Json value = value_of(random, 0);
            if (!Valid{root}(schema, value)) continue;
            const bool is_gemma = format->tools.kind == ToolFormat::Kind::kGemma;
            if (is_gemma && value.text().find("<|\\\"|>") != std::string::npos) continue;
            arguments.emplace_back(key, value);
            as_read.emplace_back(
                key, is_tagged ? expected(value, schema, root, family.is_typed, family.spells_python) : value);
            break;
          }
        }
        const bool is_empty = draw(random, 5) == 0;
        if (is_empty) arguments.clear(), as_read.clear();
        ids.push_back("id00000" + std::to_string(10 + calls.size()));
        calls.push_back(call_json(is_empty ? "now" : "get_it", ids.back(), Json(arguments)));
        want.push_back(is_empty ? "now" : "get_it");
        wanted.push_back(as_read);
      }
      const std::string said = draw(random, 3) || format->tools.is_bare || has_channels ? "" : "I look.";
      const std::string text = answer_of(*chat, calls, said);
      const AnswerParser::Options options{format, tools, true, false};
      const Told told = read(options, text, nullptr, true);
      const std::string where = std::string(family.name) + ": " + text + "\nof " + root.text();
      ASSERT_TRUE(told.are_whole) << where;
      ASSERT_EQ(told.text, said) << where;
      ASSERT_EQ(told.calls.size(), want.size()) << where;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(told.calls[i].name, want[i]) << where;
        ASSERT_TRUE(told.calls[i].is_whole) << where;
        if (family.has_ids) {
          ASSERT_EQ(told.calls[i].id, ids[i]) << where;
        }
        const Result<Json> got = parse_json(told.calls[i].arguments);
        ASSERT_TRUE(got.ok()) << told.calls[i].arguments << " of " << where;
        ASSERT_EQ(got->object()->size(), wanted[i].size()) << where;
        for (const auto& [key, value] : wanted[i]) {
          const Json* found = got->find(key);
          ASSERT_NE(found, nullptr) << key << " of " << where;
          const bool is_any_string = value.string() != nullptr && *value.string() == "\x01";
          if (is_any_string) {
            ASSERT_NE(found->string(), nullptr) << key << " of " << where;
          } else {
            ASSERT_EQ(canonical(*found), canonical(value)) << key << " of " << where;
          }
        }
      }
      // In pieces of any length it is the same.
      const Told streamed = read(options, text, &random, true);
      ASSERT_EQ(streamed.text, told.text) << where;
      ASSERT_EQ(streamed.calls.size(), told.calls.size()) << where;
      for (size_t i = 0; i < told.calls.size(); ++i)
        ASSERT_EQ(streamed.calls[i].arguments, told.calls[i].arguments) << where;
      // Cut anywhere, it never yields another call: complete calls are among these.
      for (int i = 0; i < 12; ++i) {
        size_t cut = draw(random, text.size() + 1);
        while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;
        const Told part = read(options, std::string_view(text).substr(0, cut), nullptr, false);
        ASSERT_LE(part.calls.size(), told.calls.size()) << where;
        for (size_t k = 0; k < part.calls.size(); ++k) {
          if (!part.calls[k].is_whole) {
            ASSERT_FALSE(part.are_whole) << "cut at " << cut << " of " << where;
            continue;
          }
          ASSERT_EQ(part.calls[k].name, told.calls[k].name) << "cut at " << cut << " of " << where;
          ASSERT_EQ(canonical(part.calls[k].arguments), canonical(told.calls[k].arguments))
              << "cut at " << cut << " of " << where;
        }
      }
      ++n_texts;
    }
  }
  EXPECT_GE(n_families, 36);
  RecordProperty("texts", n_texts);
}

// The server's own description of tools, for a template without one, gives calls that are parsed, whatever markers that
// template has.
TEST(ToolCalls, AreReadAsTheyWereAskedFor) {
  const auto generic = AnswerFormat::of_template({}).tools;
  for (const ToolTemplate& family : tool_templates()) {
    if (std::string_view(family.name) == "gpt-oss") continue;  // its text stands in channels
    const Result<ChatTemplate> silent = ChatTemplate::for_model(family.source(false));
    ASSERT_TRUE(silent.ok()) << family.name;
    EXPECT_FALSE(silent->shows_tools()) << family.name;
    const auto format = std::make_shared<const AnswerFormat>(silent->answer_format());
    EXPECT_EQ(format->tools.begins, generic.begins) << family.name;
    const auto tools = std::make_shared<const std::vector<DeclaredTool>>(std::vector<DeclaredTool>{{"f", nullptr}});
    const Told told = read({format, tools, true, false},
                           "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", nullptr, true);
    ASSERT_EQ(told.calls.size(), 1u) << family.name;
    EXPECT_EQ(told.calls[0].arguments, "{\"a\":1}") << family.name;
    const Result<ChatTemplate> telling = ChatTemplate::for_model(family.source());
    EXPECT_TRUE(telling->shows_tools()) << family.name;
  }
}

TEST(ByHandToolCalls, OfPublishedTemplatesAreReadBack) {
  const std::filesystem::path folder = outside_data("templates");
  if (folder.empty()) GTEST_SKIP() << "IBID_DATA names no folder with templates/";
  const auto object = [](const char* json) { return *parse_json(json); };
  const auto root = std::make_shared<const Json>(object(
      R"({"type":"object","properties":{"place":{"type":"string"},"n":{"type":"integer"},"o":{"type":"object"},)"
      R"("l":{"type":"array"},"b":{"type":"boolean"},"z":{"type":["integer","null"]},"s":{"anyOf":[{"type":"string"},)"
      R"({"type":"null"}]}}})"));
  const Json arguments =
      object(R"({"place":"A \"b\" <c>\nd","n":5,"o":{"k":"w","s":[1,"q"]},"l":[1,"x"],"b":true,"z":null,"s":"12345"})");
  const auto tools = std::make_shared<const std::vector<DeclaredTool>>(
      std::vector<DeclaredTool>{{"get_weather", root}, {"now", nullptr}});
  int n_read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    const std::string source((std::istreambuf_iterator<char>(file)), {});
    const Result<ChatTemplate> chat = ChatTemplate::for_model(source);
    if (!chat || !chat->shows_tools()) continue;
    const auto format = std::make_shared<const AnswerFormat>(chat->answer_format());
    Told told;
    std::string text;
    for (const size_t n_calls : {size_t{2}, size_t{1}}) {
      Json::Array calls;
      for (size_t i = 0; i < n_calls; ++i)
        calls.push_back(call_json(i == 0 ? "get_weather" : "now", "call0000" + std::to_string(i),
                                  i == 0 ? arguments : Json(Json::Object{})));
      ChatInput input;
      const Json asked(Json::Object{{"role", word("user")}, {"content", word("?")}});
      input.tools =
          R"([{"type":"function","function":{"name":"get_weather","description":"d","parameters":)" + root->text() +
          R"(}},{"type":"function","function":{"name":"now","description":"d","parameters":{"type":"object","properties":{}}}}])";
      input.messages = Json(Json::Array{asked}).text();
      const Result<RenderedPrompt> prompt = chat->render(input);
      const Json answered(
          Json::Object{{"role", word("assistant")}, {"content", word("")}, {"tool_calls", Json(calls)}});
      input.messages = Json(Json::Array{asked, answered}).text();
      input.add_generation_prompt = false;
      const Result<RenderedPrompt> printed = chat->render(input);
      if (!prompt || !printed) continue;
      size_t begin = 0;
      while (begin < prompt->text.size() && prompt->text[begin] == printed->text[begin]) ++begin;
      const size_t mark = printed->text.find_last_of("<[>]", begin - 1);  // not in the midst of a marker
      if (mark != std::string::npos && (printed->text[mark] == '<' || printed->text[mark] == '[') && begin - mark < 24)
        begin = mark;
      text = printed->text.substr(begin);
      told = read({format, tools, false, false}, text, nullptr, true);
      if (told.calls.size() == n_calls) break;
    }
    const bool is_right = !told.calls.empty() && canonical(told.calls[0].arguments) == canonical(arguments) &&
                          told.calls[0].name == "get_weather";
    n_read += is_right ? 1 : 0;
    if (!is_right)
      std::printf("%s: %zu calls, %s\n%s\n", entry.path().filename().c_str(), told.calls.size(),
                  told.calls.empty() ? "" : told.calls[0].arguments.c_str(), text.substr(0, 700).c_str());
  }
  EXPECT_GE(n_read, 4);
}

}  // namespace
}  // namespace ibid
