#include "model/config.h"

#include <gtest/gtest.h>

#include "model/gguf_form.h"
#include "model/kv_arithmetic.h"
#include "model/rope.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

using namespace testing;

ModelConfig good(ModelFile::Parts parts) {
  Result<ModelConfig> config = read_config(ModelFile(std::move(parts)));
  EXPECT_TRUE(config.ok()) << (config ? "" : config.error().message);
  return config ? *config : ModelConfig{};
}

TEST(ModelConfig, ReadsTheSameFromBothContainers) {
  for (std::string_view architecture : tiny_architectures()) {
    const ModelConfig wanted = tiny_config({.architecture = architecture});
    const ModelConfig found = good(tiny_parts({.architecture = architecture}));
    EXPECT_EQ(found.n_layers, wanted.n_layers);
    EXPECT_EQ(found.qk_norm, wanted.qk_norm);
    EXPECT_EQ(found.qkv_bias, wanted.qkv_bias);
    EXPECT_EQ(found.tied_embedding, wanted.tied_embedding);
    for (size_t l = 0; l < found.layers.size(); ++l) {
      EXPECT_EQ(found.layers[l], wanted.layers[l]) << architecture << " layer " << l;
    }
  }
}

TEST(ModelConfig, Qwen2WindowsBeginAfterMaxWindowLayers) {
  ModelFile::Parts parts = folder_parts("qwen2");
  parts.metadata["sliding_window"] = int64_t{32};
  parts.metadata["max_window_layers"] = int64_t{5};
  EXPECT_EQ(good(folder_parts("qwen2")).layers[7].window, 0);
  parts.metadata["use_sliding_window"] = true;
  const ModelConfig config = good(std::move(parts));
  EXPECT_EQ(config.layers[4].window, 0);
  EXPECT_EQ(config.layers[5].window, 32);
}

TEST(ModelConfig, Smollm3TurnsAllButEveryFourthLayer) {
  const ModelConfig config = good(folder_parts("smollm3"));
  for (size_t l = 0; l < 8; ++l) EXPECT_EQ(config.layers[l].rope, l % 4 == 3 ? kNoRope : 0);
  ModelFile::Parts listed = folder_parts("smollm3");
  listed.metadata["no_rope_layers"] = std::vector<int64_t>{0, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(good(std::move(listed)).layers[0].rope, kNoRope);
}

TEST(ModelConfig, Gemma3HasFiveLocalLayersToOneGlobal) {
  ModelFile::Parts parts = folder_parts("gemma3_text");
  parts.metadata["rope_scaling.factor"] = 8.0;
  parts.metadata["rope_scaling.rope_type"] = std::string("linear");
  parts.metadata["sliding_window"] = int64_t{512};
  const ModelConfig config = good(std::move(parts));
  EXPECT_EQ(config.layers.front().key_len, 256);
  EXPECT_EQ(config.layers.front().attention_scale, 1.0f / 16);
  EXPECT_EQ(config.embedding_scale, 8.0f);
  EXPECT_TRUE(config.tied_embedding);
  EXPECT_EQ(config.layers[4].window, 512);
  EXPECT_EQ(config.layers[5].window, 0);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[5].rope)].base, 1e6);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[5].rope)].factor, 8.0);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[4].rope)].base, 1e4);
  EXPECT_EQ(config.ropes[static_cast<size_t>(config.layers[4].rope)].scaling, RopeScaling::kNone);
}

TEST(ModelConfig, ReadsTheTextModelBesideAVisionTower) {
  ModelFile::Parts parts = folder_parts("gemma3");
  for (const char* key : {"hidden_size", "intermediate_size", "num_hidden_layers"}) {
    parts.metadata[std::string("text_config.") + key] = parts.metadata.at(key);
  }
  ModelFile::Parts text;
  text.container = Container::kSafetensors;
  for (auto& [key, value] : parts.metadata) {
    if (key.starts_with("text_config.") || key == "model_type") text.metadata[key] = value;
  }
  const ModelConfig config = good(std::move(text));
  EXPECT_EQ(config.layers.front().n_heads, 8) << "config.json leaves out what is the family's default";
  EXPECT_EQ(config.vocab_size, 262208);
}

TEST(ModelConfig, OldAndNewRopeKeysMeanTheSame) {
  ModelFile::Parts old_form = folder_parts(), new_form = folder_parts();
  old_form.metadata["rope_theta"] = 500000.0;
  for (const auto& [key, value] : Metadata{{"factor", 8.0},
                                           {"low_freq_factor", 1.0},
                                           {"high_freq_factor", 4.0},
                                           {"original_max_position_embeddings", int64_t{1024}},
                                           {"rope_type", std::string("llama3")}}) {
    old_form.metadata["rope_scaling." + key] = value;
    new_form.metadata["rope_parameters." + key] = value;
  }
  new_form.metadata["rope_parameters.rope_theta"] = 500000.0;
  const ModelConfig a = good(std::move(old_form)), b = good(std::move(new_form));
  EXPECT_EQ(make_rope_table(a.ropes[0], 4096).frequency, make_rope_table(b.ropes[0], 4096).frequency);
  EXPECT_EQ(a.ropes[0].scaling, RopeScaling::kLlama3);
}

// GGUF has an array where layers differ, with numbers for the layers after the last one too.
TEST(ModelConfig, SizesOfEachLayerComeFromArrays) {
  ModelFile::Parts parts = tiny_parts();
  set(parts, "llama.attention.head_count", std::vector<int64_t>{6, 4});
  set(parts, "llama.attention.head_count_kv", std::vector<int64_t>{2, 1});
  set(parts, "llama.feed_forward_length", std::vector<int64_t>{160, 96});
  set(parts, "llama.attention.value_length", int64_t{24});
  const ModelConfig config = good(std::move(parts));
  ASSERT_EQ(config.layers.size(), 2U);
  const LayerConfig& last = config.layers[1];
  EXPECT_EQ(config.layers[0].n_heads, 6);
  EXPECT_EQ(config.layers[0].ffn_len, 160);
  EXPECT_EQ(last.n_heads, 4);
  EXPECT_EQ(last.n_kv_heads, 1);
  EXPECT_EQ(last.ffn_len, 96);
  EXPECT_EQ(last.q_len(), 4 * 16);
  EXPECT_EQ(last.attention_len(), 4 * 24);
  EXPECT_EQ(last.v_len(), 24);
  EXPECT_EQ(last.kv_group_len(), 4 * 24);
  EXPECT_EQ(config.most(&LayerConfig::ffn_len), 160);
  EXPECT_EQ(config.most(&LayerConfig::attention_len), 6 * 24);
}

TEST(ModelConfig, EachKindOfMixerKeepsItsOwn) {
  ModelConfig config = tiny_config({});
  LayerConfig& layer = config.layers[1];
  layer = {.n_heads = 16, .n_kv_heads = 1, .key_len = 576, .value_len = 512, .window = 7};
  const auto kept = [&](Mixer mixer) {
    layer.mixer = mixer;
    return kv_geometry(config, 1);
  };
  EXPECT_EQ(kept(Mixer::kAttention).kind, KvKind::kHeads);
  EXPECT_EQ(kv_token_len(kept(Mixer::kAttention)), 576 + 512);
  EXPECT_EQ(kept(Mixer::kLatent).kind, KvKind::kLatent);
  EXPECT_EQ(kv_token_len(kept(Mixer::kLatent)), 576);
  EXPECT_EQ(kept(Mixer::kLatent).window, 7);
  for (const Mixer mixer : {Mixer::kState, Mixer::kNone}) EXPECT_EQ(kv_token_len(kept(mixer)), 0);
  layer.mixer = Mixer::kAttention;
  layer.kv_owner = 0;
  EXPECT_EQ(kv_geometry(config, 1).owner, 0);
}

// What no forward pass runs yet, and sizes that do not fit each other, are refused by the layer's number.
TEST(ModelConfig, ALayerThatCannotRunIsNamed) {
  const auto refusal = [](auto change) {
    ModelConfig config = tiny_config({});
    change(config.layers[1]);
    const Status status = validate(config);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal([](LayerConfig&) {}), "");
  EXPECT_EQ(refusal([](LayerConfig& l) { l.mixer = Mixer::kState; }),
            "the recurrent state of layer 1 is of no kind that ibid runs in a model of this shape");
  for (const Mixer mixer : {Mixer::kLatent, Mixer::kNone}) {
    EXPECT_NE(refusal([mixer](LayerConfig& l) { l.mixer = mixer; }), "");
  }
  const LayerConfig latent = {.mixer = Mixer::kLatent,
                              .n_heads = 4,
                              .n_kv_heads = 1,
                              .key_len = 48,
                              .value_len = 32,
                              .ffn_len = 64,
                              .plain_len = 24,
                              .out_len = 40,
                              .attention_scale = 0.125f};
  EXPECT_EQ(refusal([&](LayerConfig& l) { l = latent; }), "");
  const auto refused = [&](auto change) {
    return refusal([&](LayerConfig& l) {
      l = latent;
      change(l);
    });
  };
  EXPECT_NE(refused([](LayerConfig& l) { l.n_kv_heads = 2; }), "");
  EXPECT_NE(refused([](LayerConfig& l) { l.value_len = 48; }), "") << "nothing turns";
  EXPECT_NE(refused([](LayerConfig& l) { l.value_len = 40; }), "") << "its RoPE turns sixteen numbers";
  EXPECT_NE(refused([](LayerConfig& l) { l.plain_len = 0; }), "");
  EXPECT_NE(refused([](LayerConfig& l) { l.out_len = -8; }), "");
  EXPECT_NE(refused([](LayerConfig& l) { l.kv_owner = 0; }), "");
  EXPECT_EQ(refusal([](LayerConfig& l) { l.value_len = 584; }),
            "the model's head size of values of layer 1 is 584; expected 1 to 576");
  EXPECT_EQ(refusal([](LayerConfig& l) { l.value_len = 40; }), "");
  EXPECT_NE(refusal([](LayerConfig& l) { l.key_len = 8; }), "") << "its RoPE turns sixteen numbers";
  EXPECT_NE(refusal([](LayerConfig& l) { l.ffn_len = 0; }), "");
  EXPECT_EQ(refusal([](LayerConfig& l) { l.kv_owner = 0; }), "");
  for (const int32_t owner : {1, 2, -7}) EXPECT_NE(refusal([owner](LayerConfig& l) { l.kv_owner = owner; }), "");
  EXPECT_EQ(refusal([](LayerConfig& l) { l.kv_owner = 0, l.value_len = 40; }),
            "layer 1 reads the keys and values of layer 0; expected an earlier one with a cache of the same heads");
}

// As llama.cpp saves a model: convolutions have neither query heads nor key/value heads.
TEST(ModelConfig, OfLfm2MayGiveItsConvolutionsNoHeads) {
  const auto config_with = [](const std::vector<int64_t>& heads) {
    ModelFile::Parts parts = testing::tiny_parts({.architecture = "lfm2"});
    if (!heads.empty()) testing::set(parts, "lfm2.attention.head_count", heads);
    return read_config(ModelFile(std::move(parts)));
  };
  const Result<ModelConfig> one_number = config_with({}), numbers = config_with({0, 6, 0});
  ASSERT_TRUE(one_number.ok() && numbers.ok()) << numbers.error().message;
  EXPECT_EQ(one_number->layers, numbers->layers);
  EXPECT_EQ(one_number->ropes[0].n_pairs, numbers->ropes[0].n_pairs);
  EXPECT_FALSE(config_with({0, 0, 0}).ok());
}

TEST(ModelConfig, OfGemma4HasTheBaseThatItsArchitectureMeans) {
  ModelFile::Parts parts = testing::tiny_parts({.architecture = "gemma4"});
  parts.metadata.erase("gemma4.rope.freq_base");
  parts.metadata.erase("gemma4.rope.freq_base_swa");
  const Result<ModelConfig> config = read_config(ModelFile(std::move(parts)));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->ropes[0].base, 1e6);
  EXPECT_EQ(config->ropes[1].base, 1e4);
}

}  // namespace
}  // namespace ibid
