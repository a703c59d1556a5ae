// Grammars that try to hang the server or eat its memory: what went wrong in other engines, in every language. Each is
// read and compiled, or refused with a sentence, within 250 ms of CPU and 32 MiB of heap, of which its fuel knows all
// but a small part; the verdict is the same in many threads at once. Masks of what compiles are bounded too.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "hostile/limits.h"
#include "sample/grammar/lazy.h"
#include "sample/grammar/matcher.h"
#include "sample/grammar/source.h"
#include "sample/grammar/testing/random_texts.h"
#include "sample/grammar/testing/vocabularies.h"
#include "sample/grammar/token_masks.h"
#include "source_paths.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "replaced_new.h"  // for peak_bytes
#else
#include "allocation_hook.h"
#endif

namespace ibid::grammar {
namespace {

struct Bomb {
  std::string name;
  Source source;
};

std::string number(size_t n) { return std::to_string(n); }

// `begin` n times, then the middle, then `end` n times.
std::string nested(const std::string& begin, const std::string& middle, const std::string& end, size_t n) {
  return repeated(begin, n) + middle + repeated(end, n);
}

// part(0) part(1) ... part(n - 1), with commas between.
template <typename Part>
std::string listed(size_t n, Part&& part) {
  std::string all;
  for (size_t i = 0; i < n; ++i) {
    all += i > 0 ? "," : "";
    all += part(i);
  }
  return all;
}

std::vector<Bomb> expressions() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& text) {
    bombs.push_back(
        {"expression " + text.substr(0, 40) + " of " + number(text.size()), {Language::kRegex, false, text, {}}});
  };
  for (const char* text : {"foo**",
                           "(a+)+b",
                           "(a*)*",
                           "((a*)*)*",
                           "(a|a)*b",
                           "(a|aa)+$",
                           "(.*)*x",
                           "(.*.*)*x",
                           "(?=a)b",
                           "(?<=a)b",
                           "\\1(a)",
                           "(a)\\1",
                           "a{2,1}",
                           "a{,5}",
                           "*",
                           "+a",
                           "?",
                           "{1}",
                           "(",
                           ")",
                           "[",
                           "[]",
                           "[^]",
                           "[z-a]",
                           "\\",
                           "\\u{110000}",
                           "\\ud800",
                           "[\\ud800-\\udfff]",
                           "(?:",
                           "(?<",
                           "(?<n>a)(?<n>b)",
                           "a||b",
                           "(|)*",
                           "(|a)+",
                           "^^a$$",
                           "a^b",
                           "a$b",
                           "\\p{L}+",
                           "\\p{Nothing}",
                           "\\bword\\b",
                           ".{0,1000000000}",
                           "a{1000000000}",
                           "(a{1000}){1000}",
                           "((a{100}){100}){100}",
                           "(((a{0,99}){0,99}){0,99}){0,99}",
                           "(a?){500}a{500}",
                           "([a-z]{1,99}[0-9]{0,99}){1,99}",
                           "(x+x+)+y",
                           "^(([a-z])+.)+$",
                           "(.{1,500}|.{1,501}){1,50}"})
    add(text);
  for (size_t n : {100, 3000, 60000}) {
    add(nested("(", "a", ")", n));
    add(nested("(", "a", ")*", n));
    add(nested("(?:", "a", "|b)", n));
    add(nested("(", "a", "){2}", n));
    add(repeated("a?", n) + repeated("a", n));
    add(repeated("(a|b)*", n));
    add(repeated("[^a]{1,9}", n));
    add(repeated("a|", n) + "b");
    add(repeated(".*", n));
  }
  return bombs;
}

std::vector<Bomb> schemas() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& text) {
    for (bool is_strict : {false, true}) {
      if (is_strict && text.size() > 1000) break;
      bombs.push_back({"schema " + text.substr(0, 60) + " of " + number(text.size()),
                       {Language::kJsonSchema, is_strict, text, {}}});
    }
  };
  for (const char* text :
       {R"({"x-guidance":{"item_separator":"([ ]{0,1000}[\n]{0,1000}){1000},"}})",
        R"({"x-guidance":{"item_separator":"( ?){20}.{100}( ?){20},( |.){300}"},"type":"array"})",
        R"({"x-guidance":{"key_separator":"(( *)*)*:(( *)*)*"},"type":"object"})",
        R"({"x-guidance":{"whitespace_pattern":"( |\n|\t)*[^a]{1,1000000}"}})",
        R"({"x-guidance":{"whitespace_pattern":"(?: ?){5000}"},"type":"array","items":{"type":"array"}})",
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        "true",
        "false",
        "{\"$ref\":\"#\"}",
        "{\"allOf\":[{\"$ref\":\"#\"}]}",
        "{\"not\":{\"$ref\":\"#\"}}",
        "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
        "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
        "{\"items\":{\"$ref\":\"#\"},\"minItems\":1}",
        "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
        "{\"minLength\":1000000000,\"type\":\"string\"}",
        "{\"maxLength\":1e300}",
        "{\"minItems\":1e9,\"type\":\"array\"}",
        "{\"type\":\"array\",\"maxItems\":1000000000,\"items\":{\"type\":\"array\",\"maxItems\":1000000000}}",
        "{\"minimum\":-1e308,\"maximum\":1e308,\"type\":\"integer\"}",
        "{\"multipleOf\":1e-300}",
        "{\"multipleOf\":0}",
        "{\"multipleOf\":0.000000123,\"minimum\":1e15}",
        "{\"minProperties\":1000000000}",
        "{\"maxProperties\":1000000000}",
        "{\"uniqueItems\":true,\"type\":\"array\"}",
        "{\"pattern\":\"(a+)+b\",\"maxLength\":100000}",
        "{\"pattern\":\"^(.{1,500}|.{1,501}){1,50}$\",\"minLength\":77}",
        "{\"format\":\"uri\",\"maxLength\":99,\"type\":\"string\"}",
        "{\"enum\":[]}",
        "{\"const\":\"\\u0000\"}",
        "{\"const\":\"\\ud800\"}",
        "{\"type\":[]}",
        "{\"type\":\"\"}",
        "{\"patternProperties\":{\"(a*)*\":{}},\"additionalProperties\":false}",
        "{\"contains\":{},\"minContains\":1000000000}"})
    add(text);
  for (size_t n : {10, 100, 3000}) {
    const std::string choice = "{\"type\":\"string\",\"maxLength\":";
    add("{\"enum\":[" + listed(10 * n, [](size_t i) { return "\"value " + number(i * 7919) + "\""; }) + "]}");
    const std::string values =
        "{\"enum\":[" + listed(10 * n, [](size_t i) { return "\"" + number(i * 31) + "\""; }) + "]}";
    add("{\"allOf\":[" + values + "," + values + "]}");
    for (const char* word : {"anyOf", "oneOf", "allOf"}) {
      add("{\"" + std::string(word) + "\":[" + listed(n, [&](size_t i) { return choice + number(i) + "}"; }) + "]}");
      add(nested("{\"" + std::string(word) + "\":[", "{}", "]}", n));
      add(nested("{\"" + std::string(word) + "\":[{\"maxLength\":9},", "{}", "]}", n));
    }
    add("{\"oneOf\":[" +
        listed(n,
               [](size_t i) {
                 return "{\"properties\":{\"p" + number(i) + "\":{\"pattern\":\"a.*" + number(i) + "\"}}}";
               }) +
        "]}");
    add("{\"properties\":{" + listed(n, [](size_t i) { return "\"tool" + number(i) + "\":{\"type\":\"object\"}"; }) +
        "}}");
    add("{\"patternProperties\":{" + listed(n, [](size_t i) { return "\"a.*" + number(i) + "\":{}"; }) + "}}");
    add(nested("{\"items\":", "{}", "}", n));
    add(nested("{\"not\":", "{}", "}", n));
    add(nested("{\"if\":{\"minLength\":3},\"then\":", "{}", "}", n));
    add("{\"$ref\":\"#/$defs/d0\",\"$defs\":{" +
        listed(n,
               [&](size_t i) {
                 const std::string next = "{\"$ref\":\"#/$defs/d" + number((i + 1) % n) + "\"}";
                 return "\"d" + number(i) + "\":{\"properties\":{\"a\":" + next + ",\"b\":" + next + "}}";
               }) +
        "}}");
  }
  return bombs;
}

// What many alternatives have in common is there once for each; what is large is compared again and again; names and
// values are long, or very many.
std::vector<Bomb> copies() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& name, const std::string& text) {
    bombs.push_back({"copies of " + name, {Language::kJsonSchema, false, text, {}}});
  };
  const auto text_of = [](size_t n) { return "\"" + std::string(n, 'x') + "\""; };
  const auto empties = [](size_t n) { return listed(n, [](size_t) { return "{}"; }); };
  const auto names = [](size_t n, const std::string& then) {
    return listed(n, [&](size_t i) { return "\"p" + number(i) + "\"" + then; });
  };
  const std::string alternatives =
      "\"anyOf\":[" + listed(250, [](size_t i) { return "{\"maxLength\":" + number(i) + "}"; }) + "]";
  for (size_t n : {1000, 10'000, 40'000}) {
    const std::string properties = "{\"properties\":{" + names(n, ":{}") + "}";
    add(number(n) + " members", properties + "," + alternatives + "}");
    add(number(n) + " members in allOf", properties + ",\"allOf\":[" + empties(n / 2) + "]}");
    add(number(n) + " members not evaluated", properties + ",\"unevaluatedProperties\":false," + alternatives + "}");
    add(number(n) + " members not so", "{\"not\":" + properties + "}}");
    add(number(n) + " members not required", "{\"not\":{\"required\":[" + names(n, "") + "]}}");
    add(number(n) + " members that depend", "{\"dependentRequired\":{\"a\":[" + names(n, "") + "]}}");
    add(number(n) + " members, at most 250", properties + ",\"maxProperties\":250}");
    add(number(n) + " items not so", "{\"not\":{\"prefixItems\":[" + empties(n) + "]}}");
    add(number(n) + " values", "{\"enum\":[" + listed(n, number) + "]," + alternatives + "}");
    const std::string object = "[{" + names(n, ":1") + "}]";
    add(number(n) + " members of a value", "{\"enum\":" + object + ",\"allOf\":[{\"enum\":" + object + "}]}");
    const std::string zeros = "{\"const\":[" + listed(n, [](size_t) { return "0"; }) + "]}";
    add(number(n) + " items of a value",
        "{\"$defs\":{\"a\":" + zeros + ",\"b\":" + zeros + "},\"allOf\":[" + listed(n / 2, [](size_t i) {
          return "{\"$ref\":\"#/$defs/" + std::string(i % 2 > 0 ? "b" : "a") + "\"}";
        }) + "]}");
    add(number(n) + " letters required", "{\"required\":[" + text_of(10 * n) + "]," + alternatives + "}");
    add(number(n) + " letters excluded", "{\"not\":{\"const\":" + text_of(10 * n) + "}," + alternatives + "}");
    add(number(n) + " types", "{\"type\":[" + listed(n, [](size_t) { return "\"string\""; }) + "]}");
    add(number(n) + " anchors", "{\"$defs\":{" + listed(n / 2, [](size_t i) {
                                  return "\"" + number(i) + "\":{\"$anchor\":\"" + number(i) + "\"}";
                                }) + "}}");
  }
  add("long names", "{\"properties\":{" +
                        listed(500, [&](size_t i) { return "\"" + number(i) + std::string(1000, 'x') + "\":{}"; }) +
                        "}," + alternatives + "}");
  add("a long URI",
      "{\"$id\":\"http://x/" + std::string(20'000, 'a') + "\",\"properties\":{" + names(9000, ":{}") + "}}");
  for (const char* value : {"1", "[]", "[[]]"}) {
    const size_t n = (1 << 20) / (std::string_view(value).size() + 1) - 20;
    add(std::string(value), "{\"default\":[" + listed(n, [&](size_t) { return value; }) + "]}");
    add(std::string(value) + " to choose", "{\"enum\":[" + listed(n, [&](size_t) { return value; }) + "]}");
  }
  add("true to choose", "{\"anyOf\":[" + listed(180'000, [](size_t) { return "true"; }) + "]}");
  return bombs;
}

// Keywords that are harmless alone: under a negation beside others, twice, of unusual numbers, or again and
// again of a kind whose price does not show.
std::vector<Bomb> meetings() {
  std::vector<Bomb> bombs;
  const auto add = [&](const std::string& text, Language language = Language::kJsonSchema) {
    bombs.push_back({"meeting " + text.substr(0, 60) + " of " + number(text.size()), {language, false, text, {}}});
  };
  const auto times = [](size_t n, const std::string& part) { return listed(n, [&](size_t) { return part; }); };
  for (const char* text :
       {R"({"not":{"items":[true],"additionalItems":[]}})", R"({"not":{"items":[true],"additionalItems":[true,true]}})",
        R"({"not":{"prefixItems":[true],"items":[true,true,true]}})", R"({"not":{"items":[],"prefixItems":[true]}})",
        R"({"not":{"additionalItems":[true]}})", R"({"not":{"anyOf":5}})", R"({"not":{"allOf":{}}})",
        R"({"not":{"$ref":5}})", R"({"not":{"properties":[1]}})", R"({"patternProperties":[1]})",
        R"({"not":{"dependentRequired":7}})", R"({"not":{"contains":{"type":"string"},"maxContains":1000000000}})",
        R"({"not":{"contains":{"type":"string"},"maxContains":16777215}})",
        R"({"contains":{"type":"string"},"minContains":4294967294})", R"({"const":5,"not":{"const":1e999999999}})",
        R"({"const":1e-999999999,"not":{"const":1e999999999},"maximum":3})",
        R"({"type":"string","pattern":"^[a-z]{0,300}[0-9]*$","maxLength":99999999})",
        R"({"propertyNames":{"maxLength":2000000}})", R"({"type":"string","not":{"pattern":"\u0000"}})"})
    add(text);
  add(R"({"const":5,"not":{"enum":[)" + listed(10'000, [](size_t i) { return "1e99999" + number(1000 + i); }) + "]}}");
  for (const char* divisor : {"1501", "0.0007", "19999", "1e300"})
    add(R"({"anyOf":[)" + times(4000, "{\"multipleOf\":" + std::string(divisor) + "}") + "]}");
  add(R"({"anyOf":[)" + listed(4000, [](size_t i) { return "{\"multipleOf\":" + number(i + 500) + "}"; }) + "]}");
  add("{" + listed(64, [](size_t i) { return "\"x-" + number(i) + "\":1"; }) + "," + times(90'000, "\"enum\":[]") +
      "}");
  add("{" + times(90'000, "\"type\":\"string\"") + "}");
  add(R"({"$defs":{)" + listed(20'000, [](size_t i) { return "\"p" + number(i) + "\":{}"; }) + R"(},"allOf":[)" +
      times(20'000, R"({"$ref":"#/$defs/p19999"})") + "]}");
  add(R"({"allOf":[)" + times(300, R"({"$ref":"#/parts/p60000"})") + R"(],"parts":{)" +
      listed(60'001, [](size_t i) { return "\"p" + number(i) + "\":{}"; }) + "}}");
  const auto lists = [](size_t n, size_t from) {
    return "{\"enum\":[" +
           listed(n, [&](size_t i) { return "[1,1,1,1,1,1,1,1,1,1,1,1,1,1," + number(from + i) + "]"; }) + "]}";
  };
  add(R"({"allOf":[)" + lists(3000, 0) + "," + lists(3000, 5000) + "]}");
  const auto fractions = [](size_t n, size_t from) {
    return "{\"enum\":[" + listed(n, [&](size_t i) { return number(from + i) + ".5e1"; }) + "]}";
  };
  add(R"({"allOf":[)" + fractions(3000, 0) + "," + fractions(3000, 5000) + "]}");
  const std::string many_lists = lists(2000, 0);  // {"enum":[...]}
  add(R"({"oneOf":[{"const":)" + many_lists.substr(8, many_lists.size() - 9) + R"(},{"uniqueItems":true}]})");
  add(R"({"allOf":[)" + fractions(60'000, 0) + "," + fractions(60'000, 0) + "]}");
  const auto long_numbers = [](const std::string& end) {
    return "{\"enum\":[" + listed(400, [&](size_t i) { return "1" + std::string(1000, '0') + number(i) + end; }) + "]}";
  };
  add(R"({"allOf":[)" + long_numbers("1") + "," + long_numbers("2") + "]}");
  add(R"({"enum":[)" + listed(20'000, number) + R"(],"not":{"enum":[)" +
      listed(20'000, [](size_t i) { return number(i + 30'000); }) + "]}}");
  add(R"({"properties":{")" + std::string(500'000, 'x') + R"(":{"allOf":[)" +
      listed(100, [](size_t i) { return R"({"unknown)" + number(i) + R"(":1,"pattern":"(?=a)b"})"; }) + "]}}}");
  add(R"({"type":"object","properties":{)" +
      listed(300,
             [](size_t i) {
               return "\"p" + number(i) + R"(":{"type":"string","minLength":)" + number(i + 1) + R"(,"maxLength":)" +
                      number(16'000'000 + i) + "}";
             }) +
      "}}");
  // Schemas that ask for the shapes of others while they compare values that are nested deeply.
  const std::string deep = nested("[", "1", "]", 85);
  add(R"({"$ref":"#/$defs/s0","$defs":{)" +
      listed(60,
             [&](size_t i) {
               return "\"s" + number(i) + R"(":{"oneOf":[{"enum":[)" + deep + "]}," +
                      nested("{\"items\":", "{\"$ref\":\"#/$defs/s" + number(i + 1) + "\"}", "}", 85) + "]}";
             }) +
      R"(,"s60":{"type":"null"}}})");
  add(R"({"$ref":"#/$defs/s0","$defs":{)" +
      listed(3000, [](size_t i) { return "\"s" + number(i) + R"(":{"$ref":"#/$defs/s)" + number(i + 1) + "\"}"; }) +
      R"(,"s3000":{"type":"null"}}})");
  std::string points = "[";
  for (size_t i = 0; i < 25'000; ++i)
    points += "\\u{" + std::string(1, "123456789abcdef"[i % 15]) + number(1000 + 2 * (i % 4000)) + "}";
  add("(?:" + repeated(".|", 30'000) + points + "])", Language::kRegex);
  add("^(?:a|b" + repeated("|", 60'000) + ")*a[ab]{13}$", Language::kRegex);
  add("[" + repeated("a-\\pL", 49'999) + "]", Language::kRegex);
  add("[" + repeated("\\pL-a", 49'999) + "]", Language::kRegex);
  add(repeated("a{2}", 50'000) + "{2}", Language::kRegex);
  add("a{3000000000}", Language::kRegex);
  add("root ::= \"" + std::string(400'000, 'a') + "\"\nx ::= " + repeated("\"\" ", 200'000), Language::kGbnf);
  add("%import common.(" + repeated(",", 1 << 19), Language::kLark);
  add(R"({"format":{"type":"triggered_tags","triggers":[)" + times(100'000, "\"x\"") +
          R"(,"y"],"tags":[{"begin":"x","content":{"type":"const_string","value":""},"end":""},)" +
          times(5000, R"({"begin":"y","content":{"type":"const_string","value":""},"end":""})") + "]}}",
      Language::kStructuralTag);
  add("root ::= <[2147483647]>", Language::kGbnf);
  add("root ::= !<[2147483647]>", Language::kGbnf);
  add("root ::= !<[1073741823]> <[1073741823]>", Language::kGbnf);
  return bombs;
}

// As long as a text may be, of one thing again and again.
std::vector<Bomb> repeats() {
  struct Kind {
    Language language;
    const char *begin, *part, *end;
  };
  std::vector<Bomb> bombs;
  for (const Kind& kind : std::initializer_list<Kind>{
           {Language::kRegex, "", "a", ""},
           {Language::kRegex, "", ".", ""},
           {Language::kRegex, "", "\\p{L}", ""},
           {Language::kRegex, "", "[a-za-za-za-z]", ""},
           {Language::kRegex, "", "(a)", ""},
           {Language::kRegex, "(?!x)", "(a|b)*c", ""},
           {Language::kRegex, "", "(a{3}|b){2}", ""},
           {Language::kGbnf, "root ::= ", "\"a\" ", ""},
           {Language::kGbnf, "root ::= ", "[a] ", ""},
           {Language::kGbnf, "root ::= ", "[^a] ", ""},
           {Language::kGbnf, "root ::= ", "[a]? ", ""},
           {Language::kGbnf, "root ::= ", "a ", "\na ::= \"x\""},
           {Language::kGbnf, "root ::= ", "a b|", "[c]\na ::= \"x\"\nb ::= \"y\""},
           {Language::kGbnf, "root ::= ", "<[1]> ", ""},
           {Language::kGbnf, "root ::= \"", "a", "\""},
           {Language::kGbnf, "root ::= ", "([ab]* [a] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [c]) ", ""},
           {Language::kLark, "start: ", "\"a\" ", ""},
           {Language::kLark, "%ignore \" \"\nstart: ", "\"a\" ", ""},
           {Language::kLark, "start: ", "/[a-z]+x/ ", ""},
           {Language::kStructuralTag, "{\"format\":{\"type\":\"json_schema\",\"json_schema\":{\"enum\":[", "1,",
            "1]}}}"},
           {Language::kStructuralTag, "{\"format\":{\"type\":\"sequence\",\"elements\":[", "{\"type\":\"any_text\"},",
            "{\"type\":\"any_text\"}]}}"},
           {Language::kStructuralTag, "{\"format\":{\"type\":\"sequence\",\"elements\":[",
            "{\"type\":\"json_schema\",\"json_schema\":{}},", "{\"type\":\"any_text\"}]}}"}}) {
    for (const size_t size : {size_t{1} << 17, (size_t{1} << 20) - 200}) {
      const size_t n = size / std::string_view(kind.part).size();
      bombs.push_back({"repeats of " + std::string(kind.begin) + kind.part + ", " + number(n),
                       {kind.language, false, kind.begin + repeated(kind.part, n) + kind.end, {}}});
    }
  }
  const auto add = [&](Language language, const std::string& name, const std::string& text) {
    bombs.push_back({name, {language, false, text, {}}});
  };
  std::string rules = "root ::= \"\"\n", empty_rules = rules, lark_rules = "start: \"a\"\n", chain,
              tokens = "start: <[";
  for (size_t i = 0; i < 70'000; ++i) rules += "r" + number(i) + " ::= [a]\n";
  for (size_t i = 0; i < 100'000; ++i) empty_rules += number(i) + "::=\n";
  for (size_t i = 0; i < 70'000; ++i) lark_rules += "r" + number(i) + ": \"a\"\n";
  for (size_t i = 0; i < 150'000; ++i) tokens += number(2 * i) + ",";
  add(Language::kGbnf, "many rules", rules);
  add(Language::kGbnf, "many empty rules", empty_rules);
  add(Language::kLark, "many rules of Lark", lark_rules);
  add(Language::kLark, "a set of many tokens", tokens + "1]> \"a\"");
  for (size_t i = 0; i < 1000; ++i) chain += "r" + number(i) + " ::= r" + number(i + 1) + "\n";
  add(Language::kGbnf, "emptiness from afar",
      "root ::= \"" + std::string(500'000, 'a') + "\" r0\n" + chain + "r1000 ::= \"\"\n");
  std::string tags, triggers;
  for (size_t i = 0; i < 3000; ++i) {
    tags += (i > 0 ? ",{\"begin\":\"<f" : "{\"begin\":\"<f") + number(i) + ">\",\"schema\":{},\"end\":\"</f>\"}";
    triggers += (i > 0 ? ",\"<f" : "\"<f") + number(i) + "\"";
  }
  add(Language::kStructuralTag, "many triggers", "{\"structures\":[" + tags + "],\"triggers\":[" + triggers + "]}");
  return bombs;
}

std::vector<Bomb> grammars() {
  std::vector<Bomb> bombs;
  const auto add = [&](Language language, const std::string& text) {
    bombs.push_back({"grammar " + text.substr(0, 40) + " of " + number(text.size()), {language, false, text, {}}});
  };
  for (const char* text :
       {"root ::= root", "root ::= root root | \"a\"", "root ::= a\na ::= b\nb ::= a", "root ::= \"a\"{1000000000}",
        "root ::= (\"a\"{1000}){1000}", "root ::= [^]", "root ::= [", "root ::=", "::=", "root ::= \"", "root ::= x",
        "root ::= root | root | root | \"\"", "root ::= (\"\"*)*", "root ::= \"\\xFF\"", "root ::= <[99999999999]>",
        "root ::= . root . | root root root | \"\"", "root ::= (.{0,99} root?){0,99}"})
    add(Language::kGbnf, text);
  for (const char* text :
       {"start: start", "start: start start | \"a\"", "start: A\nA: A", "start: /(a+)+b/", "start: \"a\"~1000000000",
        "start: %json {\"$ref\":\"#\"}", "start:", ":", "%ignore", "start: /(?=a)/", "%ignore /(.*)*/\nstart: \"a\"*"})
    add(Language::kLark, text);
  for (const char* text :
       {"{}", "{\"format\":{}}", "[]", "{\"format\":{\"type\":\"any_text\"}}",
        "{\"format\":{\"type\":\"star\",\"content\":{\"type\":\"star\",\"content\":{\"type\":\"any_text\"}}}}"})
    add(Language::kStructuralTag, text);
  for (size_t n : {100, 3000, 60000}) {
    add(Language::kGbnf, "root ::= " + nested("(", "\"a\"", ")", n));
    add(Language::kGbnf, "root ::= " + nested("(", "\"a\"", ")*", n));
    add(Language::kGbnf, "root ::= " + nested("[", "a", "]", n));
    add(Language::kLark, "start: " + nested("(", "\"a\"", ")", n));
    add(Language::kStructuralTag, nested("{\"format\":{\"type\":\"star\",\"content\":", "{}", "}}", n));
    std::string chain = "root ::= r0\n";
    for (size_t i = 0; i < n; ++i) chain += "r" + number(i) + " ::= r" + number(i + 1) + " r" + number(i + 1) + "\n";
    add(Language::kGbnf, chain + "r" + number(n) + " ::= \"a\"\n");
  }
  Source many;
  many.language = Language::kChoices;
  for (size_t i = 0; i < 100000; ++i) many.choices.push_back("choice " + number(i * 7919));
  bombs.push_back({"a hundred thousand choices", many});
  many.choices.assign(2, std::string(1 << 20, 'x'));
  bombs.push_back({"two choices of a mebibyte", many});
  return bombs;
}

// The sentence that a source is refused with; empty: it compiles.
std::string verdict(const Source& source, const TokenTrie& trie, std::shared_ptr<const Automaton>* compiled = nullptr,
                    int64_t* most_held = nullptr) {
  Fuel fuel;
  struct Held {
    const Fuel& fuel;
    int64_t* most;
    ~Held() {
      if (most != nullptr) *most = fuel.most_held();
    }
  } tells{fuel, most_held};
  Grammar grammar(fuel);
  if (Status status = read(source, {}, grammar); !status.ok()) return status.error().message;
  auto automaton = Automaton::compile(grammar, {.bytes = trie.single_bytes()});
  if (!automaton) return automaton.error().message;
  if (compiled != nullptr) *compiled = std::make_shared<const Automaton>(*std::move(automaton));
  return "";
}

void walk(std::shared_ptr<const Automaton> automaton, const std::shared_ptr<const TokenTrie>& trie) {
  TokenMasks masks(std::move(automaton), trie);
  std::vector<uint32_t> mask(trie->mask_words());
  StateId state = kInitial;
  for (int step = 0; step < 8 && state != kDead; ++step) {
    masks.fill(state, mask);
    size_t word = 0;
    while (word < mask.size() && mask[word] == 0) ++word;
    if (word == mask.size()) break;
    state = masks.after(state, TokenId{static_cast<int32_t>(32 * word) + std::countr_zero(mask[word])});
  }
}

std::vector<Bomb> bombs() {
  std::vector<Bomb> all;
  for (auto& kind : {expressions(), schemas(), copies(), meetings(), repeats(), grammars()})
    all.insert(all.end(), kind.begin(), kind.end());
  return all;
}

TEST(HostileGrammar, EachCompilesOrIsRefusedWithASentenceInTimeAndMemory) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  const std::vector<Bomb> all = bombs();
  EXPECT_EQ(all.size(), 438u) << "docs/users/structured.md says how many";
  for (const Bomb& bomb : all) {
    const int64_t before = ibid::testing::live_bytes;
    ibid::testing::peak_bytes = before;
    const double begin = processor_seconds();
    std::shared_ptr<const Automaton> compiled;
    int64_t most_held = 0;
    const std::string says = verdict(bomb.source, *trie, &compiled, &most_held);
    const double judged = processor_seconds();
    if (kMeasured) {
      EXPECT_LT(judged - begin, on_this_machine(0.25, judged - begin)) << bomb.name;
      EXPECT_LT(ibid::testing::peak_bytes - before, 32 << 20) << bomb.name;
      EXPECT_LT(ibid::testing::peak_bytes - before, most_held + kBytesBeside) << bomb.name;
    }
    if (compiled) walk(std::move(compiled), trie);
    if (kMeasured) {
      const double walked = processor_seconds() - judged;
      EXPECT_LT(walked, on_this_machine(0.5, walked)) << bomb.name;
    }
    if (!says.empty()) expect_sentence(invalid(says), bomb.name);
  }
}

// Wherever the memory ends, compilation does, and writes to nothing that is not there.
TEST(HostileGrammar, AGrammarIsJudgedWithWhateverMemoryThereIs) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  std::string text = "root ::= \"" + std::string(4000, 'a') + "\" [^b]{3,9} r?\nr ::= [0-9] | \"(\" r \")\"\nx ::= ";
  for (int i = 0; i < 2000; ++i) text += "\"\" ";
  int n_compiled = 0, n_refused = 0;
  for (int64_t bytes = 1000; bytes < 700'000; bytes += bytes / 100 + 40) {
    Fuel fuel(kCompileSteps, bytes);
    Grammar grammar(fuel);
    const bool is_read = read({Language::kGbnf, false, text, {}}, {}, grammar).ok();
    const bool is_compiled = is_read && Automaton::compile(grammar, {.bytes = trie->single_bytes()}).ok();
    ++(is_compiled ? n_compiled : n_refused);
  }
  EXPECT_GT(n_refused, 100);
  EXPECT_GT(n_compiled, 5);
}

// Parts of bombs and of what the fuzzers found, cut, repeated and put together: of each its fuel knows what it takes.
TEST(HostileGrammar, RandomTextsAreJudgedInTheMemoryThatTheirFuelKnowsOf) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  std::vector<Source> parts;
  for (const Bomb& bomb : bombs())
    if (bomb.source.choices.empty()) parts.push_back(bomb.source);
  constexpr Language kLanguages[] = {Language::kJsonSchema, Language::kRegex, Language::kGbnf, Language::kLark,
                                     Language::kStructuralTag};
  for (const auto& file : std::filesystem::directory_iterator(source_dir() + "/tests/fuzz/corpus/grammar")) {
    std::ifstream in(file.path(), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    if (bytes.empty()) continue;
    parts.push_back({kLanguages[static_cast<uint8_t>(bytes[0]) % std::size(kLanguages)], false, bytes.substr(1), {}});
  }
  std::mt19937 rng(16);
  const auto below = [&](size_t n) { return n == 0 ? 0 : rng() % n; };
  size_t n_compiled = 0;
  for (int i = 0; i < 400; ++i) {
    Source source = parts[below(parts.size())];
    std::string& text = source.text;
    for (size_t n_changes = 1 + below(3); n_changes > 0; --n_changes) {
      const Source& other = parts[below(parts.size())];
      const size_t begin = below(other.text.size()), at = below(text.size() + 1);
      const std::string piece = other.text.substr(begin, 1 + below(60));
      const size_t n = size_t{1} << below(15);
      if (other.language == source.language)
        text.insert(at, repeated(piece, std::min(n, (1 << 20) / std::max<size_t>(piece.size(), 1))));
      if (below(3) == 0 && text.size() < 1 << 19) text += text;
    }
    const int64_t before = ibid::testing::live_bytes;
    ibid::testing::peak_bytes = before;
    int64_t most_held = 0;
    const std::string says = verdict(source, *trie, nullptr, &most_held);
    n_compiled += says.empty();
    if (!says.empty()) expect_sentence(invalid(says), "text " + number(static_cast<size_t>(i)));
    if (kMeasured) {
      const int64_t peak = ibid::testing::peak_bytes - before;
      EXPECT_LT(peak, 32 << 20) << text.substr(0, 100);
      EXPECT_LT(peak, most_held + kBytesBeside) << text.substr(0, 100);
    }
  }
  EXPECT_GT(n_compiled, 20u);
}

// Free text up to triggers, and up to what patterns announce, each before a grammar that is derived from all its
// places.
TEST(HostileGrammar, LazyOnesAreJudgedInTheMemoryThatTheirFuelKnowsOf) {
  const std::string name(100'000, 'n');
  for (const std::string& text :
       {std::string("root ::= [a-z]* root | \"x\""),
        "root ::= " + name + "\n" + name + " ::= [a-z]{0,60} " + name + " | [0-9]",
        "root ::= " + repeated("[a-z]+ ", 3000), "root ::= \"" + std::string(100'000, 'a') + "\""}) {
    for (const auto kind : {Trigger::Kind::kText, Trigger::Kind::kPattern}) {
      for (const std::string& word : {std::string("a"), std::string(256, 'a'), std::string("[a-z]{1,60}"),
                                      repeated("(a|b)", 50), repeated("[ab]", 64)}) {
        const int64_t before = ibid::testing::live_bytes;
        ibid::testing::peak_bytes = before;
        Fuel fuel;
        {
          Grammar grammar(fuel);
          if (Status read_it = read_gbnf(text, {}, grammar); !read_it.ok()) continue;
          Trigger trigger;
          trigger.kind = kind;
          trigger.text = word;
          static_cast<void>(wait_for({trigger}, grammar).ok());
        }
        const int64_t peak = ibid::testing::peak_bytes - before;
        if (kMeasured) {
          EXPECT_LT(peak, fuel.most_held() + kBytesBeside) << text.substr(0, 30) << " after " << word.substr(0, 30);
        }
      }
    }
  }
}

// The memory of a grammar's states, rows and marks is freed with its last user.
TEST(HostileGrammar, IdleGrammarHoldsItsCountedMemory) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  Fuel fuel;
  Grammar grammar(fuel);
  ASSERT_TRUE(read_gbnf("root ::= ([a-z0-9]{1,30} [^a-y]{1,30}){1,200}", {}, grammar).ok());
  const auto together = std::make_shared<GrammarBytes>(size_t{1} << 30);
  const auto compiled =
      std::make_shared<Compiled>(Source{}, compile(grammar, *trie).value(), trie, TokenMasks::kDefaultBytes, together);
  const int64_t before = ibid::testing::live_bytes;
  std::mt19937 random(1);
  for (int user = 0; user < 2; ++user) {
    Matcher matcher(compiled, {}, 1);
    testing::draw_texts(matcher, random, 12, [] {});
    EXPECT_GT(together->taken(), compiled->idle_bytes() + (1 << 20)) << "it has grown";
  }
  EXPECT_LE(together->taken(), compiled->idle_bytes());
  if (kMeasured) {
    EXPECT_LT(ibid::testing::live_bytes - before, static_cast<int64_t>(Compiled::kIdleBytes));
  }
}

TEST(HostileGrammar, VerdictsAreTheSameInSixteenThreads) {
  const auto trie = testing::adversarial("{}\"a1").trie();
  std::vector<Bomb> some;
  for (const Bomb& bomb : bombs())
    if (bomb.source.text.size() < 20'000 && bomb.source.choices.empty()) some.push_back(bomb);
  std::vector<std::string> expected(some.size());
  for (size_t i = 0; i < some.size(); ++i) expected[i] = verdict(some[i].source, *trie);
  std::vector<std::string> said(some.size());
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&] {
      for (size_t i = next++; i < some.size(); i = next++) said[i] = verdict(some[i].source, *trie);
    });
  threads.clear();
  EXPECT_EQ(said, expected);
}

}  // namespace
}  // namespace ibid::grammar
