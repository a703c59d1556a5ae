#include "base/json.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

std::string error_of(std::string_view text, JsonLimits limits = {}) {
  Result<Json> value = parse_json(text, "x.json", limits);
  return value.ok() ? "" : value.error().message;
}

TEST(Json, IsReadAsATreeInTheOrderOfTheText) {
  Json v = parse_json(R"({"b": [1, -2.5, "\u00e9\n", true, null], "a": {"c": 18446744073709551615}})", "x").value();
  ASSERT_EQ(v.object()->size(), 2u);
  EXPECT_EQ((*v.object())[0].first, "b");
  const Json::Array& b = *v.find("b")->array();
  EXPECT_EQ(*b[0].integer(), 1);
  EXPECT_EQ(*b[1].real(), -2.5);
  EXPECT_EQ(*b[2].string(), "é\n");
  EXPECT_TRUE(*b[3].boolean());
  EXPECT_TRUE(b[4].is_null());
  EXPECT_EQ(*v.find("a")->find("c")->large_integer(), UINT64_MAX);
  EXPECT_EQ(v.find("c"), nullptr);
}

TEST(Json, DoublesAreCorrectlyRounded) {
  for (double d : {1e-05, 1e-6, 0.1, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 123456789.123456789}) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", d);
    EXPECT_EQ(*parse_json(text, "x")->real(), d) << text;
  }
}

TEST(Json, SentencesNameThePlace) {
  EXPECT_NE(error_of("{\"a\": 1,\n \"b\": x}").find("x.json: no valid JSON at line 2, column 7"), std::string::npos)
      << error_of("{\"a\": 1,\n \"b\": x}");
  EXPECT_NE(error_of("{\"a\": 1, \"b\": 2, \"a\": 3}").find("\"a\" occurs twice"), std::string::npos);
  EXPECT_EQ(parse_json("[1e-999]", "x")->array()->front().number(), 0) << "too small is zero, as in Python";
  EXPECT_NE(error_of("[1e999]").find("beyond the range"), std::string::npos);
  EXPECT_FALSE(error_of("").empty());
  EXPECT_FALSE(error_of("[1] 2").empty());
  EXPECT_FALSE(error_of("\"\xff\"").empty());
}

TEST(Json, OfEqualKeysTheLastCountsWhereThatIsAsked) {
  const JsonLimits lenient = {.last_key_counts = true};
  const Json v = parse_json(R"({"b": 1, "a": {"c": 2, "c": 3}, "b": 4, "d": 5, "b": 6})", "x", lenient).value();
  EXPECT_EQ(v.text(), R"({"a":{"c":3},"d":5,"b":6})");
}

TEST(Json, DepthAndNumberOfValuesAreLimited) {
  EXPECT_FALSE(error_of(std::string(65, '[') + std::string(65, ']')).empty());
  EXPECT_TRUE(error_of(std::string(64, '[') + std::string(64, ']')).empty());
  EXPECT_NE(error_of("[1,2,3,4]", {.max_values = 4}).find("more than 4 values"), std::string::npos);
}

}  // namespace
}  // namespace ibid
