#include "server/fields/parse_body.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

std::string place_of_error(std::string_view text, const JsonLimits& limits = kBodyLimits) {
  Result<Json> json = parse_body(text, limits);
  return json.ok() ? "no error" : json.error().where;
}
std::string message_of_error(std::string_view text, const JsonLimits& limits = kBodyLimits) {
  Result<Json> json = parse_body(text, limits);
  return json.ok() ? "no error" : json.error().message;
}

TEST(ParseBody, GivesBackWhatItRead) {
  const std::string text =
      R"({"a":[1,-2,2.5,true,false,null,"x\u0001é\n\"\\"],"b":{},"c":18446744073709551615,"d":1e+300})";
  Result<Json> json = parse_body(text);
  ASSERT_TRUE(json.ok()) << json.error().message;
  EXPECT_EQ(json->find("a")->array()->size(), 7u);
  EXPECT_EQ(json->text(),
            R"({"a":[1,-2,2.5,true,false,null,"x\u0001é\n\"\\"],"b":{},"c":18446744073709551615,"d":1e+300})");
}

TEST(ParseBody, DecodesEscapesAndSurrogates) {
  EXPECT_EQ(*parse_body(R"("\ud83d\ude00\u00e9\/")")->string(), "😀é/");
  EXPECT_FALSE(parse_body(R"("\ud83d")").ok());
  EXPECT_FALSE(parse_body(R"("\udc00")").ok());
}

TEST(ParseBody, NamesTheKeyThatStandsTwice) {
  EXPECT_EQ(message_of_error(R"({"a":1,"a":2})"), "the body is refused: the key \"a\" stands there twice");
  EXPECT_EQ(place_of_error(R"({"m":[{},{"role":1,"role":2}]})"), "m[1]");
}

TEST(ParseBody, NamesThePlaceOfWhatIsNoJson) {
  EXPECT_EQ(place_of_error(R"({"temperature":NaN})"), "temperature");
  EXPECT_EQ(place_of_error(R"({"a":{"b":[1,2,Infinity]}})"), "a.b[2]");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xff\"}"), "prompt");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xc0\xaf\"}"), "prompt");
  EXPECT_EQ(place_of_error("{\"prompt\":\"\xed\xa0\x80\"}"), "prompt");
  EXPECT_EQ(place_of_error(R"({"max_tokens":1e999})"), "max_tokens");
  EXPECT_EQ(place_of_error(R"({"max_tokens":-1e999})"), "max_tokens");
}

TEST(ParseBody, NamesAPlaceInUtf8WhereverALongKeyIsCut) {
  EXPECT_EQ(place_of_error("{\"" + std::string(63, 'k') + "\u00e9\":x}"), std::string(63, 'k') + "...");
  EXPECT_EQ(place_of_error("{\"a\\nb\":x}"), "a\\nb");
}

TEST(ParseBody, BoundsTheKeysOfAnObject) {
  std::string text = "{";
  for (int i = 0; i < 10'000; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  EXPECT_TRUE(parse_body(text + "}").ok());
  EXPECT_EQ(message_of_error(text + ",\"x\":1}"), "the body is refused: an object has more than 10000 keys");
}

TEST(ParseBody, NumbersAreTheNearestDouble) {
  EXPECT_EQ(parse_body("0.30000000000000004")->number(), 0.1 + 0.2);
  EXPECT_EQ(parse_body("123456789.12345678901234567890")->number(), 123456789.12345678901234567890);
  EXPECT_EQ(parse_body("1e-400")->number(), 0);
  EXPECT_EQ(parse_body("-1e-400")->text(), "-0");
}

TEST(ParseBody, RefusesEverythingThatIsNotExactlyOneValue) {
  for (const char* text :
       {"",       " ",   "{",    "[",       "[1",    "{\"a\"", "{\"a\":", "{\"a\":1",       "{\"a\":1,}", "[1,]",
        "01",     "+1",  ".5",   "1.",      "1e",    "tru",    "'a'",     "{a:1}",          "\"a",        "\"\\x\"",
        "\"\t\"", "1 2", "{}{}", "// c\n1", "/**/1", "nul",    "-",       "{\xEF\xBB\xBF}", "]",          "}",
        ",",      ":"}) {
    EXPECT_FALSE(parse_body(text).ok()) << text;
  }
  EXPECT_TRUE(parse_body(" \n\t[1 , 2 ] \r\n").ok());
}

TEST(ParseBody, AByteOrderMarkIsSkippedAtTheBeginningAlone) {
  EXPECT_TRUE(parse_body("\xEF\xBB\xBF{}").ok());
  for (const char* text :
       {"\xEF\xBB\xBF", "\xEF\xBB{}", " \xEF\xBB\xBF{}", "{}\xEF\xBB\xBF", "\xEF\xBB\xBF\xEF\xBB\xBF{}"})
    EXPECT_FALSE(parse_body(text).ok()) << text;
  EXPECT_EQ(message_of_error("\xEF\xBB\xBF{} x"), message_of_error("   {} x"));  // places count from the first byte
}

TEST(ParseBody, BoundsDepthAndSize) {
  EXPECT_TRUE(parse_body(std::string(32, '[') + std::string(32, ']')).ok());
  EXPECT_NE(message_of_error(std::string(33, '[') + std::string(33, ']')).find("nested deeper than 32"),
            std::string::npos);
  EXPECT_FALSE(parse_body(std::string(1'000'000, '[')).ok());
  EXPECT_TRUE(parse_body("[1,2,3]", {.max_values = 4}).ok());
  EXPECT_NE(message_of_error("[1,2,3,4]", {.max_values = 4}).find("more than 4 values"), std::string::npos);
}

TEST(ParseBody, EveryPrefixOfABodyIsRefusedAndNoneCrashes) {
  const std::string text =
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"h\u00e9\ud83d\ude00"}]}],"n":-12.5e3})";
  ASSERT_TRUE(parse_body(text).ok());
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(parse_body(text.substr(0, n)).ok()) << n;
}

}  // namespace
}  // namespace ibid
