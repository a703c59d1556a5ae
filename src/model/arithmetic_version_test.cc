// Pins the bits of every shape of model, weight dtype and KV dtype to kArithmeticVersion. Where this fails, something
// changed what models compute: raise the version in the same commit and pin the digest that is printed, or find the
// bug.
#include "kernels/arithmetic_version.h"

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;
using testing::tiny_architectures;
using testing::tiny_dtypes;
using testing::TinyModelOptions;

class Bits {
 public:
  void add(const TinyModelOptions& options, KvTypes kv, int32_t n_tokens = 33) {
    LoadedModel m(options);
    const auto logits = m.logits(some_tokens(n_tokens, m.model->config().vocab_size),
                                 {.kv_dtype = kv, .capacity = (n_tokens + 63) / 64 * 64});
    sha_.add(logits.data(), logits.size() * sizeof(float));
  }
  std::string digest() { return sha_.hex().substr(0, 16); }

 private:
  Sha256 sha_;
};

TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfABit) {
  Bits bits;
  for (std::string_view a : tiny_architectures()) bits.add({.architecture = a}, DType::kF16);
  for (DType dtype : tiny_dtypes()) bits.add({.dtype = dtype}, DType::kF16);
  for (DType kv : {DType::kF32, DType::kBF16}) bits.add({}, kv);
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "14c3cb7cba818be5");
}

TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfABitOfLowBitWeights) {
  Bits bits;
  for (DType dtype : testing::low_bit_dtypes()) {
    bits.add({.dtype = dtype}, DType::kF16);
    bits.add({.dtype = dtype, .n_layers = 1, .long_sums = true}, DType::kF16);
  }
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "0b6e2ed1813d36f5");
}

TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfASumInPieces) {
  Bits bits;
  for (DType dtype : tiny_dtypes()) bits.add({.dtype = dtype, .n_layers = 1, .long_sums = true}, DType::kF16);
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "fea6057ace720637");
}

// Contexts of more than three of attention's pieces, whose merges are a tree.
TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfALongContext) {
  Bits bits;
  bits.add({.architecture = "llama", .n_layers = 1, .context_len = 2048}, DType::kF16, 1300);
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "31aa61c3def631a2");
}

// Keys and values as codes.
TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfCodes) {
  Bits bits;
  for (const std::string_view a : {"llama", "gemma4", "qwen35"}) bits.add({.architecture = a}, DType::kI8, 300);
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "ab660de5850dd49b");
}

TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfCodesOfE4M3) {
  Bits bits;
  for (const std::string_view a : {"llama", "gemma4", "qwen35"}) bits.add({.architecture = a}, KvType::kF8, 300);
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "3e167cb804858999");
}

TEST(ArithmeticVersion, IsRaisedWithEveryChangeOfCodesOfFourBits) {
  Bits bits;
  for (const KvTypes types : {KvTypes(KvType::kI8, KvType::kI4), KvTypes(KvType::kI4)}) {
    for (const std::string_view a : {"llama", "gemma4", "qwen35"}) bits.add({.architecture = a}, types, 300);
  }
  EXPECT_EQ(kArithmeticVersion, 3);
  EXPECT_EQ(bits.digest(), "aa93a681a4370325");
}

}  // namespace
}  // namespace ibid
