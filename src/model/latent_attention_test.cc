// Latent attention: what is cached, what a step computes, the two forms of its up-projections in files, and the
// architectures' scales and routers.
#include "model/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "model/kv_arithmetic.h"
#include "model/testing/loaded_model.h"
#include "model/testing/parts.h"
#include "tensor/dequantise.h"
#include "tensor/quantise.h"

namespace ibid {
namespace {

using testing::LoadedModel;

ModelFile::Parts latent_parts(DType dtype = DType::kF32, int64_t n_layers = 2) {
  return testing::tiny_parts({.architecture = "deepseek2", .dtype = dtype, .n_layers = n_layers});
}

std::vector<float> logits_of(ModelFile::Parts parts) {
  LoadedModel m(std::make_shared<ModelFile>(std::move(parts)));
  if (m.model == nullptr) return {};
  return m.logits(testing::some_tokens(50, m.model->config().vocab_size), {.kv_dtype = DType::kF32});
}

// Rows M1 and M4: a token keeps one row a layer, whatever the number of heads, and what turns in it once.
TEST(LatentAttention, KeepsARowForEachTokenAndLayer) {
  LoadedModel m(testing::TinyModelOptions{.architecture = "deepseek2"});
  const LayerConfig& layer = m.model->config().layers.front();
  EXPECT_EQ(layer.n_heads, 6);
  const std::vector<KvLayout> layouts = kv_layouts(m.model->kv_geometries(), DType::kF16, 16);
  EXPECT_EQ(kv_pool_bytes(layouts, 7), 7 * 16 * m.model->config().n_layers * (64 + 16) * 2);
  // DeepSeek-V3's.
  const KvGeometry row = {.kind = KvKind::kLatent, .n_kv_heads = 1, .key_len = 576, .value_len = 512};
  EXPECT_EQ(kv_block_bytes(kv_layouts(std::vector<KvGeometry>(61, row), DType::kF16, 1)), 61 * 576 * 2);
  EXPECT_EQ((KvShape{.n_layers = 61, .latent_len = 576}.bytes_per_token()), 61 * 576 * 2);
}

// Row M5: with a rotation between a head's query and its up-projection of keys, the product of both projections would
// have to change with the distance. One that was made once is right where query and key have the same position.
TEST(LatentAttention, CannotAbsorbWhatTurns) {
  ThreadTeam team(1);
  Stream s(team);
  constexpr int kLen = 32;
  std::vector<double> frequency;
  for (int i = 0; i < kLen / 2; ++i) frequency.push_back(math::pow(10000.0, -static_cast<double>(i) / (kLen / 2)));
  const ops::Rope rope = {.interleaved = true, .n_pairs = kLen / 2, .frequency = frequency.data()};
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (int n = 0; n < 20; ++n) {
    std::vector<float> x(2 * kLen), angles(2 * kLen);
    for (float& v : x) v = normal(random);
    double folded = 0;
    for (int i = 0; i < kLen; ++i) folded += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(kLen + i)];
    for (const int32_t distance : {0, 1, 7, 300}) {
      std::vector<float> turned = x;
      const TensorView view(turned.data(), DType::kF32, {2, kLen});
      const TensorView cos_sin(angles.data(), DType::kF32, {2, kLen});
      const std::vector<int32_t> positions = {40 + distance, 40};
      ops::rope_angles(s, cos_sin, rope, positions);
      ops::rope(s, view, kLen, rope, cos_sin);
      double score = 0;
      for (size_t i = 0; i < kLen; ++i) score += double{turned[i]} * turned[kLen + i];
      if (distance == 0) {
        EXPECT_NEAR(score, folded, 1e-4);
      } else {
        EXPECT_GT(std::fabs(score - folded), 1e-3) << distance;
      }
    }
  }
}

// Files of before April 2025 have both up-projections of a layer in one tensor, and the heads' lengths.
ModelFile::Parts with_one_tensor(ModelFile::Parts parts, int64_t plain, int64_t turned, int64_t n_out, int64_t H) {
  std::vector<TensorInfo> kept;
  for (const TensorInfo& t : parts.tensors) {
    if (t.name.ends_with("attn_k_b.weight")) continue;
    if (!t.name.ends_with("attn_v_b.weight")) {
      kept.push_back(t);
      continue;
    }
    const std::string of = t.name.substr(0, t.name.size() - 10);
    const TensorView v = t.view;
    const auto* k = std::ranges::find(parts.tensors, of + "k_b.weight", &TensorInfo::name)->view.row_as<const float>(0);
    const int64_t R = v.row_len(), rows = plain + n_out;
    auto copy = std::make_unique<std::byte[]>(static_cast<size_t>(H * rows * R) * sizeof(float));
    auto* to = reinterpret_cast<float*>(copy.get());
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = 0; i < plain; ++i) {
        for (int64_t r = 0; r < R; ++r) to[(h * rows + i) * R + r] = k[(h * R + r) * plain + i];
      }
      std::memcpy(to + (h * rows + plain) * R, v.row(h * n_out), static_cast<size_t>(n_out * R) * sizeof(float));
    }
    kept.push_back({of + "kv_b.weight", TensorView(to, DType::kF32, {H * rows, R})});
    parts.copies.push_back(std::move(copy));
  }
  parts.tensors = std::move(kept);
  for (const char* key : {"key_length_mla", "value_length_mla"})
    parts.metadata.erase("deepseek2.attention." + std::string(key));
  parts.metadata["deepseek2.attention.key_length"] = plain + turned;
  parts.metadata["deepseek2.attention.value_length"] = n_out;
  parts.metadata["deepseek2.attention.head_count_kv"] = H;
  return parts;
}

TEST(LatentAttention, OfOldFilesHasTheSameBits) {
  const std::vector<float> expected = logits_of(latent_parts());
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(logits_of(with_one_tensor(latent_parts(), 32, 16, 32, 6)), expected);
}

// The matrices of all heads may be one above the other.
TEST(LatentAttention, OfFlatMatricesHasTheSameBits) {
  ModelFile::Parts parts = latent_parts(DType::kQ8_0);
  for (TensorInfo& t : parts.tensors) {
    if (!t.name.ends_with("_b.weight") || t.view.rank != 3) continue;
    t.view = TensorView(t.view.data, t.view.dtype, {t.view.dim[0] * t.view.dim[1], t.view.dim[2]});
  }
  EXPECT_EQ(logits_of(std::move(parts)), logits_of(latent_parts(DType::kQ8_0)));
}

// Where a model's two projections are quantised in one, those of keys are turned after they are dequantised. Of one
// layer, which has no experts: another choice of them would be no rounding.
TEST(LatentAttention, OfQuantisedOldFilesIsNearThatOfTheirNumbers) {
  ModelFile::Parts parts = with_one_tensor(latent_parts(DType::kF32, 1), 32, 16, 32, 6),
                   rounded = with_one_tensor(latent_parts(DType::kF32, 1), 32, 16, 32, 6);
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    TensorView& view = parts.tensors[i].view;
    if (!parts.tensors[i].name.ends_with("kv_b.weight")) continue;
    const TensorView floats = view;
    auto copy =
        std::make_unique<std::byte[]>(static_cast<size_t>(floats.n_rows() * row_bytes(DType::kQ8_0, floats.row_len())));
    view = TensorView(copy.get(), DType::kQ8_0, {floats.dim[0], floats.dim[1]});
    for (int64_t r = 0; r < floats.n_rows(); ++r) {
      quantise_row(DType::kQ8_0, floats.row_as<const float>(r), view.row(r), floats.row_len());
      dequantise_row(DType::kQ8_0, view.row(r), rounded.tensors[i].view.row_as<float>(r), floats.row_len());
    }
    parts.copies.push_back(std::move(copy));
  }
  const std::vector<float> quantised = logits_of(std::move(parts)), expected = logits_of(std::move(rounded));
  ASSERT_EQ(quantised.size(), expected.size());
  double most = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    most = std::fmax(most, std::fabs(double{quantised[i]} - expected[i]));
    largest = std::fmax(largest, std::fabs(double{expected[i]}));
  }
  EXPECT_LT(most, 0.05 * largest) << "the values' inputs are rounded to 8 bits";
  EXPECT_GT(most, 0);
}

ModelConfig config_of(const std::function<void(ModelFile::Parts&)>& change, const ModelFile::Parts& folder = {}) {
  ModelFile::Parts parts;
  if (folder.metadata.empty()) {
    parts = latent_parts();
  } else {
    parts.container = folder.container;
    parts.path = folder.path;
    parts.metadata = folder.metadata;
  }
  change(parts);
  const Result<ModelConfig> config = read_config(ModelFile(std::move(parts)));
  EXPECT_TRUE(config.ok()) << (config ? "" : config.error().message);
  return config ? *config : ModelConfig{};
}

ModelFile::Parts deepseek_folder(const char* model_type) {
  ModelFile::Parts parts = testing::folder_parts(model_type);
  for (const auto& [key, value] : {std::pair<const char*, int64_t>{"kv_lora_rank", 512},
                                   {"qk_nope_head_dim", 128},
                                   {"qk_rope_head_dim", 64},
                                   {"v_head_dim", 128},
                                   {"q_lora_rank", 1536},
                                   {"n_routed_experts", 16},
                                   {"num_experts_per_tok", 4},
                                   {"moe_intermediate_size", 32},
                                   {"n_shared_experts", 2},
                                   {"n_group", 4},
                                   {"topk_group", 2},
                                   {"first_k_dense_replace", 3}})
    parts.metadata[key] = value;
  return parts;
}

void set_yarn(ModelFile::Parts& p, double mscale, double all) {
  testing::set(p, "rope_scaling.type", std::string("yarn"));
  testing::set(p, "rope_scaling.factor", 40.0);
  testing::set(p, "rope_scaling.original_max_position_embeddings", int64_t{4096});
  testing::set(p, "rope_scaling.mscale", mscale);
  testing::set(p, "rope_scaling.mscale_all_dim", all);
}

TEST(LatentAttention, HasYarnsTwoScales) {
  const ModelFile::Parts folder = deepseek_folder("deepseek_v3");
  const double plain = 1 / std::sqrt(192.0), m = 0.1 * std::log(40.0) + 1;
  const auto scales = [](const ModelConfig& c) {
    return std::pair(double{c.layers.front().attention_scale},
                     double{make_rope_table(c.ropes.front(), 4096).magnitude});
  };
  const auto expect_scales = [&](const ModelConfig& c, double of_scores, double of_angles) {
    EXPECT_NEAR(scales(c).first, of_scores, 1e-7);
    EXPECT_NEAR(scales(c).second, of_angles, 1e-6);
  };
  expect_scales(config_of([](ModelFile::Parts&) {}, folder), plain, 1);
  expect_scales(config_of([](ModelFile::Parts& p) { set_yarn(p, 1, 1); }, folder), plain * m * m, 1);
  expect_scales(config_of([](ModelFile::Parts& p) { set_yarn(p, 1, 0); }, folder), plain, m);
  const double half = 0.05 * std::log(40.0) + 1;
  expect_scales(config_of([](ModelFile::Parts& p) { set_yarn(p, 1, 0.5); }, folder), plain * half * half, m / half);
  // A GGUF has a tenth of it.
  const ModelConfig gguf = config_of([](ModelFile::Parts& p) {
    const std::string keys = "deepseek2.rope.scaling.";
    testing::set(p, keys + "type", std::string("yarn"));
    testing::set(p, keys + "factor", 40.0);
    testing::set(p, keys + "original_context_length", int64_t{4096});
    testing::set(p, keys + "yarn_log_multiplier", 0.1);
  });
  expect_scales(gguf, m * m / std::sqrt(48.0), 1);
}

TEST(LatentAttention, HasTheRouterThatItsArchitectureMeans) {
  const ModelConfig v3 = config_of([](ModelFile::Parts&) {}, deepseek_folder("deepseek_v3"));
  EXPECT_EQ(v3.router.score, RouterScore::kSigmoid);
  EXPECT_TRUE(v3.router_bias && v3.router.normalises && !v3.router.group_by_highest);
  EXPECT_EQ(v3.router.n_groups, 4);
  EXPECT_EQ(v3.layers[2].n_experts, 0);
  EXPECT_EQ(v3.layers[3].n_experts, 16);
  EXPECT_EQ(v3.layers[3].ffn_len, 64);
  const ModelConfig v2 = config_of(
      [](ModelFile::Parts& p) {
        p.metadata.erase("q_lora_rank");
        testing::set(p, "topk_method", std::string("group_limited_greedy"));
      },
      deepseek_folder("deepseek_v2"));
  EXPECT_EQ(v2.router.score, RouterScore::kSoftmax);
  EXPECT_TRUE(v2.router.group_by_highest && !v2.router.normalises && !v2.router_bias);
  EXPECT_EQ(v2.router.n_groups, 4);
  EXPECT_EQ(v2.q_rank, 0);
  EXPECT_EQ(config_of([](ModelFile::Parts&) {}, deepseek_folder("deepseek_v2")).router.n_groups, 1) << "greedy";
  // A file without the key of the score.
  const auto score_of = [](bool has_bias) {
    return config_of([&](ModelFile::Parts& p) {
             p.metadata.erase("deepseek2.expert_gating_func");
             if (!has_bias) testing::drop(p, "blk.1.exp_probs_b.bias");
           })
        .router.score;
  };
  EXPECT_EQ(score_of(true), RouterScore::kSigmoid);
  EXPECT_EQ(score_of(false), RouterScore::kSoftmax);
}

TEST(LatentAttention, ThatCannotRunIsRefusedByASentence) {
  const std::string keys = "deepseek2.attention.";
  using testing::set;
  const std::vector<testing::Bad> of_gguf = {
      {"no rank", [&](auto& p) { p.metadata.erase(keys + "kv_lora_rank"); }, "kv_lora_rank"},
      {"a rank of zero", [&](auto& p) { set(p, keys + "kv_lora_rank", int64_t{0}); }, "part of 0 values"},
      {"a rank of 2^50", [&](auto& p) { set(p, keys + "kv_lora_rank", int64_t{1} << 50); }, "multiples of 8"},
      {"a rank of 12", [&](auto& p) { set(p, keys + "kv_lora_rank", int64_t{12}); }, "part of 12 values"},
      {"rows beyond what attention reads", [&](auto& p) { set(p, keys + "kv_lora_rank", int64_t{568}); }, "1 to 576"},
      {"another rank", [&](auto& p) { set(p, keys + "kv_lora_rank", int64_t{56}); }, "attn_kv_a_mqa"},
      {"heads that turn and do nothing else", [&](auto& p) { set(p, keys + "key_length_mla", int64_t{16}); },
       "part of 0 values"},
      {"heads of minus one", [&](auto& p) { set(p, keys + "key_length_mla", int64_t{-1}); }, "multiples of 8"},
      {"outputs of 2^62", [&](auto& p) { set(p, keys + "value_length_mla", int64_t{1} << 62); }, "multiples of 8"},
      {"another rank of queries", [&](auto& p) { set(p, keys + "q_lora_rank", int64_t{32}); }, "attn_q_a.weight"},
      {"a negative rank of queries", [&](auto& p) { set(p, keys + "q_lora_rank", int64_t{-8}); }, "rank of queries"},
      {"no rank of queries", [&](auto& p) { p.metadata.erase(keys + "q_lora_rank"); }, "attn_q.weight"},
      {"2,000 heads", [&](auto& p) { set(p, keys + "head_count", int64_t{2000}); }, "heads"},
      {"no up-projection of keys", [](auto& p) { testing::drop(p, "blk.1.attn_k_b.weight"); }, "blk.1.attn_k_b.weight"},
      {"no up-projection of values", [](auto& p) { testing::drop(p, "blk.0.attn_v_b.weight"); },
       "blk.0.attn_v_b.weight"},
      {"no norm of rows", [](auto& p) { testing::drop(p, "blk.0.attn_kv_a_norm.weight"); }, "attn_kv_a_norm"},
  };
  EXPECT_EQ(testing::load_error(latent_parts()), "");
  for (const testing::Bad& bad : of_gguf) {
    ModelFile::Parts parts = latent_parts();
    bad.change(parts);
    const std::string error = testing::load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
  const auto refusal = [](const char* type, auto change) {
    ModelFile::Parts parts = deepseek_folder(type);
    change(parts);
    const Result<ModelConfig> config = read_config(ModelFile(std::move(parts)));
    return config ? "" : config.error().message;
  };
  const auto with = [](const char* key, MetaValue value) {
    return [key, value](ModelFile::Parts& p) { p.metadata[key] = value; };
  };
  EXPECT_NE(refusal("deepseek_v3", with("scoring_func", std::string("softmax"))).find("scoring_func"),
            std::string::npos);
  EXPECT_NE(refusal("deepseek_v3", with("topk_method", std::string("greedy"))).find("topk_method"), std::string::npos);
  EXPECT_NE(refusal("deepseek_v2", with("topk_method", std::string("noaux_tc"))).find("noaux_tc"), std::string::npos);
  EXPECT_NE(refusal("deepseek_v2", with("norm_topk_prob", true)).find("norm_topk_prob"), std::string::npos);
  EXPECT_NE(refusal("glm4_moe_lite", with("attention_bias", true)).find("attention_bias"), std::string::npos);
  EXPECT_NE(refusal("kimi_k2", with("rope_interleave", false)).find("rope_interleave"), std::string::npos);
  EXPECT_NE(refusal("deepseek_v3", with("v_head_dim", int64_t{12})).find("part of 12"), std::string::npos);
  EXPECT_NE(refusal("deepseek_v3", [](ModelFile::Parts& p) { set_yarn(p, -1, 1); }).find("mscale"), std::string::npos);
}

}  // namespace
}  // namespace ibid
