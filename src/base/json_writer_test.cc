#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ibid {
namespace {

TEST(JsonWriter, WritesFloatsThatReadBackAsTheSameBits) {
  for (float value : {-0.1f, 1e-30f, -3.4028235e38f, 0.33333334f, 1.0f}) {
    std::string out;
    JsonWriter(out).single(value);
    EXPECT_EQ(std::strtof(out.c_str(), nullptr), value) << out;
  }
}

TEST(JsonWriter, EscapesWhatJsonMayNotHold) {
  std::string out;
  JsonWriter(out).string("a\"b\\c\n\t\r\x01\x7f/é");
  EXPECT_EQ(out, R"("a\"b\\c\n\t\r\u0001\u007f/é")");
  EXPECT_EQ(parse_json(out).value().text(), out);
}

}  // namespace
}  // namespace ibid
