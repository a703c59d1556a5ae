// Schemas at random, against a validator that reads them keyword by keyword; what lengths leave of patterns, against
// each text; and masks inside lists that are counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "sample/grammar/json_schema.h"
#include "sample/grammar/schema_value.h"
#include "sample/grammar/testing/vocabularies.h"

namespace ibid::grammar {
namespace {

using Kind = Value::Kind;

std::shared_ptr<const Automaton> compiled(const Grammar& grammar) {
  auto made = Automaton::compile(grammar, {.bytes = std::bitset<256>().set()});
  return made ? std::make_shared<const Automaton>(*std::move(made)) : nullptr;
}

// Null where it is refused, or has no text.
std::shared_ptr<const Automaton> of_schema(const std::string& schema, bool& is_refused, bool is_strict = true) {
  Fuel fuel;
  Grammar grammar(fuel);
  is_refused = !read_json_schema(schema, {.is_strict = is_strict}, grammar).ok();
  return is_refused ? nullptr : compiled(grammar);
}

bool accepts(const std::shared_ptr<const Automaton>& automaton, std::string_view text) {
  if (automaton == nullptr) return false;
  States states(automaton);
  const StateId end = states.after(kInitial, text);
  return end != kDead && states.accepts(end);
}

Value parsed(const std::string& json) {
  Fuel fuel;
  Held held(fuel);
  return read_value(json, fuel, held).value();
}

// The standard, keyword by keyword.
class Validator {
 public:
  static bool holds(const Value& schema, const Value& value) {
    if (!schema.is_object()) return schema.is(Kind::kTrue);
    return std::ranges::all_of(schema.members,
                               [&](const auto& m) { return keyword(schema, m.first, m.second, value); });
  }

 private:
  static int number(const Value& value) { return std::stoi(value.text); }
  static bool is_of_type(const std::string& type, const Value& value) {
    if (type == "integer") return value.is(Kind::kNumber) && value.number().is_integer();
    static const std::map<std::string, std::vector<Kind>> kKinds = {
        {"null", {Kind::kNull}},     {"boolean", {Kind::kTrue, Kind::kFalse}},
        {"number", {Kind::kNumber}}, {"string", {Kind::kString}},
        {"array", {Kind::kArray}},   {"object", {Kind::kObject}}};
    return std::ranges::count(kKinds.at(type), value.kind) > 0;
  }
  static bool keyword(const Value& schema, const std::string& key, const Value& argument, const Value& value) {
    const auto n_held = [&](const Value& list) {
      return std::ranges::count_if(list.items, [&](const Value& part) { return holds(part, value); });
    };
    if (key == "type") return is_of_type(argument.text, value);
    if (key == "enum") return std::ranges::count(argument.items, value) > 0;
    if (key == "allOf") return n_held(argument) == std::ssize(argument.items);
    if (key == "anyOf") return n_held(argument) > 0;
    if (key == "oneOf") return n_held(argument) == 1;
    if (key == "not") return !holds(argument, value);
    if (key == "if") {
      const Value* then = schema.find(holds(argument, value) ? "then" : "else");
      return then == nullptr || holds(*then, value);
    }
    if (value.is(Kind::kNumber)) {
      if (key == "minimum") return value.number().compare(argument.number()) >= 0;
      if (key == "maximum") return value.number().compare(argument.number()) <= 0;
    }
    if (value.is(Kind::kString)) {
      const auto n = static_cast<int>(value.text.size());
      if (key == "minLength") return n >= number(argument);
      if (key == "maxLength") return n <= number(argument);
      if (key == "pattern") return std::regex_search(value.text, std::regex(argument.text));
    }
    if (value.is(Kind::kArray)) return list_keyword(schema, key, argument, value);
    if (value.is(Kind::kObject)) return object_keyword(schema, key, argument, value);
    return true;
  }
  static bool list_keyword(const Value& schema, const std::string& key, const Value& argument, const Value& value) {
    const auto n = static_cast<int>(value.items.size());
    if (key == "minItems") return n >= number(argument);
    if (key == "maxItems") return n <= number(argument);
    const Value* prefix = schema.find("prefixItems");
    const size_t first = prefix == nullptr ? 0 : prefix->items.size();
    for (size_t i = 0; i < value.items.size(); ++i) {
      if (key == "items" && i >= first && !holds(argument, value.items[i])) return false;
      if (key == "prefixItems" && i < first && !holds(argument.items[i], value.items[i])) return false;
    }
    if (key == "uniqueItems" && argument.is(Kind::kTrue))
      for (size_t i = 0; i < value.items.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (value.items[i] == value.items[j]) return false;
    return true;
  }
  static bool object_keyword(const Value& schema, const std::string& key, const Value& argument, const Value& value) {
    const auto n = static_cast<int>(value.members.size());
    if (key == "minProperties") return n >= number(argument);
    if (key == "maxProperties") return n <= number(argument);
    if (key == "required")
      return std::ranges::all_of(argument.items, [&](const Value& name) { return value.find(name.text) != nullptr; });
    if (key == "properties")
      return std::ranges::all_of(argument.members, [&](const auto& m) {
        const Value* member = value.find(m.first);
        return member == nullptr || holds(m.second, *member);
      });
    if (key == "additionalProperties") {
      const Value* known = schema.find("properties");
      return std::ranges::all_of(value.members, [&](const auto& m) {
        return (known != nullptr && known->find(m.first) != nullptr) || holds(argument, m.second);
      });
    }
    return true;
  }
};

class RandomSchemas {
 public:
  explicit RandomSchemas(uint32_t seed) : rng_(seed) {}

  std::string schema(int depth) {
    std::vector<std::string> parts;
    for (uint32_t n = 1 + below(3); n > 0; --n) parts.push_back(keyword(depth));
    // A key that came twice would have its last value.
    std::sort(parts.begin(), parts.end());
    const auto key = [](const std::string& part) { return part.substr(0, part.find(':')); };
    parts.erase(std::unique(parts.begin(), parts.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }),
                parts.end());
    std::string all;
    for (const std::string& part : parts) all += (all.empty() ? "" : ",") + part;
    return "{" + all + "}";
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }

 private:
  std::string some(const std::vector<std::string>& of) { return of[below(static_cast<uint32_t>(of.size()))]; }
  std::string pair_of(int depth) { return "[" + schema(depth - 1) + "," + schema(depth - 1) + "]"; }
  std::string keyword(int depth) {
    switch (below(depth > 0 ? 17 : 9)) {
      case 0:
      case 1:
        return R"("type":")" + some({"null", "boolean", "number", "integer", "string", "array", "object"}) + '"';
      case 2:
        return R"("enum":)" + some({R"(["a",1])", "[null,true,2]", R"(["ab","ba"])", "[0,1.5]"});
      case 3:
        return some({R"("minLength":)", R"("maxLength":)"}) + std::to_string(below(4));
      case 4:
        return R"("pattern":")" + some({"^a*$", "b", "^a[ab]+$", "a$"}) + '"';
      case 5:
        return some({R"("minimum":)", R"("maximum":)"}) + some({"0", "1", "-1", "1.5"});
      case 6:
        return R"("required":)" + some({R"(["a"])", R"(["b","a"])", R"(["c","b"])", R"(["c"])"});
      case 7:
        return some({R"("minItems":)", R"("maxItems":)", R"("maxProperties":)"}) + std::to_string(below(3));
      case 8:
        return R"("additionalProperties":)" + some({"false", "true", R"({"type":"string"})"});
      case 9:
      case 10:
        return R"("properties":{"a":)" + schema(depth - 1) + R"(,"b":)" + schema(depth - 1) + "}";
      case 11:
        return R"("items":)" + schema(depth - 1);
      case 12:
        return R"("prefixItems":[)" + schema(depth - 1) + "]";
      case 13:
        return R"("allOf":)" + pair_of(depth);
      case 14:
        return some({R"("anyOf":)", R"("oneOf":)"}) + pair_of(depth);
      case 15:
        return R"("not":)" + schema(depth - 1);
      default:
        return R"("if":)" + schema(depth - 1) + R"(,"then":)" + schema(depth - 1) + R"(,"else":)" + schema(depth - 1);
    }
  }
  std::mt19937 rng_;
};

// Values, each in all orders of its members.
std::vector<std::vector<std::string>> values() {
  const std::vector<std::string> plain = {"null", "true", "0",     "1",      "2",      "-1",
                                          "1.5",  "\"\"", "\"a\"", "\"ab\"", "\"ba\"", "\"aaa\""};
  std::vector<std::vector<std::string>> all = {{"[]"}, {"{}"}, {"[[]]"}, {"[{},1]"}};
  for (size_t i = 0; i < plain.size(); ++i) {
    const std::string& x = plain[i];
    const std::string &y = plain[(i * 5 + 3) % plain.size()], &z = plain[(i * 7 + 1) % plain.size()];
    all.push_back({x});
    all.push_back({"[" + x + "]"});
    all.push_back({"[" + x + "," + y + "]"});
    all.push_back({"[" + x + "," + x + "]"});
    const std::string a = "\"a\":" + x, b = "\"b\":" + y, c = "\"c\":" + z;
    all.push_back({"{" + a + "}"});
    all.push_back({"{\"c\":" + x + "}"});
    all.push_back({"{" + a + "," + b + "}", "{" + b + "," + a + "}"});
    all.push_back({"{" + b + "," + c + "}", "{" + c + "," + b + "}"});
    std::vector<std::string> orders, parts = {a, b, c};
    do orders.push_back("{" + parts[0] + "," + parts[1] + "," + parts[2] + "}");
    while (std::next_permutation(parts.begin(), parts.end()));
    all.push_back(std::move(orders));
  }
  return all;
}

TEST(GrammarSchema, HoldsExactlyTheValidValuesOfRandomSchemas) {
  RandomSchemas random(7);
  const auto all = values();
  int n_read = 0, n_held = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random.schema(2);
    bool is_refused = false;
    const auto automaton = of_schema(text, is_refused);
    if (is_refused) continue;
    ++n_read;
    const Value schema = parsed(text);
    for (const auto& orders : all) {
      const bool is_valid = Validator::holds(schema, parsed(orders[0]));
      const bool is_held = std::ranges::any_of(orders, [&](const std::string& t) { return accepts(automaton, t); });
      ASSERT_EQ(is_held, is_valid) << text << " of " << orders[0];
      n_held += is_held;
    }
  }
  EXPECT_GT(n_read, 1200);
  EXPECT_GT(n_held, 5000);
}

TEST(GrammarSchema, LengthsLeaveOfPatternsWhatHasThem) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 7; ++i) texts.push_back(texts[i] + 'a'), texts.push_back(texts[i] + 'b');
  for (const char* pattern : {"^a*$", "^[ab]+$", "b", "^a[ab]*$", "^(ab)*$", "^(a|bb[ab]*)$", "^a{1,3}(b{1,2}a){0,2}$",
                              "^(b|aab?)+$", "^a?$", "^b{3}[ab]*$", "^(a*|b*)$"}) {
    const std::regex regex(pattern);
    for (int min = 0; min <= 5; ++min) {
      for (int max = -1; max <= 6; ++max) {
        std::string schema = R"({"type":"string","pattern":")" + std::string(pattern) + '"';
        if (min > 0) schema += R"(,"minLength":)" + std::to_string(min);
        if (max >= 0) schema += R"(,"maxLength":)" + std::to_string(max);
        bool is_refused = false;
        const auto automaton = of_schema(schema + "}", is_refused);
        ASSERT_FALSE(is_refused);
        for (const std::string& text : texts) {
          const auto n = static_cast<int>(text.size());
          const bool is_valid = n >= min && (max < 0 || n <= max) && std::regex_search(text, regex);
          ASSERT_EQ(accepts(automaton, '"' + text + '"'), is_valid) << schema << " of " << text;
        }
      }
    }
  }
}

// Strings under a pattern, and names beside listed ones: what must be escaped has its one shortest spelling.
TEST(GrammarSchema, ControlCharactersHaveTheirShortestEscape) {
  constexpr const char* kHex = "0123456789abcdef";
  for (const auto& [schema, begin, end] :
       {std::tuple{R"({"type":"string","pattern":"^[^a]*$"})", "\"", "\""},
        std::tuple{R"({"type":"string","pattern":"^[\\u0000-\\u001e\\u001f]{0,9}$"})", "\"", "\""},
        std::tuple{R"({"type":"object","propertyNames":{"pattern":"^[^a]*$"}})", "{\"", "\":1}"},
        std::tuple{R"({"type":"object","properties":{"name":{}}})", "{\"", "\":1}"}}) {
    bool is_refused = false;
    const auto automaton = of_schema(schema, is_refused);
    ASSERT_FALSE(is_refused) << schema;
    const auto takes = [&](const std::string& inside) { return accepts(automaton, begin + inside + end); };
    for (size_t c = 0; c < 0x20; ++c) {
      const bool is_named = c == '\b' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
      const std::string hex = {kHex[c / 16], kHex[c % 16]};
      EXPECT_EQ(takes("\\u00" + hex), !is_named) << schema << " of " << c;
      EXPECT_EQ(takes("\\u00" + hex + "\\u00" + hex), !is_named) << schema << " of " << c;
      for (const char* wrong : {"\\u0", "\\u", "\\u1"})
        EXPECT_FALSE(takes(wrong + hex)) << schema << " of " << wrong << hex;
      EXPECT_FALSE(takes("\\u0" + hex + "g"));
      EXPECT_FALSE(takes(std::string(1, static_cast<char>(c)))) << schema << " of " << c;
    }
    for (const char* named : {"\\b", "\\t", "\\n", "\\f", "\\r"})
      EXPECT_TRUE(takes(named)) << schema << " of " << named;
  }
}

TEST(GrammarSchema, NamesOfHostsAndMailboxesAreNoLongerThanTheirStandardsAllow) {
  const auto takes = [](const char* format, const std::string& text) {
    bool is_refused = false;
    const auto automaton = of_schema(R"({"type":"string","format":")" + std::string(format) + R"("})", is_refused);
    return !is_refused && accepts(automaton, '"' + text + '"');
  };
  const std::string x62(62, 'x'), x30(30, 'x');
  EXPECT_TRUE(takes("hostname", x62 + "." + x62 + "." + x62 + "." + x62));
  EXPECT_TRUE(takes("hostname", "www.some-place.example.org"));
  EXPECT_FALSE(takes("hostname", x62 + "xx")) << "a label has at most 63";
  EXPECT_FALSE(takes("hostname", x62 + "-" + x30)) << "with its hyphens";
  EXPECT_TRUE(takes("email", x62 + "xx@a.b"));
  EXPECT_FALSE(takes("email", x62 + "xxx@a.b")) << "a mailbox has at most 64";
  EXPECT_FALSE(takes("email", x62 + ".xx@a.b")) << "with its points";
  EXPECT_TRUE(takes("email", "a.person+tag@some-place.example"));
}

TEST(GrammarSchema, LengthsOfPatternsAreCountedAndNotWrittenOut) {
  Fuel fuel;
  Grammar grammar(fuel);
  ASSERT_TRUE(read_json_schema(R"({"type":"string","pattern":"^[^\\s/]+$","maxLength":20000})", {}, grammar).ok());
  const auto automaton = compiled(grammar);
  ASSERT_NE(automaton, nullptr);
  EXPECT_LT(automaton->n_nodes(), 1000u);
  EXPECT_TRUE(accepts(automaton, '"' + std::string(20'000, 'a') + '"'));
  EXPECT_FALSE(accepts(automaton, '"' + std::string(20'001, 'a') + '"'));
}

TEST(GrammarSchema, DanglingReferenceIsReportedAndIgnored) {
  for (const char* draft :
       {"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"}) {
    for (const char* to : {"#/definitions/none", "https://example.org/other.json", "#/definitions/list"}) {
      const std::string schema = R"({"$schema":")" + std::string(draft) +
                                 R"(","type":"object","definitions":{"list":[1]},"properties":{"a":{"$ref":")" + to +
                                 R"("},"b":{"type":"null"}}})";
      bool is_refused = false;
      EXPECT_EQ(of_schema(schema, is_refused), nullptr);
      EXPECT_TRUE(is_refused) << "where it is strict";
      Fuel fuel;
      Grammar grammar(fuel);
      SchemaReport report;
      ASSERT_TRUE(read_json_schema(schema, {.is_strict = false}, grammar, &report).ok());
      ASSERT_EQ(report.ignored.size(), 1u);
      EXPECT_TRUE(report.ignored[0].starts_with(R"("$ref" at #/properties/a cannot be held)")) << report.ignored[0];
      const auto automaton = compiled(grammar);
      EXPECT_TRUE(accepts(automaton, R"({"a":[1],"b":null})"));
      EXPECT_FALSE(accepts(automaton, R"({"a":[1],"b":1})"));
    }
  }
}

// A schema that stands below no keyword, but is referred to, has a place and a URI of its own as others have.
TEST(GrammarSchema, ReferencedSchemaMayStandAnywhere) {
  const std::string schema = R"({"$id":"https://example.org/a","type":"object","required":["a","b"],"properties":{
      "a":{"$ref":"#/parts/common/url"},"b":{"$ref":"#/parts/common/list/items"}},"parts":{"common":{
      "url":{"type":"string","pattern":"(?<=a)b"},
      "list":{"items":{"anyOf":[{"$ref":"#/parts/common/url/inner"},{"$ref":"#/parts/common/null"}]}},
      "null":{"type":"null"}}}})";
  Fuel fuel;
  Grammar grammar(fuel);
  SchemaReport report;
  ASSERT_TRUE(read_json_schema(schema, {.is_strict = false}, grammar, &report).ok());
  std::string all;
  for (const std::string& sentence : report.ignored) all += sentence + "\n";
  EXPECT_NE(all.find(R"("pattern" at #/parts/common/url cannot)"), std::string::npos) << all;
  EXPECT_NE(all.find(R"("$ref" at #/parts/common/list/items/anyOf/0 cannot)"), std::string::npos) << all;
  const auto automaton = compiled(grammar);
  EXPECT_TRUE(accepts(automaton, R"({"a":"x","b":null})"));
  EXPECT_FALSE(accepts(automaton, R"({"a":1,"b":null})"));
}

// The last of repeated keys counts, as in every other reader of JSON, however many others there are.
TEST(GrammarSchema, OfEqualKeysTheLastOneCounts) {
  for (const int n_others : {0, 3, 200}) {
    std::string others;
    for (int i = 0; i < n_others; ++i) others += "\"x-" + std::to_string(i) + "\":1,";
    bool is_refused = false;
    const auto automaton = of_schema(
        "{" + others + R"("enum":[1],"type":"string","enum":["a","b"],"const":3,"enum":["a","c"],"const":"c"})",
        is_refused);
    ASSERT_FALSE(is_refused) << n_others;
    EXPECT_TRUE(accepts(automaton, R"("c")"));
    EXPECT_FALSE(accepts(automaton, R"("a")"));
  }
}

TEST(GrammarSchema, NumbersOfAnySizeHaveAnOrder) {
  const std::vector<std::string> ascending = {"-1e999999999", "-12.5",  "-12", "-1.2", "-1e-999999999", "0",
                                              "1e-999999999", "0.0012", "1.2", "12",   "12.5",          "1.2e1000",
                                              "1e999999999"};
  for (size_t i = 0; i < ascending.size(); ++i)
    for (size_t j = 0; j < ascending.size(); ++j)
      EXPECT_EQ(Decimal::of(ascending[i]).compare(Decimal::of(ascending[j])), i < j ? -1 : i > j)
          << ascending[i] << " " << ascending[j];
  EXPECT_EQ(Decimal::of("120e-1").compare(Decimal::of("1.2e1")), 0);
  bool is_refused = false;
  EXPECT_TRUE(accepts(of_schema(R"({"const":5,"not":{"const":1e999999999}})", is_refused), "5"));
}

// What a negation is of must be what the keyword may have, as where there is none.
TEST(GrammarSchema, NegationsCheckTheirKeywords) {
  for (const char* schema : {R"({"not":{"anyOf":5}})", R"({"not":{"allOf":{}}})", R"({"not":{"$ref":5}})",
                             R"({"not":{"properties":[]}})", R"({"not":{"items":[true],"additionalItems":[]}})",
                             R"({"not":{"dependentRequired":7}})", R"({"patternProperties":[1]})"}) {
    Fuel fuel;
    Grammar grammar(fuel);
    const Result<RuleId> read = read_json_schema(schema, {.is_strict = false}, grammar);
    ASSERT_FALSE(read.ok()) << schema;
    EXPECT_NE(read.error().message.find(" must be "), std::string::npos) << read.error().message;
  }
}

// "items" that is a list describes the first items, and "prefixItems" beside it is ignored.
TEST(GrammarSchema, NegatedListsRefuseTheValuesOfBothKeywords) {
  bool is_refused = false;
  const auto automaton = of_schema(
      R"({"type":"array","maxItems":3,"not":{"prefixItems":[{"type":"null"}],"items":[true,{"type":"null"},true]}})",
      is_refused);
  ASSERT_FALSE(is_refused);
  for (const char* text : {"[1,2]", "[null,2,3]"}) EXPECT_TRUE(accepts(automaton, text)) << text;
  for (const char* text : {"[]", "[1]", "[1,null]", "[1,null,3]"}) EXPECT_FALSE(accepts(automaton, text)) << text;
}

// An expression that allows less than its format has an opposite that allows too much.
TEST(GrammarSchema, NarrowFormatsHaveNoOpposite) {
  const auto is_told = [](const char* schema) {
    Fuel fuel;
    Grammar grammar(fuel);
    SchemaReport report;
    EXPECT_TRUE(read_json_schema(schema, {.is_strict = false}, grammar, &report).ok()) << schema;
    return !report.ignored.empty();
  };
  EXPECT_TRUE(is_told(R"({"type":"string","not":{"format":"hostname"}})"));
  EXPECT_TRUE(is_told(R"({"oneOf":[{"type":"string","format":"ipv4"},{"type":"string","format":"hostname"}]})"));
  EXPECT_FALSE(is_told(R"({"type":"string","not":{"format":"ipv4"}})"));
  // A text outside the narrow expression may be one of the format: the expression cannot separate these.
  EXPECT_TRUE(
      is_told(R"({"oneOf":[{"type":"string","format":"hostname"},{"type":"string","pattern":"^(a\\.){4}e$"}]})"));
  EXPECT_TRUE(is_told(R"({"oneOf":[{"type":"string","format":"hostname"},{"const":"a.a.a.a.e"}]})"));
  EXPECT_FALSE(is_told(R"({"oneOf":[{"type":"string","format":"email"},{"type":"string","format":"uri"}]})"));
  EXPECT_FALSE(is_told(R"({"oneOf":[{"format":"date","type":"string"},{"format":"date-time","type":"string"}]})"));
  bool is_refused = false;
  const auto automaton = of_schema(R"({"type":"string","not":{"pattern":"a\u0000|b"}})", is_refused);
  ASSERT_FALSE(is_refused);
  EXPECT_TRUE(accepts(automaton, R"("a")"));
  EXPECT_FALSE(accepts(automaton, R"("b")"));
}

// Alternatives that may hold together evaluate together; beyond four of them that is not enforced, and reported.
TEST(GrammarSchema, ManyAlternativesEvaluatedTogetherAreReported) {
  const auto schema = [](int n, bool are_told_apart) {
    std::string all;
    for (int i = 0; i < n; ++i) {
      const std::string name = "x" + std::to_string(i), kind = std::to_string(i);
      all += std::string(i > 0 ? "," : "") + R"({"properties":{")" + name + R"(":{}, "kind":)" +
             (are_told_apart ? R"({"const":)" + kind + "}" : "{}") + R"(},"required":[")" + name +
             (are_told_apart ? R"(","kind"]})" : R"("]})");
    }
    return R"({"type":"object","unevaluatedProperties":false,"anyOf":[)" + all + "]}";
  };
  for (const auto& [n, are_told_apart, is_told] : {std::tuple{4, false, false}, {5, false, true}, {5, true, false}}) {
    Fuel fuel;
    Grammar grammar(fuel);
    SchemaReport report;
    ASSERT_TRUE(read_json_schema(schema(n, are_told_apart), {.is_strict = false}, grammar, &report).ok());
    EXPECT_EQ(!report.ignored.empty(), is_told) << n;
    EXPECT_EQ(accepts(compiled(grammar), R"({"x1":1,"x2":2})"), n == 4) << n;
  }
}

// Only an unevaluated* that sees the alternatives reports it: through allOf too, not from another place.
TEST(GrammarSchema, AlternativesElsewhereLoseNothing) {
  std::string all;
  for (int i = 0; i < 5; ++i)
    all += std::string(i > 0 ? "," : "") + R"({"properties":{"x)" + std::to_string(i) + R"(":{}}})";
  const std::string any = R"({"anyOf":[)" + all + "]}";
  for (const auto& [schema, is_told] :
       {std::pair(R"({"unevaluatedProperties":false,"allOf":[)" + any + "]}", true),
        {R"({"unevaluatedProperties":false,"properties":{"a":)" + any + "}}", false},
        {R"({"properties":{"a":{"unevaluatedProperties":false},"b":)" + any + "}}", false},
        {R"({"unevaluatedProperties":false,"not":{"not":)" + any + "}}", false}}) {
    Fuel fuel;
    Grammar grammar(fuel);
    SchemaReport report;
    ASSERT_TRUE(read_json_schema(schema, {.is_strict = false}, grammar, &report).ok()) << schema;
    EXPECT_EQ(!report.ignored.empty(), is_told) << schema;
  }
}

TEST(GrammarSchema, CountersThatAreTooManyTogetherAreRefused) {
  std::string all;
  for (int i = 1; i <= 300; ++i)
    all += std::string(i > 1 ? "," : "") + "\"p" + std::to_string(i) + R"(":{"type":"string","minLength":)" +
           std::to_string(i) + R"(,"maxLength":)" + std::to_string(16'000'000 + i) + "}";
  bool is_refused = false;
  EXPECT_EQ(of_schema(R"({"type":"object","properties":{)" + all + "}}", is_refused), nullptr);
  EXPECT_FALSE(is_refused) << "it is read, but not compiled";
}

TEST(GrammarSchema, AChainOfReferencesIsNoLoop) {
  const auto refused = [](int n, const std::string& end) {
    std::string all;
    for (int i = 0; i < n; ++i)
      all += "\"s" + std::to_string(i) + R"(":{"$ref":"#/$defs/s)" + std::to_string(i + 1) + "\"},";
    Fuel fuel;
    Grammar grammar(fuel);
    const Result<RuleId> read = read_json_schema(
        R"({"$ref":"#/$defs/s0","$defs":{)" + all + "\"s" + std::to_string(n) + "\":" + end + "}}", {}, grammar);
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_EQ(refused(100, R"({"type":"null"})"), "");
  EXPECT_NE(refused(200, R"({"type":"null"})").find("too long a chain of references"), std::string::npos);
  EXPECT_NE(refused(3, R"({"$ref":"#/$defs/s0"})").find("refers back to itself"), std::string::npos);
}

TEST(GrammarSchema, EachUnenforcedLimitIsReported) {
  Fuel fuel;
  Grammar grammar(fuel);
  SchemaReport report;
  ASSERT_TRUE(read_json_schema(R"({"type":"object","minProperties":500,"maxProperties":900})", {.is_strict = false},
                               grammar, &report)
                  .ok());
  ASSERT_EQ(report.ignored.size(), 2u);
  EXPECT_TRUE(report.ignored[0].starts_with("\"m")) << report.ignored[0];
  EXPECT_NE(report.ignored[0].substr(0, 8), report.ignored[1].substr(0, 8));
  report.ignored.clear();
  ASSERT_TRUE(read_json_schema(R"({"type":"object","minProperties":500,"maxProperties":900,"properties":{"a":{}},
                                   "additionalProperties":false})",
                               {.is_strict = false}, grammar, &report)
                  .ok());
  ASSERT_EQ(report.ignored.size(), 1u);
  EXPECT_TRUE(report.ignored[0].starts_with("\"minP")) << report.ignored[0];
}

// A client's name is not repeated in full again and again.
TEST(GrammarSchema, ReportsAreShort) {
  Fuel fuel;
  Grammar grammar(fuel);
  SchemaReport report;
  const std::string schema = R"({"properties":{")" + std::string(20'000, 'x') + R"(":{"pattern":"(?=a)b","foo":1}}})";
  const Result<RuleId> read = read_json_schema(schema, {.is_strict = false}, grammar, &report);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(report.ignored.size(), 2u);
  for (const std::string& sentence : report.ignored) EXPECT_LT(sentence.size(), 1000u);
}

// Whether two of its alternatives may both hold hangs on members that are of the schema itself.
TEST(GrammarSchema, OneOfMayHaveItselfInTwoAlternatives) {
  bool is_refused = false;
  const auto automaton = of_schema(
      R"({"$ref":"#/$defs/p","$defs":{"p":{"oneOf":[{"type":"string"},
          {"type":"object","required":["not"],"properties":{"not":{"$ref":"#/$defs/p"}}},
          {"type":"object","required":["or"],"properties":{"or":{"$ref":"#/$defs/p"}}}]}}})",
      is_refused);
  ASSERT_FALSE(is_refused);
  for (const char* text : {R"("a")", R"({"not":"a"})", R"({"or":{"not":"a"}})", R"({"not":"a","or":1})"})
    EXPECT_TRUE(accepts(automaton, text)) << text;
  for (const char* text : {R"({"not":1})", R"({"not":"a","or":"b"})", R"({"or":{"not":1}})", "{}"})
    EXPECT_FALSE(accepts(automaton, text)) << text;
}

// An item's digits are in a rule that the body of a counter calls last, and so in the body's name.
TEST(GrammarMasks, OfNumbersInListsThatAreCounted) {
  const auto trie = testing::adversarial("[],1 \n").trie();
  for (const char* schema : {R"({"type":"array","maxItems":32})", R"({"type":"array","minItems":2,"maxItems":200})",
                             R"({"type":"array","items":{"type":"integer"},"maxItems":90})"}) {
    bool is_refused = false;
    TokenMasks masks(of_schema(schema, is_refused), trie, 1 << 20);
    std::vector<uint32_t> mask(trie->mask_words());
    for (const char* text : {"[", "[\n1,", "[1,\n", "[1, 1,", "[1,1,1"}) {
      const StateId state = masks.states().after(kInitial, text);
      masks.fill(state, mask);
      ASSERT_EQ(mask, testing::brute_force(masks, state)) << schema << " after " << text;
    }
  }
}

}  // namespace
}  // namespace ibid::grammar
