#include "model/kv_arithmetic.h"

#include <gtest/gtest.h>

#include "model/config.h"

namespace ibid {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

KvShape gqa(int64_t layers, int64_t kv_heads, int64_t head_len, int64_t bits = 16) {
  return {.n_layers = layers, .n_kv_heads = kv_heads, .head_len = head_len, .bits = bits};
}

TEST(KvArithmetic, Llama2Of7BillionTakesTwoGibibytesAt4096Tokens) {
  EXPECT_EQ(gqa(32, 32, 128).bytes(4096), 2147483648);
  EXPECT_EQ(gqa(32, 32, 128).bytes(4096), 2 * kGiB);
}

TEST(KvArithmetic, SeventyBillionWithAllHeadsTakesTenGibibytes) {
  EXPECT_EQ(gqa(80, 64, 128).bytes(4096), 10737418240);
  EXPECT_EQ(gqa(80, 64, 128).bytes_per_token_layer(), 32768);
}

TEST(KvArithmetic, SeventyBillionWithEightKvHeadsTakesAnEighth) {
  EXPECT_EQ(gqa(80, 8, 128).bytes(4096), 1342177280);
  EXPECT_EQ(gqa(80, 8, 128).bytes_per_token_layer(), 4096);
  EXPECT_EQ(gqa(80, 64, 128).bytes(4096), 8 * gqa(80, 8, 128).bytes(4096));
}

TEST(KvArithmetic, OneKvHeadTakesASixtyFourth) {
  EXPECT_EQ(gqa(80, 1, 128).bytes(4096), 167772160);
  EXPECT_EQ(gqa(80, 1, 128).bytes_per_token_layer(), 512);
}

TEST(KvArithmetic, LatentAttentionCountsOneVectorWithoutDoubling) {
  const KvShape mla{.n_layers = 60, .latent_len = 512 + 64};
  EXPECT_EQ(mla.bytes(4096), 283115520);
  EXPECT_EQ(mla.bytes_per_token_layer(), 1152);
  // At 128 K tokens 8.44 GiB, not the "about 3 GB" that is often quoted.
  EXPECT_NEAR(static_cast<double>(mla.bytes(131072)) / kGiB, 8.44, 0.01);
}

TEST(KvArithmetic, FourBitsTakeAQuarterPlusTheirScales) {
  KvShape int4 = gqa(80, 64, 128, 4);
  EXPECT_EQ(int4.bytes_per_token_layer(), 8192);
  EXPECT_EQ(int4.bytes(4096), 5 * kGiB / 2);
  int4.group_len = 32;
  int4.group_bytes = 4;
  EXPECT_EQ(int4.scale_bytes(4096), 80 * 4096 * (2 * 64 * 128 / 32) * int64_t{4});
  EXPECT_EQ(gqa(80, 64, 128).scale_bytes(4096), 0);
}

TEST(KvArithmetic, ABatchOf32At32768TokensTakes320Gibibytes) {
  EXPECT_EQ(gqa(80, 8, 128).bytes(32768, 32), 343597383680);
  EXPECT_EQ(gqa(80, 8, 128).bytes(32768, 32), 320 * kGiB);
}

TEST(KvArithmetic, ABatchOfEightAt8192TokensTakesEightGibibytes) {
  EXPECT_EQ(gqa(32, 8, 128).bytes(8192, 8), 8589934592);
  EXPECT_EQ(gqa(32, 32, 128).bytes(8192, 8), 34359738368);
  EXPECT_EQ(gqa(32, 32, 128).bytes(8192, 8) / gqa(32, 8, 128).bytes(8192, 8), 32 / 8);
}

TEST(KvArithmetic, SeventyBillionAt131072TokensTakesFortyGibibytes) {
  EXPECT_EQ(gqa(80, 8, 128).bytes_per_token(), 327680);
  EXPECT_EQ(gqa(80, 8, 128).bytes(131072), 42949672960);
  EXPECT_EQ(gqa(80, 8, 128).bytes(131072), 40 * kGiB);
  EXPECT_EQ(gqa(80, 64, 128).bytes(131072), 320 * kGiB);
}

TEST(KvArithmetic, LatentElementsAgainstGroupedAndAllHeads) {
  const KvShape mla{.n_layers = 1, .latent_len = 576};
  const KvShape grouped = gqa(1, 8, 128), all = gqa(1, 64, 128);
  EXPECT_EQ(mla.elements_per_token_layer(), 576);
  EXPECT_EQ(grouped.elements_per_token_layer(), 2048);
  EXPECT_EQ(all.elements_per_token_layer(), 16384);
  EXPECT_NEAR(2048.0 / 576, 3.56, 0.005);
  EXPECT_NEAR(16384.0 / 576, 28.4, 0.05);
  // d_c = 4 D with H = 128 saves H / 2; DeepSeek-V3: 32,768 elements against 512, or 576 with the rotary key.
  EXPECT_EQ(gqa(1, 128, 128).elements_per_token_layer() / (4 * 128), 128 / 2);
  EXPECT_EQ(gqa(1, 128, 128).elements_per_token_layer() / 512, 64);
  EXPECT_NEAR(static_cast<double>(gqa(1, 128, 128).elements_per_token_layer()) / 576, 56.9, 0.05);
}

TEST(KvArithmetic, WrongVariantsGiveOtherNumbers) {
  const int64_t right = gqa(80, 8, 128).bytes(4096);
  EXPECT_NE(gqa(80, 64, 128).bytes(4096), right) << "query heads instead of key/value heads";
  EXPECT_NE(right / 2, right) << "K without V";
  EXPECT_NE(gqa(80, 8, 128).bytes(8192), right) << "the longest length instead of the current one";
}

TEST(KvArithmetic, PagedBytesRoundUpToWholeBlocks) {
  const KvShape shape = gqa(2, 2, 8);
  EXPECT_EQ(shape.paged_bytes(1, 3, 16), shape.bytes(16, 3));
  EXPECT_EQ(shape.paged_bytes(16, 3, 16), shape.bytes(16, 3));
  EXPECT_EQ(shape.paged_bytes(17, 3, 16), shape.bytes(32, 3));
}

// The arithmetic of published shapes and the sizes of the live pool are one.
TEST(KvArithmetic, AShapesBytesAreThoseOfItsLayouts) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int32_t block_len : {1, 8, 16, 32}) {
      const KvGeometry layer = {.n_kv_heads = 3, .key_len = 64, .value_len = 64};
      const std::vector<KvLayout> layers = kv_layouts(std::vector<KvGeometry>(30, layer), dtype, block_len);
      const KvShape shape = gqa(30, 3, 64, 8 * traits(dtype).block_bytes);
      EXPECT_EQ(kv_block_bytes(layers), shape.bytes(block_len));
      EXPECT_EQ(5 * kv_block_bytes(layers), shape.paged_bytes(4 * block_len + 1, 1, block_len));
      EXPECT_EQ(kv_pool_bytes(layers, 7), shape.bytes(7 * block_len));
    }
  }
}

TEST(KvArithmetic, LayersThatDifferAddUpAndBorrowedOnesAreFree) {
  const auto layer = [](int32_t heads, int32_t len, int32_t owner = kOwnCache) {
    return KvGeometry{.n_kv_heads = heads, .key_len = len, .value_len = len, .owner = owner};
  };
  const std::vector<KvGeometry> layers = {layer(8, 128), layer(2, 64), layer(8, 128, 0)};
  EXPECT_EQ(kv_block_bytes(kv_layouts(layers, DType::kF16, 16)), gqa(1, 8, 128).bytes(16) + gqa(1, 2, 64).bytes(16));
}

TEST(KvLayout, NameIdentifiesTheByteLayout) {
  const KvGeometry layer = {.n_kv_heads = 3, .key_len = 64, .value_len = 64};
  EXPECT_EQ((KvLayout{layer, DType::kF16, 16}.name()), "K:D.B,B.D F16 B16 K3 D64");
  EXPECT_EQ((KvLayout{{.n_kv_heads = 8, .key_len = 192, .value_len = 128}, DType::kBF16, 32}.name()),
            "K:D.B,B.D BF16 B32 K8 D192,128");
}

TEST(KvArithmetic, PrintsBothUnits) { EXPECT_EQ(format_gib_and_gb(1342177280), "1.25 GiB (1.34 GB)"); }

// K and V projections of one layer: 2 C^2 for all heads, 2 C D for one, 2 G C D for G groups.
TEST(ModelConfig, KvProjectionsShrinkWithTheirHeads) {
  ModelConfig c{.n_layers = 1, .width = 8192};
  LayerConfig& layer = c.layers.emplace_back(LayerConfig{.n_heads = 64, .n_kv_heads = 64});
  layer.set_head_len(128);
  EXPECT_EQ(c.kv_projection_parameters(), 2 * c.width * c.width);
  layer.n_kv_heads = 1;
  EXPECT_EQ(c.kv_projection_parameters(), 2 * c.width * layer.key_len);
  layer.n_kv_heads = 8;
  EXPECT_EQ(c.kv_projection_parameters(), 2 * 8 * c.width * layer.key_len);
  EXPECT_EQ(2 * c.width * c.width / c.kv_projection_parameters(), 8);
}

}  // namespace
}  // namespace ibid
