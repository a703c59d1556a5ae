// What config.json may contain that we refuse: sizes that are absurd or disagree, parts that we do not run, RoPE data
// that do not fit each other (row C7). Every case has its sentence.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/config.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

using namespace testing;

Result<ModelConfig> read(ModelFile::Parts parts) { return read_config(ModelFile(std::move(parts))); }

void make_mpt(ModelFile::Parts& p) {
  set(p, "model_type", std::string("mpt"));
  set(p, "n_layers", int64_t{2});
  set(p, "d_model", int64_t{64});
  set(p, "n_heads", int64_t{4});
  set(p, "max_seq_len", int64_t{64});
}

const std::vector<Bad>& bad_folders() {
  static const std::vector<Bad> cases = {
      {"an unknown architecture", [](auto& p) { set(p, "model_type", std::string("mamba")); }, "mamba"},
      {"no architecture", [](auto& p) { p.metadata.erase("model_type"); }, "model_type"},
      {"an architecture that is a number", [](auto& p) { set(p, "model_type", int64_t{3}); }, "model_type"},
      {"no layers key", [](auto& p) { p.metadata.erase("num_hidden_layers"); }, "num_hidden_layers"},
      {"zero layers", [](auto& p) { set(p, "num_hidden_layers", int64_t{0}); }, "layers"},
      {"2^40 layers", [](auto& p) { set(p, "num_hidden_layers", int64_t{1} << 40); }, "layers"},
      {"minus one layer", [](auto& p) { set(p, "num_hidden_layers", int64_t{-1}); }, "layers"},
      {"layers as text", [](auto& p) { set(p, "num_hidden_layers", std::string("8")); }, "num_hidden_layers"},
      {"zero width", [](auto& p) { set(p, "hidden_size", int64_t{0}); }, "width"},
      {"width 2^62", [](auto& p) { set(p, "hidden_size", int64_t{1} << 62); }, "width"},
      {"negative width", [](auto& p) { set(p, "hidden_size", int64_t{-64}); }, "width"},
      {"zero heads", [](auto& p) { set(p, "num_attention_heads", int64_t{0}); }, "heads"},
      {"negative heads", [](auto& p) { set(p, "num_attention_heads", int64_t{-4}); }, "heads"},
      {"width not a multiple of heads", [](auto& p) { set(p, "num_attention_heads", int64_t{5}); }, "multiple"},
      {"heads not a multiple of KV heads", [](auto& p) { set(p, "num_key_value_heads", int64_t{3}); }, "multiple"},
      {"zero KV heads", [](auto& p) { set(p, "num_key_value_heads", int64_t{0}); }, "key/value heads"},
      {"more KV heads than heads", [](auto& p) { set(p, "num_key_value_heads", int64_t{8}); }, "multiple"},
      {"2^60 KV heads", [](auto& p) { set(p, "num_key_value_heads", int64_t{1} << 60); }, "key/value heads"},
      {"an odd head size", [](auto& p) { set(p, "head_dim", int64_t{15}); }, "head size"},
      {"a head size of 12", [](auto& p) { set(p, "head_dim", int64_t{12}); }, "head size"},
      {"a head size of zero", [](auto& p) { set(p, "head_dim", int64_t{0}); }, "head size"},
      {"a head size of 2^63 - 1", [](auto& p) { set(p, "head_dim", INT64_MAX); }, "head size"},
      {"a head size of 2^50", [](auto& p) { set(p, "head_dim", int64_t{1} << 50); }, "head size"},
      {"zero feed-forward", [](auto& p) { set(p, "intermediate_size", int64_t{0}); }, "feed-forward"},
      {"feed-forward of 2^63 - 1", [](auto& p) { set(p, "intermediate_size", INT64_MAX); }, "feed-forward"},
      {"zero vocabulary", [](auto& p) { set(p, "vocab_size", int64_t{0}); }, "vocabulary"},
      {"vocabulary of 2^40", [](auto& p) { set(p, "vocab_size", int64_t{1} << 40); }, "vocabulary"},
      {"zero context", [](auto& p) { set(p, "max_position_embeddings", int64_t{0}); }, "context"},
      {"context of 2^60", [](auto& p) { set(p, "max_position_embeddings", int64_t{1} << 60); }, "context"},
      {"epsilon zero", [](auto& p) { set(p, "rms_norm_eps", 0.0); }, "epsilon"},
      {"epsilon NaN", [](auto& p) { set(p, "rms_norm_eps", std::nan("")); }, "epsilon"},
      {"epsilon infinite", [](auto& p) { set(p, "rms_norm_eps", INFINITY); }, "epsilon"},
      {"negative epsilon", [](auto& p) { set(p, "rms_norm_eps", -1e-5); }, "epsilon"},
      {"another activation", [](auto& p) { set(p, "hidden_act", std::string("relu")); }, "relu"},
      {"biases of attention", [](auto& p) { set(p, "attention_bias", true); }, "attention_bias"},
      {"biases of feed-forward", [](auto& p) { set(p, "mlp_bias", true); }, "mlp_bias"},
      {"experts", [](auto& p) { set(p, "num_local_experts", int64_t{8}); }, "experts"},
      {"quantised weights", [](auto& p) { p.quant_recipe_json = R"({"quant_method":"aqlm"})"; }, "aqlm"},
      {"a base of zero", [](auto& p) { set(p, "rope_theta", 0.0); }, "base"},
      {"a base of one", [](auto& p) { set(p, "rope_theta", 1.0); }, "base"},
      {"a negative base", [](auto& p) { set(p, "rope_theta", -10000.0); }, "base"},
      {"a base of NaN", [](auto& p) { set(p, "rope_theta", std::nan("")); }, "base"},
      {"a rotated part of nothing", [](auto& p) { set(p, "partial_rotary_factor", 0.0); }, "partial_rotary_factor"},
      {"a rotated part of NaN", [](auto& p) { set(p, "partial_rotary_factor", std::nan("")); },
       "partial_rotary_factor"},
      {"a rotated part of two", [](auto& p) { set(p, "partial_rotary_factor", 2.0); }, "partial_rotary_factor"},
      {"dynamic NTK",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("dynamic"));
         set(p, "rope_scaling.factor", 2.0);
       },
       "dynamic NTK"},
      {"an unknown scaling", [](auto& p) { set(p, "rope_scaling.type", std::string("spiral")); }, "spiral"},
      {"two kinds of scaling",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.rope_type", std::string("yarn"));
       },
       "two kinds"},
      {"a factor without a kind", [](auto& p) { set(p, "rope_scaling.factor", 2.0); }, "no kind"},
      {"linear without a factor", [](auto& p) { set(p, "rope_scaling.type", std::string("linear")); }, "factor"},
      {"linear by zero",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.factor", 0.0);
       },
       "factor"},
      {"linear by next to nothing",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.factor", 1e-300);
       },
       "factor"},
      {"linear by infinity",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.factor", INFINITY);
       },
       "factor"},
      {"llama3 without its original context",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("llama3"));
         set(p, "rope_scaling.factor", 8.0);
       },
       "original_max_position_embeddings"},
      {"llama3 without its bounds",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("llama3"));
         set(p, "rope_scaling.factor", 8.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
       },
       "low_freq_factor"},
      {"llama3 with bounds the wrong way round",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("llama3"));
         set(p, "rope_scaling.factor", 8.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
         set(p, "rope_scaling.low_freq_factor", 4.0);
         set(p, "rope_scaling.high_freq_factor", 1.0);
       },
       "high_freq_factor"},
      {"yarn without its original context",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("yarn"));
         set(p, "rope_scaling.factor", 4.0);
       },
       "original_max_position_embeddings"},
      {"yarn whose context is not reached",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("yarn"));
         set(p, "rope_scaling.factor", 2.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
       },
       "yarn"},
      {"yarn with mscale",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("yarn"));
         set(p, "rope_scaling.factor", 4.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
         set(p, "rope_scaling.mscale", 1.0);
       },
       "mscale"},
      {"two original contexts",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("yarn"));
         set(p, "rope_scaling.factor", 4.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
         set(p, "original_max_position_embeddings", int64_t{2048});
       },
       "two different"},
      {"longrope with too few factors",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("longrope"));
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
         set(p, "rope_scaling.short_factor", std::vector<double>{1, 1});
         set(p, "rope_scaling.long_factor", std::vector<double>{1, 1});
       },
       "longrope short factors"},
      {"longrope with a negative factor",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("longrope"));
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{1024});
         set(p, "rope_scaling.short_factor", std::vector<double>(8, 1.0));
         set(p, "rope_scaling.long_factor", std::vector<double>{1, 1, 1, 1, 1, 1, 1, -1});
       },
       "longrope long factors"},
      {"longrope from beyond its context",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("longrope"));
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{8192});
         set(p, "rope_scaling.short_factor", std::vector<double>(8, 1.0));
         set(p, "rope_scaling.long_factor", std::vector<double>(8, 1.0));
       },
       "longrope"},
      {"a negative attention factor",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.factor", 2.0);
         set(p, "rope_scaling.attention_factor", -1.0);
       },
       "attention factor"},
      {"an attention factor of zero",
       [](auto& p) {
         set(p, "rope_scaling.type", std::string("linear"));
         set(p, "rope_scaling.factor", 2.0);
         set(p, "rope_scaling.attention_factor", 0.0);
       },
       "attention factor"},
      {"llama with neighbours as pairs", [](auto& p) { set(p, "rope_interleaved", true); }, "rope_interleaved"},
      {"mistral with a negative window",
       [](auto& p) {
         set(p, "model_type", std::string("mistral"));
         set(p, "sliding_window", int64_t{-1});
       },
       "window"},
      {"mistral with an unknown layer type",
       [](auto& p) {
         set(p, "model_type", std::string("mistral"));
         set(p, "layer_types", std::vector<std::string>(8, "chunked_attention"));
       },
       "chunked_attention"},
      {"mistral with too few layer types",
       [](auto& p) {
         set(p, "model_type", std::string("mistral"));
         set(p, "layer_types", std::vector<std::string>(7, "full_attention"));
       },
       "layer types"},
      {"sliding layers without a window",
       [](auto& p) {
         set(p, "model_type", std::string("mistral"));
         set(p, "layer_types", std::vector<std::string>(8, "sliding_attention"));
       },
       "sliding_window"},
      {"smollm3 with too few entries",
       [](auto& p) {
         set(p, "model_type", std::string("smollm3"));
         set(p, "no_rope_layers", std::vector<int64_t>{1, 0});
       },
       "no_rope_layers"},
      {"smollm3 with interval zero",
       [](auto& p) {
         set(p, "model_type", std::string("smollm3"));
         set(p, "no_rope_layer_interval", int64_t{0});
       },
       "no_rope_layer_interval"},
      {"gemma with pattern zero",
       [](auto& p) {
         set(p, "model_type", std::string("gemma3_text"));
         set(p, "sliding_window_pattern", int64_t{0});
       },
       "pattern"},
      {"gemma with a negative scalar",
       [](auto& p) {
         set(p, "model_type", std::string("gemma3_text"));
         set(p, "query_pre_attn_scalar", int64_t{-1});
       },
       "query_pre_attn_scalar"},
      {"gemma that sees both ways",
       [](auto& p) {
         set(p, "model_type", std::string("gemma3_text"));
         set(p, "use_bidirectional_attention", true);
       },
       "use_bidirectional_attention"},
      {"gemma with an infinite soft cap",
       [](auto& p) {
         set(p, "model_type", std::string("gemma3_text"));
         set(p, "final_logit_softcapping", INFINITY);
       },
       "soft cap"},
      {"qwen3 with biases",
       [](auto& p) {
         set(p, "model_type", std::string("qwen3"));
         set(p, "attention_bias", true);
       },
       "attention_bias"},
      {"granite whose residuals have a scale of zero",
       [](auto& p) {
         set(p, "model_type", std::string("granite"));
         set(p, "residual_multiplier", 0.0);
       },
       "scale of residuals"},
      {"seed-oss with a bias of its output",
       [](auto& p) {
         set(p, "model_type", std::string("seed_oss"));
         set(p, "attention_out_bias", true);
       },
       "attention_out_bias"},
      {"mistral 3 around another text model",
       [](auto& p) {
         set(p, "model_type", std::string("mistral3"));
         set(p, "text_config.model_type", std::string("pixtral"));
         set(p, "text_config.hidden_size", int64_t{64});
       },
       "pixtral"},
      {"queries scaled by positions of no length",
       [](auto& p) {
         set(p, "model_type", std::string("ministral3"));
         set(p, "rope_parameters.rope_type", std::string("default"));
         set(p, "rope_parameters.llama_4_scaling_beta", 0.1);
       },
       "positions between"},
      {"queries scaled by a negative number",
       [](auto& p) {
         set(p, "model_type", std::string("ministral3"));
         set(p, "rope_parameters.rope_type", std::string("default"));
         set(p, "rope_parameters.llama_4_scaling_beta", -0.1);
       },
       "scale of queries"},
      {"an mscale of zero",
       [](auto& p) {
         set(p, "rope_scaling.rope_type", std::string("yarn"));
         set(p, "rope_scaling.factor", 4.0);
         set(p, "rope_scaling.original_max_position_embeddings", int64_t{32});
         set(p, "rope_scaling.mscale", 0.0);
         set(p, "rope_scaling.mscale_all_dim", 1.0);
       },
       "mscale"},
      {"olmo 3 whose sliding layers scale too",
       [](auto& p) {
         set(p, "model_type", std::string("olmo3"));
         set(p, "rope_parameters.sliding_attention.rope_type", std::string("yarn"));
       },
       "sliding_attention.rope_type"},
      {"exaone 4 with windows by other letters",
       [](auto& p) {
         set(p, "model_type", std::string("exaone4"));
         set(p, "sliding_window", int64_t{16});
         set(p, "sliding_window_pattern", std::string("LLX"));
       },
       "LLX"},
      {"exaone 4 with a period of zero",
       [](auto& p) {
         set(p, "model_type", std::string("exaone4"));
         set(p, "sliding_window", int64_t{16});
         set(p, "sliding_window_pattern", int64_t{0});
       },
       "pattern"},
      {"glm 4 that turns more than a head",
       [](auto& p) {
         set(p, "model_type", std::string("glm4"));
         set(p, "partial_rotary_factor", 1.5);
       },
       "partial_rotary_factor"},
      {"a dense hunyuan with experts",
       [](auto& p) {
         set(p, "model_type", std::string("hunyuan_v1_dense"));
         set(p, "num_experts", int64_t{8});
       },
       "8 experts"},
      {"gemma 4 whose layers all share",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "num_kv_shared_layers", int64_t{8});
       },
       "layers share"},
      {"gemma 4 whose shared layers have no owner",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "num_kv_shared_layers", int64_t{7});
       },
       "of its kind"},
      {"gemma 4 with a layer embedding of 2^40",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "hidden_size_per_layer_input", int64_t{1} << 40);
       },
       "embedding of each layer"},
      {"gemma 4 that turns none of a head",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "rope_parameters.full_attention.partial_rotary_factor", 0.0);
       },
       "partial_rotary_factor"},
      {"gemma 4 that sees what comes after",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "use_bidirectional_attention", std::string("all"));
       },
       "use_bidirectional_attention"},
      {"gemma 4 with experts and no number of them",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "enable_moe_block", true);
       },
       "num_experts"},
      {"gemma 4 with a head of 2^40 in one layer",
       [](auto& p) {
         set(p, "model_type", std::string("gemma4_text"));
         set(p, "per_layer_config.05.head_dim", int64_t{1} << 40);
       },
       "head size of layer 5"},
      {"gpt-2 whose heads do not part its width",
       [](auto& p) {
         set(p, "model_type", std::string("gpt2"));
         set(p, "n_layer", int64_t{2});
         set(p, "n_embd", int64_t{64});
         set(p, "n_head", int64_t{5});
         set(p, "n_positions", int64_t{64});
       },
       "multiple of the heads"},
      {"gpt-2 that scales scores by their layer",
       [](auto& p) {
         set(p, "model_type", std::string("gpt2"));
         set(p, "n_layer", int64_t{2});
         set(p, "n_embd", int64_t{64});
         set(p, "n_head", int64_t{4});
         set(p, "n_positions", int64_t{64});
         set(p, "scale_attn_by_inverse_layer_idx", true);
       },
       "scale_attn_by_inverse_layer_idx"},
      {"bloom whose residual is the norm's output",
       [](auto& p) {
         set(p, "model_type", std::string("bloom"));
         set(p, "n_layer", int64_t{2});
         set(p, "n_head", int64_t{4});
         set(p, "apply_residual_connection_post_layernorm", true);
       },
       "apply_residual_connection_post_layernorm"},
      {"bloom of 2^60 layers",
       [](auto& p) {
         set(p, "model_type", std::string("bloom"));
         set(p, "n_layer", int64_t{1} << 60);
         set(p, "n_head", int64_t{4});
       },
       "layers"},
      {"mpt without slopes",
       [](auto& p) {
         make_mpt(p);
         set(p, "attn_config.alibi", false);
       },
       "attn_config.alibi"},
      {"mpt whose slopes are NaN",
       [](auto& p) {
         make_mpt(p);
         set(p, "attn_config.alibi_bias_max", std::nan(""));
       },
       "ALiBi"},
      {"mpt with a negative clip",
       [](auto& p) {
         make_mpt(p);
         set(p, "attn_config.clip_qkv", -1.0);
       },
       "limit of queries"},
      {"mpt with a feed-forward of 2^60 times its width",
       [](auto& p) {
         make_mpt(p);
         set(p, "expansion_ratio", int64_t{1} << 60);
       },
       "feed-forward width"},
      {"mpt that scales its logits",
       [](auto& p) {
         make_mpt(p);
         set(p, "logit_scale", 0.5);
       },
       "logit_scale"},
      {"nemotron with another activation",
       [](auto& p) {
         set(p, "model_type", std::string("nemotron"));
         set(p, "hidden_act", std::string("gelu"));
       },
       "gelu"},
      {"cohere 2 with norms of heads",
       [](auto& p) {
         set(p, "model_type", std::string("cohere2"));
         set(p, "use_qk_norm", true);
       },
       "use_qk_norm"},
      {"cohere 2 whose logits are scaled by zero",
       [](auto& p) {
         set(p, "model_type", std::string("cohere2"));
         set(p, "logit_scale", 0.0);
       },
       "scale of logits"},
      {"gemma 2 with a negative scalar",
       [](auto& p) {
         set(p, "model_type", std::string("gemma2"));
         set(p, "query_pre_attn_scalar", -256.0);
       },
       "query_pre_attn_scalar"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadFolderIsRefusedByASentence) {
  EXPECT_TRUE(read(folder_parts()).ok());
  for (const Bad& bad : bad_folders()) {
    ModelFile::Parts parts = folder_parts();
    bad.change(parts);
    const Result<ModelConfig> config = read(std::move(parts));
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

// Of qwen3 with eight experts of 32, two for a token, or as another architecture.
const std::vector<Bad>& bad_experts_of_folders() {
  static const std::vector<Bad> cases = {
      {"no experts", [](auto& p) { set(p, "num_experts", int64_t{0}); }, "0 experts"},
      {"2^50 experts", [](auto& p) { set(p, "num_experts", int64_t{1} << 50); }, "1 to 1024"},
      {"no number of experts", [](auto& p) { p.metadata.erase("num_experts"); }, "num_experts"},
      {"more used than there are", [](auto& p) { set(p, "num_experts_per_tok", int64_t{9}); }, "1 to 8"},
      {"none used", [](auto& p) { set(p, "num_experts_per_tok", int64_t{0}); }, "that a token uses"},
      {"other numbers in other layers",
       [](auto& p) {
         set(p, "num_experts_per_tok", std::vector<int64_t>{2, 3});
       },
       "different numbers"},
      {"a negative width", [](auto& p) { set(p, "moe_intermediate_size", int64_t{-32}); }, "width of an expert"},
      {"a width of 2^63 - 1", [](auto& p) { set(p, "moe_intermediate_size", INT64_MAX); }, "width of an expert"},
      {"in every zeroth layer", [](auto& p) { set(p, "decoder_sparse_step", int64_t{0}); }, "every 0th layer"},
      {"kinds of other than its layers",
       [](auto& p) {
         set(p, "mlp_layer_types", std::vector<std::string>{"sparse", "dense"});
       },
       "2 kinds of feed-forward"},
      {"an unknown kind of layer", [](auto& p) { set(p, "mlp_layer_types", std::vector<std::string>(8, "cubic")); },
       "cubic"},
      {"normalisation as text", [](auto& p) { set(p, "norm_topk_prob", std::string("yes")); }, "norm_topk_prob"},
      {"glm that scores otherwise",
       [](auto& p) {
         set(p, "model_type", std::string("glm4_moe"));
         set(p, "scoring_func", std::string("softmax"));
       },
       "scoring_func"},
      {"glm with too many shared experts",
       [](auto& p) {
         set(p, "model_type", std::string("glm4_moe"));
         set(p, "n_shared_experts", int64_t{1} << 40);
       },
       "shared experts"},
      {"glm whose groups are not equal",
       [](auto& p) {
         set(p, "model_type", std::string("glm4_moe"));
         set(p, "n_group", int64_t{3});
       },
       "equal groups"},
      {"olmoe that clamps",
       [](auto& p) {
         set(p, "model_type", std::string("olmoe"));
         set(p, "clip_qkv", 8.0);
       },
       "clamps queries, keys and values"},
      {"granite that divides logits by zero",
       [](auto& p) {
         set(p, "model_type", std::string("granitemoe"));
         set(p, "logits_scaling", 0.0);
       },
       "logits"},
      {"minimax that turns more than a head",
       [](auto& p) {
         set(p, "model_type", std::string("minimax_m2"));
         set(p, "rotary_dim", int64_t{256});
       },
       "turns 256 values of its heads of 128"},
      {"hunyuan with two shared experts",
       [](auto& p) {
         set(p, "model_type", std::string("hunyuan_v1_moe"));
         set(p, "num_shared_expert", int64_t{2});
       },
       "shared expert"},
      {"hunyuan with an alpha of minus one",
       [](auto& p) {
         set(p, "model_type", std::string("hunyuan_v1_moe"));
         set(p, "rope_scaling.type", std::string("dynamic"));
         set(p, "rope_scaling.alpha", -1.0);
       },
       "alpha"},
      {"gpt-oss in other blocks",
       [](auto& p) {
         set(p, "model_type", std::string("gpt_oss"));
         p.quant_recipe_json = R"({"quant_method":"fp8"})";
       },
       "quantised"},
      {"gpt-oss without biases",
       [](auto& p) {
         set(p, "model_type", std::string("gpt_oss"));
         set(p, "attention_bias", false);
       },
       "attention_bias"},
      {"gpt-oss with another slope",
       [](auto& p) {
         set(p, "model_type", std::string("gpt_oss"));
         set(p, "swiglu_alpha", 1.5);
       },
       "1.702"},
      {"gpt-oss with a limit of zero",
       [](auto& p) {
         set(p, "model_type", std::string("gpt_oss"));
         set(p, "swiglu_limit", 0.0);
       },
       "limits its experts' gates"},
      {"gpt-oss that slides without a window",
       [](auto& p) {
         set(p, "model_type", std::string("gpt_oss"));
         set(p, "layer_types", std::vector<std::string>(8, "sliding_attention"));
       },
       "no sliding_window"},
      {"a dense architecture", [](auto& p) { set(p, "model_type", std::string("qwen3")); }, "does not run for qwen3"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadFolderWithExpertsIsRefusedByASentence) {
  const auto parts_of = [] {
    ModelFile::Parts parts = folder_parts("qwen3_moe");
    set(parts, "num_experts", int64_t{8});
    set(parts, "num_experts_per_tok", int64_t{2});
    set(parts, "moe_intermediate_size", int64_t{32});
    return parts;
  };
  EXPECT_TRUE(read(parts_of()).ok());
  for (const Bad& bad : bad_experts_of_folders()) {
    ModelFile::Parts parts = parts_of();
    bad.change(parts);
    const Result<ModelConfig> config = read(std::move(parts));
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

// Of lfm2, whose layers are short convolutions but for the third and the sixth.
const std::vector<Bad>& bad_states_of_folders() {
  static const std::vector<Bad> cases = {
      {"taps of 2^40", [](auto& p) { set(p, "conv_L_cache", int64_t{1} << 40); }, "taps; expected 2 to 64"},
      {"no taps", [](auto& p) { set(p, "conv_L_cache", int64_t{0}); }, "0 taps"},
      {"biases", [](auto& p) { set(p, "conv_bias", true); }, "conv_bias"},
      {"kinds of other than its layers",
       [](auto& p) {
         set(p, "layer_types", std::vector<std::string>{"conv", "conv"});
       },
       "2 layer types for 8 layers"},
      {"an unknown kind of layer", [](auto& p) { set(p, "layer_types", std::vector<std::string>(8, "mamba")); },
       "mamba"},
      {"attention in a layer that is not there",
       [](auto& p) {
         set(p, "full_attn_idxs", std::vector<int64_t>{2, 8});
       },
       "gives layer 8 attention"},
      {"attention in layer minus one", [](auto& p) { set(p, "full_attn_idxs", std::vector<int64_t>{-1}); },
       "gives layer -1 attention"},
      {"an epsilon of zero", [](auto& p) { set(p, "norm_eps", 0.0); }, "epsilon"},
      {"a width of 2^62", [](auto& p) { set(p, "hidden_size", int64_t{1} << 62); }, "width"},
      {"experts without a number of those used", [](auto& p) { set(p, "num_experts", int64_t{8}); },
       "num_experts_per_tok"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadFolderWithStatesIsRefusedByASentence) {
  const auto parts_of = [] {
    ModelFile::Parts parts = folder_parts("lfm2");
    set(parts, "full_attn_idxs", std::vector<int64_t>{2, 5});
    return parts;
  };
  const Result<ModelConfig> good = read(parts_of());
  ASSERT_TRUE(good.ok()) << good.error().message;
  for (size_t l = 0; l < 8; ++l)
    EXPECT_EQ(good->layers[l].mixer, l == 2 || l == 5 ? Mixer::kAttention : Mixer::kState) << l;
  EXPECT_EQ(good->layers[0].state_len, 2 * 64);
  EXPECT_TRUE(good->tied_embedding);
  EXPECT_EQ(good->ropes[0].base, 1e6);
  for (const Bad& bad : bad_states_of_folders()) {
    ModelFile::Parts parts = parts_of();
    bad.change(parts);
    const Result<ModelConfig> config = read(std::move(parts));
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

// Of qwen3_5_text, every fourth layer of which attends.
const std::vector<Bad>& bad_delta_nets_of_folders() {
  static const std::vector<Bad> cases = {
      {"no key heads", [](auto& p) { set(p, "linear_num_key_heads", int64_t{0}); }, "linear_num_key_heads"},
      {"2^50 value heads", [](auto& p) { set(p, "linear_num_value_heads", int64_t{1} << 50); },
       "linear_num_value_heads"},
      {"keys of minus one number", [](auto& p) { set(p, "linear_key_head_dim", int64_t{-1}); }, "linear_key_head_dim"},
      {"values of 2000 numbers", [](auto& p) { set(p, "linear_value_head_dim", int64_t{2000}); },
       "size of a value head"},
      {"heads that do not part", [](auto& p) { set(p, "linear_num_value_heads", int64_t{7}); },
       "must be a multiple of the second"},
      {"2^60 taps", [](auto& p) { set(p, "linear_conv_kernel_dim", int64_t{1} << 60); }, "linear_conv_kernel_dim"},
      {"65 taps", [](auto& p) { set(p, "linear_conv_kernel_dim", int64_t{65}); }, "65 taps"},
      {"attention in every zeroth layer", [](auto& p) { set(p, "full_attention_interval", int64_t{0}); },
       "every 0th layer"},
      {"an unknown kind of layer",
       [](auto& p) { set(p, "layer_types", std::vector<std::string>(8, "sliding_attention")); }, "sliding_attention"},
      {"kinds of other than its layers",
       [](auto& p) { set(p, "layer_types", std::vector<std::string>{"linear_attention"}); },
       "1 layer types for 8 layers"},
      {"biases", [](auto& p) { set(p, "attention_bias", true); }, "attention_bias"},
      {"another activation", [](auto& p) { set(p, "hidden_act", std::string("gelu")); }, "gelu"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadFolderWithDeltaNetsIsRefusedByASentence) {
  const auto parts_of = [] {
    ModelFile::Parts parts = folder_parts("qwen3_5_text");
    set(parts, "linear_num_key_heads", int64_t{2});
    set(parts, "linear_num_value_heads", int64_t{6});
    set(parts, "linear_key_head_dim", int64_t{16});
    set(parts, "linear_value_head_dim", int64_t{8});
    set(parts, "linear_conv_kernel_dim", int64_t{4});
    return parts;
  };
  const Result<ModelConfig> good = read(parts_of());
  ASSERT_TRUE(good.ok()) << good.error().message;
  for (size_t l = 0; l < 8; ++l) EXPECT_EQ(good->layers[l].mixer, l % 4 == 3 ? Mixer::kAttention : Mixer::kState) << l;
  EXPECT_EQ(good->layers[0].state_len, 3 * (2 * 2 * 16 + 6 * 8) + 6 * 16 * 8);
  EXPECT_EQ(good->layers[3].key_len, 256);
  EXPECT_EQ(good->ropes[0].n_pairs, 32) << "a quarter of a head turns";
  for (const Bad& bad : bad_delta_nets_of_folders()) {
    ModelFile::Parts parts = parts_of();
    bad.change(parts);
    const Result<ModelConfig> config = read(std::move(parts));
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

// Of nemotron_h: a state space of four heads of 16 by 8 in two groups, experts, attention, a feed-forward.
const std::vector<Bad>& bad_state_spaces_of_folders() {
  static const std::vector<Bad> cases = {
      {"no heads", [](auto& p) { set(p, "mamba_num_heads", int64_t{0}); }, "mamba_num_heads"},
      {"2^50 heads", [](auto& p) { set(p, "mamba_num_heads", int64_t{1} << 50); }, "mamba_num_heads"},
      {"heads of 2000 numbers", [](auto& p) { set(p, "mamba_head_dim", int64_t{2000}); },
       "size of a head of its state"},
      {"heads of minus one number", [](auto& p) { set(p, "mamba_head_dim", int64_t{-1}); }, "mamba_head_dim"},
      {"heads that are too wide together",
       [](auto& p) {
         set(p, "mamba_num_heads", int64_t{4096});
         set(p, "mamba_head_dim", int64_t{1024});
       },
       "convolution over time"},
      {"groups that do not part the heads", [](auto& p) { set(p, "n_groups", int64_t{3}); },
       "must be a multiple of the second"},
      {"no groups", [](auto& p) { set(p, "n_groups", int64_t{0}); }, "n_groups"},
      {"states of 2^40", [](auto& p) { set(p, "ssm_state_size", int64_t{1} << 40); }, "ssm_state_size"},
      {"states of 2000", [](auto& p) { set(p, "ssm_state_size", int64_t{2000}); }, "size of its state space"},
      {"one tap", [](auto& p) { set(p, "conv_kernel", int64_t{1}); }, "1 taps"},
      {"2^60 taps", [](auto& p) { set(p, "conv_kernel", int64_t{1} << 60); }, "conv_kernel"},
      {"steps with a limit",
       [](auto& p) {
         set(p, "time_step_limit", std::vector<double>{0.0, 0.5});
       },
       "limits the steps"},
      {"steps with a limit below", [](auto& p) { set(p, "time_step_limit.0", 0.001); }, "limits the steps"},
      {"biases of products", [](auto& p) { set(p, "mamba_proj_bias", true); }, "mamba_proj_bias"},
      {"another activation", [](auto& p) { set(p, "mlp_hidden_act", std::string("silu")); }, "mlp_hidden_act"},
      {"an unknown kind of layer", [](auto& p) { set(p, "hybrid_override_pattern", std::string("ME*-M?*-")); },
       "layer 5 is of type \"?\""},
      {"kinds of other than its layers", [](auto& p) { set(p, "hybrid_override_pattern", std::string("ME*-")); },
       "4 layer types for 8 layers"},
      {"no kinds", [](auto& p) { p.metadata.erase("hybrid_override_pattern"); }, "hybrid_override_pattern"},
      {"kinds as numbers",
       [](auto& p) {
         set(p, "layers_block_type", std::vector<int64_t>{1, 2});
       },
       "layers_block_type"},
      {"no attention", [](auto& p) { set(p, "hybrid_override_pattern", std::string("MEM-MEM-")); }, "attends"},
      {"experts that read minus three numbers", [](auto& p) { set(p, "moe_latent_size", int64_t{-3}); }, "rows of -3"},
      {"experts that read 2^40 numbers", [](auto& p) { set(p, "moe_latent_size", int64_t{1} << 40); },
       "width of what experts read"},
      {"a feed-forward of no width", [](auto& p) { set(p, "intermediate_size", int64_t{0}); }, "no part"},
  };
  return cases;
}

ModelFile::Parts folder_with_state_spaces() {
  ModelFile::Parts parts = folder_parts("nemotron_h");
  set(parts, "hybrid_override_pattern", std::string("ME*-ME*-"));
  set(parts, "mamba_num_heads", int64_t{4});
  set(parts, "mamba_head_dim", int64_t{16});
  set(parts, "ssm_state_size", int64_t{8});
  set(parts, "n_groups", int64_t{2});
  set(parts, "n_routed_experts", int64_t{8});
  set(parts, "num_experts_per_tok", int64_t{2});
  set(parts, "moe_intermediate_size", int64_t{32});
  set(parts, "moe_shared_expert_intermediate_size", int64_t{48});
  set(parts, "moe_latent_size", int64_t{24});
  return parts;
}

TEST(ModelConfig, EveryBadFolderWithStateSpacesIsRefusedByASentence) {
  const Result<ModelConfig> good = read(folder_with_state_spaces());
  ASSERT_TRUE(good.ok()) << good.error().message;
  constexpr Mixer kMixers[] = {Mixer::kState, Mixer::kNone, Mixer::kAttention, Mixer::kNone};
  for (size_t l = 0; l < 8; ++l) {
    EXPECT_EQ(good->layers[l].mixer, kMixers[l % 4]) << l;
    EXPECT_EQ(good->layers[l].n_experts, l % 4 == 1 ? 8 : 0) << l;
    EXPECT_EQ(good->layers[l].has_ffn(), l % 2 == 1) << l;
  }
  EXPECT_EQ(good->layers[0].state_len, 3 * (4 * 16 + 2 * 2 * 8) + 4 * 16 * 8);
  EXPECT_EQ(good->layers[1].ffn_len, 48);
  EXPECT_EQ(good->expert_latent_len, 24);
  for (const Bad& bad : bad_state_spaces_of_folders()) {
    ModelFile::Parts parts = folder_with_state_spaces();
    bad.change(parts);
    const Result<ModelConfig> config = read(std::move(parts));
    ASSERT_FALSE(config.ok()) << bad.what;
    EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
  }
}

// The two lists of words, and steps without a limit as transformers and as published folders write it.
TEST(ModelConfig, StateSpacesOfFoldersAreNamedInEveryWay) {
  ModelFile::Parts words = folder_with_state_spaces();
  words.metadata.erase("hybrid_override_pattern");
  words.metadata.erase("num_hidden_layers");
  set(words, "layers_block_type", std::vector<std::string>{"linear_attention", "moe", "full_attention", "mlp"});
  set(words, "time_step_limit.0", 0.0);
  set(words, "time_step_limit.1.__float__", std::string("Infinity"));
  const Result<ModelConfig> of_words = read(std::move(words));
  ASSERT_TRUE(of_words.ok()) << of_words.error().message;
  EXPECT_EQ(of_words->n_layers, 4);
  ModelFile::Parts published = folder_with_state_spaces();
  set(published, "time_step_limit.0", 0.0);
  set(published, "time_step_limit.1", std::string("Infinity"));
  EXPECT_TRUE(read(std::move(published)).ok());
}

// Granite 4 and Falcon-H1.
TEST(ModelConfig, FoldersWithStateSpacesBesideOtherPartsAreRefusedByASentence) {
  const auto granite = [] {
    ModelFile::Parts parts = folder_parts("granitemoehybrid");
    set(parts, "shared_intermediate_size", int64_t{48});
    set(parts, "num_local_experts", int64_t{0});
    set(parts, "mamba_n_heads", int64_t{8});
    set(parts, "layer_types", std::vector<std::string>(8, "mamba"));
    std::get<std::vector<std::string>>(parts.metadata["layer_types"])[3] = "attention";
    return parts;
  };
  const auto falcon = [] {
    ModelFile::Parts parts = folder_parts("falcon_h1");
    set(parts, "mamba_d_ssm", int64_t{64});
    set(parts, "mamba_n_heads", int64_t{4});
    return parts;
  };
  const Result<ModelConfig> of_granite = read(granite()), of_falcon = read(falcon());
  ASSERT_TRUE(of_granite.ok()) << of_granite.error().message;
  ASSERT_TRUE(of_falcon.ok()) << of_falcon.error().message;
  EXPECT_EQ(of_granite->layers[3].mixer, Mixer::kAttention);
  EXPECT_EQ(of_granite->layers[3].rope, kNoRope);
  EXPECT_EQ(of_falcon->layers[0].ssm.head_len, 16);
  EXPECT_EQ(of_falcon->ssm_norm, SsmNorm::kNone);
  const std::vector<Bad> of_granites = {
      {"an unknown kind of layer", [](auto& p) { set(p, "layer_types", std::vector<std::string>(8, "conv")); }, "conv"},
      {"kinds of other than its layers", [](auto& p) { set(p, "layer_types", std::vector<std::string>{"mamba"}); },
       "1 layer types for 8 layers"},
      {"heads that do not part", [](auto& p) { set(p, "mamba_n_heads", int64_t{7}); }, "outputs of"},
      {"2^40 times the width", [](auto& p) { set(p, "mamba_expand", int64_t{1} << 40); }, "mamba_expand"},
      {"no feed-forward", [](auto& p) { set(p, "shared_intermediate_size", int64_t{0}); }, "feed-forward width"},
  };
  const std::vector<Bad> of_falcons = {
      {"four factors for five parts",
       [](auto& p) {
         set(p, "ssm_multipliers", std::vector<double>{1, 1, 1, 1});
       },
       "expected 5"},
      {"a factor that is no number", [](auto& p) { set(p, "key_multiplier", std::nan("")); }, "multiplies"},
      {"a factor of 1e30", [](auto& p) { set(p, "ssm_out_multiplier", 1e30); }, "multiplies"},
      {"an embedding times zero", [](auto& p) { set(p, "embedding_multiplier", 0.0); }, "embedding scale"},
      {"biases of products", [](auto& p) { set(p, "projectors_bias", true); }, "projectors_bias"},
      {"outputs that do not part", [](auto& p) { set(p, "mamba_d_ssm", int64_t{65}); }, "outputs of 65 for 4 heads"},
  };
  for (const auto& [cases, make] :
       {std::pair<const std::vector<Bad>&, std::function<ModelFile::Parts()>>{of_granites, granite},
        {of_falcons, falcon}}) {
    for (const Bad& bad : cases) {
      ModelFile::Parts parts = make();
      bad.change(parts);
      const Result<ModelConfig> config = read(std::move(parts));
      ASSERT_FALSE(config.ok()) << bad.what;
      EXPECT_NE(config.error().message.find(bad.says), std::string::npos) << bad.what << ": " << config.error().message;
    }
  }
}

}  // namespace
}  // namespace ibid
