// docs/design.md section 5, law 8: where the pieces of K begin, and which tensor parallelism they allow.
#include "kernels/k_pieces.h"

#include <gtest/gtest.h>

#include <numeric>

#include "parity/linear_cases.h"

namespace ibid {
namespace {

using Edges = std::vector<int64_t>;

Edges edges_of(const KPieces& pieces) { return {pieces.edges.begin(), pieces.edges.begin() + pieces.n + 1}; }

// In blocks of `block`.
Edges times(int64_t block, Edges edges) {
  for (int64_t& edge : edges) edge *= block;
  return edges;
}

TEST(KPieces, AreEightFromTwoThousandAndFortyEightInputsOn) {
  EXPECT_EQ(edges_of(pieces_of(DType::kF32, 2047)), (Edges{0, 2047}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_1, 1536)), (Edges{0, 1536}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_1, 2048)), times(256, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_K, 2048)), times(256, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(edges_of(one_piece(14336)), (Edges{0, 14336}));
}

TEST(KPieces, BeginWithABlockAndSomeAreLongerWhereBlocksDoNotDivide) {
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_K, 5632)), times(256, {0, 2, 5, 8, 11, 13, 16, 19, 22}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ6_K, 11008)), times(256, {0, 5, 10, 16, 21, 26, 32, 37, 43}));
  EXPECT_EQ(edges_of(pieces_of(DType::kIQ4_XS, 18944)), times(256, {0, 9, 18, 27, 37, 46, 55, 64, 74}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ8_0, 11008)), times(1376, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(edges_of(pieces_of(DType::kF16, 2050)), (Edges{0, 256, 512, 768, 1024, 1280, 1536, 1792, 2050}));
  EXPECT_EQ(edges_of(pieces_of(DType::kBF16, 2335)), (Edges{0, 288, 576, 864, 1152, 1440, 1728, 2016, 2335}));
}

TEST(KPieces, LieBetweenTheHeadsOfKvGroupsWhereKHoldsEightSuchSteps) {
  // 40 heads of 128 over 10: groups of 512.
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_K, 5120, 512)), times(512, {0, 1, 2, 3, 5, 6, 7, 8, 10}));
  // 40 over 8: groups of 640 are no whole blocks of 256, two of them are, and K holds but four such pairs.
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_K, 5120, 640)), times(256, {0, 2, 5, 7, 10, 12, 15, 17, 20}));
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_0, 5120, 640)), times(640, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  // 28 over 4: 3.5 blocks of 256 a group.
  EXPECT_EQ(edges_of(pieces_of(DType::kQ4_K, 3584, 896)), times(256, {0, 1, 3, 5, 7, 8, 10, 12, 14}));
}

TEST(KPieces, AreNeverEmptyAndBeginWithWholeBlocksWhateverTheSizes) {
  for (DType dtype : kMatrixDTypes) {
    const int64_t block = traits(dtype).block_len, step = std::max<int64_t>(32, block);
    for (int64_t K = KPieces::kMinInputs; K < 12000; K += block == 1 ? 61 : block) {
      for (int64_t group_len : {1, 64, 96, 128, 256, 384, 512, 640, 896, 1024}) {
        if (K % group_len != 0) continue;
        const KPieces pieces = pieces_of(dtype, K, group_len);
        ASSERT_EQ(pieces.n, 8);
        ASSERT_EQ(pieces.edges[0], 0);
        ASSERT_EQ(pieces.edges[8], K);
        for (size_t i = 0; i < 8; ++i) {
          ASSERT_EQ(pieces.edges[i] % step, 0) << traits(dtype).name << " K " << K << " group " << group_len;
          ASSERT_LT(pieces.edges[i], pieces.edges[i + 1]) << traits(dtype).name << " K " << K << " group " << group_len;
        }
        // An even cut between groups that the block allows is never missed.
        const std::vector<int> allowed = allowed_tp(pieces, group_len);
        for (int tp : {2, 4, 8}) {
          if (K % tp == 0 && K / tp % std::lcm(step, group_len) == 0) {
            ASSERT_TRUE(std::find(allowed.begin(), allowed.end(), tp) != allowed.end())
                << traits(dtype).name << " K " << K << " group " << group_len << " TP " << tp;
          }
        }
      }
    }
  }
}

TEST(KPieces, OfARankAreItsOwnInputsFromZero) {
  const KPieces all = pieces_of(DType::kQ4_K, 5632);
  EXPECT_EQ(edges_of(pieces_of_rank(all, 1, 0)), edges_of(all));
  EXPECT_EQ(edges_of(pieces_of_rank(all, 4, 1)), times(256, {0, 3, 6}));
  EXPECT_EQ(edges_of(pieces_of_rank(all, 4, 2)), times(256, {0, 2, 5}));
  EXPECT_EQ(edges_of(pieces_of_rank(all, 8, 7)), times(256, {0, 3}));
}

// The table of docs/decisions/0008-pieces-of-k.md: degrees at which `wo` is cut between KV heads.
TEST(AllowedTp, IsWhereEveryRankGetsWholeKvHeadsOnEdgesOfPieces) {
  struct Row {
    const char* model;
    int64_t n_heads, n_kv_heads, head_len;
    std::vector<int> blocks_of_32, blocks_of_256;
  };
  const Row rows[] = {
      {"SmolLM2 135M", 9, 3, 64, {1}, {1}},  // one piece
      {"Qwen2.5 3B", 16, 2, 128, {1, 2}, {1, 2}},
      {"Llama 3.2 3B", 24, 8, 128, {1, 2, 4, 8}, {1, 2, 4}},
      {"Gemma 3 4B", 8, 4, 256, {1, 2, 4}, {1, 2, 4}},
      {"Qwen2.5 7B", 28, 4, 128, {1, 2, 4}, {1, 2}},
      {"Llama 3.1 8B", 32, 8, 128, {1, 2, 4, 8}, {1, 2, 4, 8}},
      {"Llama 2 13B", 40, 40, 128, {1, 2, 4, 8}, {1, 2, 4, 8}},
      {"Phi 3 medium", 40, 10, 128, {1, 2, 4, 8}, {1, 2, 4, 8}},  // ranks with two and with three KV heads
      {"Qwen2.5 14B", 40, 8, 128, {1, 2, 4, 8}, {1, 2, 4}},
      {"Yi 34B", 56, 8, 128, {1, 2, 4, 8}, {1, 2, 4}},
      {"Llama 3.1 70B", 64, 8, 128, {1, 2, 4, 8}, {1, 2, 4, 8}},
  };
  for (const Row& r : rows) {
    const int64_t K = r.n_heads * r.head_len, group_len = r.n_heads / r.n_kv_heads * r.head_len;
    EXPECT_EQ(allowed_tp(pieces_of(DType::kQ8_0, K, group_len), group_len), r.blocks_of_32) << r.model;
    EXPECT_EQ(allowed_tp(pieces_of(DType::kBF16, K, group_len), group_len), r.blocks_of_32) << r.model;
    if (K % 256 != 0) continue;  // no K-quants of it
    EXPECT_EQ(allowed_tp(pieces_of(DType::kQ4_K, K, group_len), group_len), r.blocks_of_256) << r.model;
  }
  for (int64_t F : {5632, 8960, 11008, 14336, 18944}) {  // w_down is cut anywhere
    EXPECT_EQ(allowed_tp(pieces_of(DType::kQ4_K, F)), (std::vector<int>{1, 2, 4, 8})) << F;
  }
  EXPECT_EQ(allowed_tp(pieces_of(DType::kQ4_K, 1536)), (std::vector<int>{1}));
}

}  // namespace
}  // namespace ibid
