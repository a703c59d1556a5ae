#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace ibid {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return invalid("an odd number has no half", "n");
  return n / 2;
}

Result<int> quarter(int n) {
  ASSIGN_OR_RETURN(int h, half(n));
  return half(h);
}

TEST(Result, CarriesAValueOrASentence) {
  EXPECT_EQ(quarter(12).value(), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().message, "an odd number has no half");
  EXPECT_EQ(quarter(6).error().where, "n");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  std::unique_ptr<int> p = *std::move(r);
  EXPECT_EQ(*p, 7);
}

}  // namespace
}  // namespace ibid
