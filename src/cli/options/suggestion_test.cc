#include "cli/options/suggestion.h"

#include <gtest/gtest.h>

#include <vector>

namespace ibid::cli {
namespace {

TEST(Suggestion, IsWhatAFingerMayHaveMissed) {
  const std::vector<std::string> known = {"run", "serve", "models", "quantize", "bench", "--prompt"};
  EXPECT_EQ(nearest("serv", known), "serve");
  EXPECT_EQ(nearest("srve", known), "serve");
  EXPECT_EQ(nearest("esrve", known), "serve");
  EXPECT_EQ(nearest("model", known), "models");
  EXPECT_EQ(nearest("quantise", known), "quantize");
  EXPECT_EQ(nearest("quant", known), "quantize") << "begun";
  EXPECT_EQ(nearest("--promt", known), "--prompt");
  for (const char* other : {"", "x", "chat", "deploy", "zzzzzz"}) EXPECT_EQ(nearest(other, known), "") << other;
  EXPECT_EQ(nearest(std::string(100'000, 'a'), known), "");
}

}  // namespace
}  // namespace ibid::cli
