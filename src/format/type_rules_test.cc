#include "format/type_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "format/gguf_writer.h"
#include "format/model_file.h"
#include "temp_folder.h"

namespace ibid {
namespace {

MixedMatrix matrix(std::string_view name, bool tied = false) {
  return {.name = name, .n_layers = 16, .heads_per_kv = 4, .row_len = 256, .tied_embedding = tied};
}

TypeRules with(std::initializer_list<const char*> named) {
  TypeRules rules;
  for (const char* text : named) rules.named.push_back(read_named_type(text).value());
  return rules;
}

TEST(TypeRules, WithoutAnyItIsTheMixture) {
  for (const char* name : {"output.weight", "token_embd.weight", "blk.0.attn_v.weight", "blk.9.ffn_down.weight"}) {
    EXPECT_EQ(wished_dtype(TypeRules{}, matrix(name)), wished_dtype(QuantMix::kQ4_K_M, matrix(name))) << name;
  }
}

TEST(TypeRules, TheFirstExpressionThatMatchesAnywhereCounts) {
  const TypeRules rules = with({"attn_(q|k)=q8_0", "blk\\.[0-3]\\.=Q5_K", "attn_v=iq4_nl"});
  EXPECT_EQ(wished_dtype(rules, matrix("blk.2.attn_q.weight")), DType::kQ8_0);
  EXPECT_EQ(wished_dtype(rules, matrix("blk.2.attn_v.weight")), DType::kQ5_K);
  EXPECT_EQ(wished_dtype(rules, matrix("blk.7.attn_v.weight")), DType::kIQ4_NL);
  EXPECT_EQ(wished_dtype(rules, matrix("blk.7.ffn_up.weight")), DType::kQ4_K);
}

TEST(TypeRules, OutputAndEmbeddingGoBeforeExpressions) {
  TypeRules rules = with({".=q3_k"});
  rules.output = DType::kQ8_0;
  EXPECT_EQ(wished_dtype(rules, matrix("output.weight")), DType::kQ8_0);
  EXPECT_EQ(wished_dtype(rules, matrix("token_embd.weight")), DType::kQ3_K);
  EXPECT_EQ(wished_dtype(rules, matrix("token_embd.weight", true)), DType::kQ8_0) << "which is the output too";
  rules.embedding = DType::kF16;
  EXPECT_EQ(wished_dtype(rules, matrix("token_embd.weight", true)), DType::kF16);
}

TEST(TypeRules, PureIsOneTypeAndFloatsStayFloats) {
  TypeRules rules = with({"ffn_up=q8_0"});
  rules.is_pure = true;
  EXPECT_EQ(wished_dtype(rules, matrix("output.weight")), DType::kQ4_K);
  EXPECT_EQ(wished_dtype(rules, matrix("blk.0.ffn_up.weight")), DType::kQ8_0);
  rules.mix = QuantMix::kBF16;
  EXPECT_EQ(wished_dtype(rules, matrix("blk.0.ffn_up.weight")), DType::kBF16);
}

TEST(TypeRules, ATypeThatDoesNotFitIsReplaced) {
  MixedMatrix narrow = matrix("blk.0.ffn_up.weight");
  narrow.row_len = 96;
  EXPECT_EQ(fitting_dtype(with({"ffn_up=q6_k"}), narrow), DType::kQ8_0);
  narrow.row_len = 40;
  EXPECT_EQ(fitting_dtype(with({"ffn_up=q6_k"}), narrow), DType::kF16);
}

TEST(TypeRules, WhatIsNoRuleIsASentence) {
  const auto message = [](std::string_view text) { return read_named_type(text).error().message; };
  EXPECT_NE(message("attn_v").find("expected REGEX=TYPE"), std::string::npos);
  EXPECT_NE(message("=q8_0").find("expected REGEX=TYPE"), std::string::npos);
  EXPECT_NE(message("attn_v=q9").find("unknown type \"q9\""), std::string::npos) << message("attn_v=q9");
  EXPECT_NE(message("attn_v=i32").find("unknown type"), std::string::npos);
  EXPECT_NE(message("(attn_v=q8_0").find("(attn_v"), std::string::npos);
  EXPECT_FALSE(read_named_type(std::string(100'000, '(') + "=q8_0"));
}

// An expression with exponentially many ways to fail ends, and matches nothing.
TEST(TypeRules, StepsOfAnExpressionAreBounded) {
  const std::string name = "blk.0." + std::string(4000, 'a') + ".weight";
  EXPECT_EQ(wished_dtype(with({"(a+a+a+)+b$=q8_0"}), matrix(name)), DType::kQ4_K);
}

class Shards : public ::testing::Test {
 protected:
  TempFolder temp_;
};

TEST_F(Shards, AreReadAsOneModel) {
  std::vector<float> values(40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(values));
  GgufWriter writer;
  writer.set("general.architecture", "llama");
  writer.add_tensor("a", DType::kF32, {8}, bytes.subspan(0, 32));
  writer.add_tensor("b", DType::kF32, {8}, bytes.subspan(32, 32));
  writer.add_tensor("large", DType::kF32, {2, 8}, bytes.subspan(64, 64));
  writer.add_tensor("c", DType::kF32, {8}, bytes.subspan(128, 32));
  EXPECT_EQ(writer.shards_of(64), (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(writer.shards_of(1000), (std::vector<size_t>{0}));
  EXPECT_EQ(writer.shards_of(1), (std::vector<size_t>{0, 1, 2, 3}));
  ASSERT_TRUE(writer.write_shards(temp_.path("m"), writer.shards_of(64)).ok());
  const auto file = ModelFile::open(temp_.path("m-00001-of-00003.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->find("c")->view.row_as<const float>(0)[7], 39.0f);
  EXPECT_EQ(file->find("large")->view.row_as<const float>(1)[0], 24.0f);
}

TEST_F(Shards, AppearTogetherOrNotAtAll) {
  GgufWriter writer;
  const float zero[8] = {};
  writer.add_tensor("a", DType::kF32, {8}, std::as_bytes(std::span(zero)));
  const std::vector<int64_t> dims = {8};
  writer.add_tensor("b", DType::kF32, dims, [](const GgufWriter::Put&) -> Status { return invalid("no bytes"); });
  const Status written = writer.write_shards(temp_.path("m"), writer.shards_of(1));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message, "no bytes");
  EXPECT_TRUE(std::filesystem::is_empty(temp_.path()));
}

}  // namespace
}  // namespace ibid
