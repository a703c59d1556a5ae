#include "base/sha256.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

TEST(Sha256, AgreesWithTheStandardsExamples) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  Sha256 pieces;
  pieces.add("a", 1);
  pieces.add("", 0);
  pieces.add("bc", 2);
  EXPECT_EQ(pieces.hex(), sha256_hex("abc"));
}

}  // namespace
}  // namespace ibid
