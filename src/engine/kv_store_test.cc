#include "engine/kv_store.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

TEST(KvStore, SaysHowMuchAddressSpaceItWanted) {
  const ModelFacts facts = {.n_layers = 1000, .n_kv_heads = 64, .head_len = 256};
  const int64_t block_bytes = KvStore::block_bytes(facts, DType::kF32, 1024);
  const auto n_blocks = static_cast<int32_t>((int64_t{1} << 52) / block_bytes);  // more than a process can address
  const Result<KvStore> kv = KvStore::create(facts, DType::kF32, 1024, n_blocks);
  ASSERT_FALSE(kv.ok());
  EXPECT_NE(kv.error().message.find(" " + std::to_string(n_blocks * block_bytes >> 20) + " MiB"), std::string::npos)
      << kv.error().message;
}

}  // namespace
}  // namespace ibid
