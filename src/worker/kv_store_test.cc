#include "worker/kv_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace ibid {
namespace {

KvGeometry heads(int32_t n, int32_t len, int32_t owner = kOwnCache) {
  return {.n_kv_heads = n, .key_len = len, .value_len = len, .owner = owner};
}

TEST(KvStore, ErrorNamesTheRequestedAddressSpace) {
  const std::vector<KvLayout> layers(1000, {heads(64, 256), DType::kF32, 1024});
  const int64_t block_bytes = kv_block_bytes(layers);
  const auto n_blocks = static_cast<int32_t>((int64_t{1} << 52) / block_bytes);  // more than a process can address
  const Result<KvStore> kv = KvStore::create(layers, n_blocks);
  ASSERT_FALSE(kv.ok());
  EXPECT_NE(kv.error().message.find(" " + std::to_string(n_blocks * block_bytes >> 20) + " MiB"), std::string::npos)
      << kv.error().message;
}

// Each layer has room in each block for what it keeps and no other; one that reads another's cache has none.
TEST(KvStore, LayersThatDifferLieOneAfterAnotherInEachBlock) {
  const ModelFacts facts = {.layers = {heads(1, 8), heads(4, 64), heads(2, 24), heads(4, 64, 1)}};
  const std::vector<KvLayout> layers = kv_layouts(facts.layers, DType::kF16, 16);
  EXPECT_EQ(KvStore::block_bytes(facts, DType::kF16, 16), 2 * 2 * 16 * (1 * 8 + 4 * 64 + 2 * 24));
  KvStore store = KvStore::create(layers, 10).value();
  const std::span<const PagedKv> kv = store.layers();
  ASSERT_EQ(kv.size(), 4u);
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(kv[l].n_kv_heads, facts.layers[l].n_kv_heads);
    EXPECT_EQ(kv[l].key_len, facts.layers[l].key_len);
    EXPECT_EQ(kv[l].layer_bytes, layers[l].block_bytes());
    EXPECT_EQ(kv[l].block_bytes, store.block_bytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(kv[l].blocks) % 64, 0u);
    const std::byte* free_from = l == 0 ? kv[0].blocks : kv[l - 1].blocks + kv[l - 1].layer_bytes;
    EXPECT_EQ(kv[l].blocks, free_from);
  }
  EXPECT_EQ(kv[2].blocks + kv[2].layer_bytes, kv[0].blocks + store.block_bytes());
  EXPECT_EQ(kv[3].blocks, kv[1].blocks);
  // A copy of a block is one of each layer's part, and of nothing beside it.
  ThreadTeam team(1);
  Stream stream(team);
  for (size_t l = 0; l < 3; ++l) {
    for (int32_t b = 0; b < 10; ++b)
      std::fill_n(kv[l].blocks + b * kv[l].block_bytes, kv[l].layer_bytes, std::byte(16 * l + b));
  }
  const BlockCopy copy = {.from = BlockId{7}, .to = BlockId{2}};
  store.copy(stream, {&copy, 1});
  for (size_t l = 0; l < 3; ++l) {
    for (int64_t block = 0; block < 10; ++block) {
      const std::byte* of_layer = kv[l].blocks + block * kv[l].block_bytes;
      const auto is_its_own = [&](std::byte b) {
        return b == std::byte(16 * l + static_cast<size_t>(block == 2 ? 7 : block));
      };
      EXPECT_TRUE(std::all_of(of_layer, of_layer + kv[l].layer_bytes, is_its_own)) << "layer " << l;
    }
  }
}

// A block's pages, and nothing is changed in those that were there.
// Of a pool that is too small for large pages.
TEST(KvStore, BringsTheMemoryOfABlock) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::vector<KvLayout> layers(3, {heads(4, 64), DType::kF16, 32});  // 32 KiB a block
  const KvStore store = KvStore::create(layers, 16).value();
  const auto n_there = [&](const PagedKv& kv, int32_t block) {
    const auto begin = reinterpret_cast<uintptr_t>(kv.blocks + block * kv.block_bytes) / page * page;
    std::vector<unsigned char> there(static_cast<size_t>(kv.layer_bytes) / page);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), there.size() * page, there.data()), 0);
    return std::ranges::count_if(there, [](unsigned char c) { return (c & 1) != 0; });
  };
  for (const PagedKv& kv : store.owned()) *kv.blocks = std::byte{7};
  ASSERT_EQ(n_there(store.owned()[1], 5), 0);
  store.bring(BlockId{0});
  store.bring(BlockId{5});
  if (n_there(store.owned()[0], 5) == 0) GTEST_SKIP() << "this system brings no pages (Linux 5.14 does)";
  for (const PagedKv& kv : store.owned()) {
    EXPECT_EQ(static_cast<size_t>(n_there(kv, 5)), static_cast<size_t>(kv.layer_bytes) / page);
    EXPECT_EQ(n_there(kv, 7), 0);
    EXPECT_EQ(*kv.blocks, std::byte{7});
  }
}

TEST(KvStore, ABlockGoesToTheHostAndBackInAllItsLayers) {
  const std::vector<KvLayout> layers =
      kv_layouts(std::vector{heads(1, 8), heads(2, 24), heads(1, 8, 0)}, DType::kF16, 8);
  const KvStore store = KvStore::create(layers, 4, cpu_memory(), 3).value();
  ThreadTeam team(1);
  Stream stream(team);
  const auto fill = [&](int32_t block, int32_t seed) {
    for (const PagedKv& kv : store.owned()) {
      for (int64_t i = 0; i < kv.layer_bytes; ++i)
        kv.blocks[block * kv.block_bytes + i] = static_cast<std::byte>(seed + i * 7 + kv.layer_bytes);
    }
  };
  std::vector<std::byte> before(static_cast<size_t>(store.block_bytes())), now = before;
  fill(1, 11);
  fill(2, 99);
  store.export_block(BlockId{1}, before);
  // Down, written over, and up into another block, as one list.
  const std::vector<BlockCopy> copies = {
      {BlockId{1}, BlockId{2}, Tier::kDevice, Tier::kHost},
      {BlockId{2}, BlockId{1}},
      {BlockId{2}, BlockId{3}, Tier::kHost, Tier::kDevice},
  };
  store.copy(stream, copies);
  store.export_block(BlockId{3}, now);
  EXPECT_EQ(now, before);
  store.export_block(BlockId{1}, now);
  EXPECT_NE(now, before);
  store.import_block(BlockId{0}, before);
  store.export_block(BlockId{0}, now);
  EXPECT_EQ(now, before);
}

TEST(KvStore, ALayerThatNoKernelReadsIsRefusedByItsNumber) {
  std::vector<KvLayout> layers = {{heads(2, 64)}, {{.n_kv_heads = 2, .key_len = 64, .value_len = 20}}};
  EXPECT_EQ(KvStore::create(layers, 4).error().message,
            "layer 1 keeps 2 key/value heads of 64 and 20; attention runs multiples of 8, up to 576");
  layers[1] = {heads(2, 260)};
  EXPECT_EQ(KvStore::create(layers, 4).error().message,
            "layer 1 keeps 2 key/value heads of 260; attention runs multiples of 8, up to 576");
  layers[1] = {{.kind = KvKind::kLatent, .n_kv_heads = 1, .key_len = 64, .value_len = 32}, KvType::kI8};
  EXPECT_EQ(KvStore::create(layers, 4).error().message,
            "layer 1 keeps latent rows as I8, which are keys and values at once; expected f32, f16 or bf16 for this "
            "model");
}

}  // namespace
}  // namespace ibid
