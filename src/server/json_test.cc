#include "server/json.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

std::string place_of_error(std::string_view text, BodyLimits limits = {}) {
  Result<Json> json = parse_json(text, limits);
  return json.ok() ? "no error" : json.error().where;
}
std::string message_of_error(std::string_view text, BodyLimits limits = {}) {
  Result<Json> json = parse_json(text, limits);
  return json.ok() ? "no error" : json.error().message;
}

TEST(Json, GivesBackWhatItRead) {
  const std::string text =
      R"({"a":[1,-2,2.5,true,false,null,"x\u0001é\n\"\\"],"b":{},"c":18446744073709551615,"d":1e+300})";
  Result<Json> json = parse_json(text);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->find("a")->array()->size(), 7u);
  EXPECT_EQ(json->text(),
            R"({"a":[1,-2,2.5,true,false,null,"x\u0001é\n\"\\"],"b":{},"c":18446744073709551615,"d":1e+300})");
}

TEST(Json, DecodesEscapesAndSurrogates) {
  EXPECT_EQ(*parse_json(R"("\ud83d\ude00\u00e9\/")")->string(), "😀é/");
  EXPECT_FALSE(parse_json(R"("\ud83d")").ok());
  EXPECT_FALSE(parse_json(R"("\udc00")").ok());
}

TEST(Json, NamesTheKeyThatStandsTwice) {
  EXPECT_EQ(message_of_error(R"({"a":1,"a":2})"), "the body is refused: the key \"a\" stands there twice");
  EXPECT_EQ(place_of_error(R"({"m":[{},{"role":1,"role":2}]})"), "m[1]");
}

TEST(Json, NamesThePlaceOfWhatIsNoJson) {
  EXPECT_EQ(place_of_error(R"({"temperature":NaN})"), "temperature");
  EXPECT_EQ(place_of_error(R"({"a":{"b":[1,2,Infinity]}})"), "a.b[2]");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xff\"}"), "prompt");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xc0\xaf\"}"), "prompt");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xed\xa0\x80\"}"), "prompt");
  EXPECT_EQ(place_of_error(R"({"max_tokens":1e999})"), "max_tokens");
  EXPECT_EQ(place_of_error(R"({"max_tokens":-1e999})"), "max_tokens");
}

TEST(Json, RefusesEverythingThatIsNotExactlyOneValue) {
  for (const char* text :
       {"",       " ",   "{",    "[",       "[1",    "{\"a\"", "{\"a\":", "{\"a\":1",       "{\"a\":1,}", "[1,]",
        "01",     "+1",  ".5",   "1.",      "1e",    "tru",    "'a'",     "{a:1}",          "\"a",        "\"\\x\"",
        "\"\t\"", "1 2", "{}{}", "// c\n1", "/**/1", "nul",    "-",       "{\xEF\xBB\xBF}", "]",          "}",
        ",",      ":"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
  EXPECT_TRUE(parse_json(" \n\t[1 , 2 ] \r\n").ok());
}

TEST(Json, AByteOrderMarkIsSkippedAtTheBeginningAlone) {
  EXPECT_TRUE(parse_json("\xEF\xBB\xBF{}").ok());
  for (const char* text :
       {"\xEF\xBB\xBF", "\xEF\xBB{}", " \xEF\xBB\xBF{}", "{}\xEF\xBB\xBF", "\xEF\xBB\xBF\xEF\xBB\xBF{}"})
    EXPECT_FALSE(parse_json(text).ok()) << text;
  EXPECT_EQ(message_of_error("\xEF\xBB\xBF{} x"), message_of_error("   {} x"));  // places count from the first byte
}

TEST(Json, BoundsDepthAndSize) {
  EXPECT_TRUE(parse_json(std::string(32, '[') + std::string(32, ']')).ok());
  EXPECT_NE(message_of_error(std::string(33, '[') + std::string(33, ']')).find("nested deeper than 32"),
            std::string::npos);
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).ok());
  EXPECT_TRUE(parse_json("[1,2,3]", {.max_values = 4}).ok());
  EXPECT_NE(message_of_error("[1,2,3,4]", {.max_values = 4}).find("more than 4 values"), std::string::npos);
}

TEST(Json, EveryPrefixOfABodyIsRefusedAndNoneCrashes) {
  const std::string text =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"h\u00e9\ud83d\ude00"}]}],"n":-12.5e3})";
  ASSERT_TRUE(parse_json(text).ok());
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(parse_json(text.substr(0, n)).ok()) << n;
}

TEST(JsonWriter, WritesFloatsThatReadBackAsTheSameBits) {
  for (float value : {-0.1f, 1e-30f, -3.4028235e38f, 0.33333334f, 1.0f}) {
    std::string out;
    JsonWriter(out).single(value);
    EXPECT_EQ(std::strtof(out.c_str(), nullptr), value) << out;
  }
}

}  // namespace
}  // namespace ibid
