#include "format/quant_mix.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

DType of(QuantMix mix, std::string_view name, int64_t row_len = 4096, bool tied = false) {
  return mixed_dtype(mix, {name, 32, 4, row_len, tied});
}

TEST(QuantMix, FeltMatricesGetMoreBits) {
  const QuantMix m = QuantMix::kQ4_K_M;
  EXPECT_EQ(of(m, "blk.0.attn_q.weight"), DType::kQ4_K);
  EXPECT_EQ(of(m, "blk.0.attn_v.weight"), DType::kQ6_K);
  EXPECT_EQ(of(m, "blk.4.attn_v.weight"), DType::kQ4_K);
  EXPECT_EQ(of(m, "blk.6.ffn_down.weight"), DType::kQ6_K);
  EXPECT_EQ(of(m, "blk.31.ffn_down.weight"), DType::kQ6_K);
  EXPECT_EQ(of(m, "output.weight"), DType::kQ6_K);
  EXPECT_EQ(of(m, "token_embd.weight"), DType::kQ4_K);
  EXPECT_EQ(of(m, "token_embd.weight", 4096, true), DType::kQ6_K) << "it is the output too";
  EXPECT_EQ(of(QuantMix::kQ4_K_S, "blk.3.ffn_down.weight"), DType::kQ5_K);
  EXPECT_EQ(of(QuantMix::kQ4_K_S, "blk.4.ffn_down.weight"), DType::kQ4_K);
  EXPECT_EQ(of(QuantMix::kQ2_K, "blk.9.attn_v.weight"), DType::kQ4_K);
  EXPECT_EQ(of(QuantMix::kQ8_0, "output.weight"), DType::kQ8_0);
  EXPECT_EQ(of(QuantMix::kF16, "output.weight"), DType::kF16);
}

TEST(QuantMix, MixturesOfFewBitsKeepMoreWhereItIsFelt) {
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "blk.9.ffn_up.weight"), DType::kIQ2_XXS);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "blk.3.ffn_down.weight"), DType::kQ2_K);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "blk.4.ffn_down.weight"), DType::kIQ2_XXS);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "blk.9.attn_v.weight"), DType::kQ4_K);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "token_embd.weight"), DType::kQ2_K);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "output.weight"), DType::kQ5_K);
  EXPECT_EQ(of(QuantMix::kIQ2_S, "blk.9.ffn_up.weight"), DType::kIQ2_XS);
  EXPECT_EQ(of(QuantMix::kIQ2_M, "blk.9.ffn_up.weight"), DType::kIQ2_S);
  EXPECT_EQ(of(QuantMix::kIQ2_M, "blk.9.attn_output.weight"), DType::kIQ3_S);
  EXPECT_EQ(of(QuantMix::kIQ3_XXS, "blk.9.attn_q.weight"), DType::kIQ2_S);
  EXPECT_EQ(of(QuantMix::kIQ3_XXS, "token_embd.weight", 4096, true), DType::kQ5_K) << "it is the output too";
  EXPECT_EQ(of(QuantMix::kIQ3_XS, "blk.3.ffn_up_exps.weight"), DType::kIQ3_S);
  EXPECT_EQ(of(QuantMix::kIQ3_XS, "blk.4.ffn_up_exps.weight"), DType::kIQ3_XXS);
  EXPECT_EQ(of(QuantMix::kIQ3_M, "blk.9.attn_qkv.weight"), DType::kQ4_K);
  EXPECT_EQ(of(QuantMix::kTQ2_0, "token_embd.weight"), DType::kQ4_K);
  EXPECT_EQ(of(QuantMix::kNVFP4, "output.weight"), DType::kQ6_K);
  EXPECT_EQ(of(QuantMix::kIQ2_XXS, "blk.9.ffn_up.weight", 576), DType::kIQ4_NL);
}

TEST(QuantMix, ExpertsHaveTheTypesOfTheMatricesInWhosePlaceTheyAre) {
  for (const QuantMix mix : {QuantMix::kQ4_K_M, QuantMix::kQ2_K, QuantMix::kIQ4_XS}) {
    for (const char* layer : {"blk.0.", "blk.9.", "blk.30."}) {
      for (const char* experts : {"_exps.weight", "_shexp.weight"}) {
        for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
          EXPECT_EQ(of(mix, std::string(layer) + name + experts), of(mix, std::string(layer) + name + ".weight"));
        }
      }
    }
  }
}

TEST(QuantMix, RowsThatBlocksDoNotFillGetANeighbourOfAsManyBits) {
  EXPECT_EQ(of(QuantMix::kQ4_K_M, "blk.0.attn_q.weight", 576), DType::kQ5_0);
  EXPECT_EQ(of(QuantMix::kQ5_K_M, "blk.0.attn_q.weight", 576), DType::kQ5_1);
  EXPECT_EQ(of(QuantMix::kQ6_K, "blk.0.attn_q.weight", 576), DType::kQ8_0);
  EXPECT_EQ(of(QuantMix::kQ2_K, "blk.0.attn_q.weight", 576), DType::kIQ4_NL);
  EXPECT_EQ(of(QuantMix::kQ4_0, "blk.0.attn_q.weight", 40), DType::kF16);
}

TEST(QuantMix, EveryNameIsReadBackAndOthersAreNot) {
  const std::string names = quant_mix_names();
  int n = 0;
  for (size_t at = 0; at < names.size(); ++n) {
    const size_t end = std::min(names.size(), names.find(", ", at));
    EXPECT_EQ(static_cast<int>(*quant_mix_from_name(names.substr(at, end - at))), n);
    at = end + 2;
  }
  EXPECT_EQ(n, static_cast<int>(QuantMix::kQ2_0) + 1);
  EXPECT_EQ(quant_mix_from_name("Q4_K"), QuantMix::kQ4_K_M);
  EXPECT_FALSE(quant_mix_from_name("q4_k_xl"));
}

}  // namespace
}  // namespace ibid
