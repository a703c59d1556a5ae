// GGUF files that are well formed and still no model that we run: missing, mis-shaped and mis-typed tensors, tensors
// that nothing reads, hyper-parameters that disagree. Every case has its sentence.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/model.h"
#include "model/testing/parts.h"

namespace ibid {
namespace {

using namespace testing;

TensorInfo& tensor(ModelFile::Parts& parts, std::string_view name) {
  for (TensorInfo& t : parts.tensors) {
    if (t.name == name) return t;
  }
  ADD_FAILURE() << name;
  return parts.tensors[0];
}
void resize_dim(ModelFile::Parts& parts, std::string_view name, size_t dim, int64_t len) {
  TensorView& view = tensor(parts, name).view;
  view.dim[dim] = len;
  view.row_stride_bytes = row_bytes(view.dtype, view.row_len());
}

const std::vector<Bad>& bad_ggufs() {
  static const std::vector<Bad> cases = {
      {"an unknown architecture", [](auto& p) { set(p, "general.architecture", std::string("rwkv7")); }, "rwkv7"},
      {"no block count", [](auto& p) { p.metadata.erase("llama.block_count"); }, "llama.block_count"},
      {"more layers than tensors", [](auto& p) { set(p, "llama.block_count", int64_t{3}); }, "blk.2."},
      {"fewer layers than tensors", [](auto& p) { set(p, "llama.block_count", int64_t{1}); }, "blk.1."},
      {"2^63 - 1 layers", [](auto& p) { set(p, "llama.block_count", INT64_MAX); }, "layers"},
      {"heads of one layer that its tensors have not",
       [](auto& p) {
         set(p, "llama.attention.head_count", std::vector<int64_t>{6, 4});
       },
       "blk.1.attn_q"},
      {"heads of more layers than there are",
       [](auto& p) {
         set(p, "llama.attention.head_count", std::vector<int64_t>{6, 6, 6});
       },
       "3 numbers for 2 layers"},
      {"a layer without heads of keys",
       [](auto& p) {
         set(p, "llama.attention.head_count_kv", std::vector<int64_t>{2, 0});
       },
       "key/value heads of layer 1"},
      {"heads by an empty list", [](auto& p) { set(p, "llama.attention.head_count", std::vector<int64_t>{}); },
       "0 numbers"},
      {"values of another size", [](auto& p) { set(p, "llama.attention.value_length", int64_t{32}); }, "blk.0.attn_v"},
      {"heads of zero numbers", [](auto& p) { set(p, "llama.attention.key_length", int64_t{0}); }, "head size"},
      {"a wrong vocabulary size", [](auto& p) { set(p, "llama.vocab_size", int64_t{97}); }, "97"},
      {"experts without routers",
       [](auto& p) {
         set(p, "llama.expert_count", int64_t{8});
         set(p, "llama.expert_used_count", int64_t{2});
       },
       "no router"},
      {"experts, and not how many are used", [](auto& p) { set(p, "llama.expert_count", int64_t{8}); },
       "expert_used_count"},
      {"another architecture without what states how much of its heads turns",
       [](auto& p) {
         p = tiny_parts({.architecture = "gemma4"});
         std::erase_if(p.tensors, [](const TensorInfo& t) { return t.name == "rope_freqs.weight"; });
       },
       "rope_freqs.weight"},
      {"gemma 4 whose heads turn in part in between",
       [](auto& p) {
         p = tiny_parts({.architecture = "gemma4"});
         reinterpret_cast<float*>(tensor(p, "rope_freqs.weight").view.data)[15] = 2.0f;
       },
       "rope_freqs.weight"},
      {"gemma 4 that shares minus one layers",
       [](auto& p) {
         p = tiny_parts({.architecture = "gemma4"});
         set(p, "gemma4.attention.shared_kv_layers", int64_t{-1});
       },
       "layers share"},
      {"gemma 4 with embeddings of another length",
       [](auto& p) {
         p = tiny_parts({.architecture = "gemma4"});
         set(p, "gemma4.embedding_length_per_layer_input", int64_t{24});
       },
       "per_layer_token_embd.weight"},
      {"gemma 4 without its table",
       [](auto& p) {
         p = tiny_parts({.architecture = "gemma4"});
         std::erase_if(p.tensors, [](const TensorInfo& t) { return t.name == "per_layer_token_embd.weight"; });
       },
       "per_layer_token_embd.weight"},
      {"a log multiplier of minus one",
       [](auto& p) {
         p = tiny_parts({.architecture = "ministral3"});
         set(p, "mistral3.rope.scaling.yarn_log_multiplier", -1.0);
       },
       "log multiplier"},
      {"olmo whose windows have flags for other layers",
       [](auto& p) {
         p = tiny_parts({.architecture = "olmo3"});
         set(p, "olmo2.attention.sliding_window_pattern", std::vector<int64_t>{1, 0, 1});
       },
       "3 entries"},
      {"an odd rotated part", [](auto& p) { set(p, "llama.rope.dimension_count", int64_t{7}); }, "rotates"},
      {"more rotated than there is", [](auto& p) { set(p, "llama.rope.dimension_count", int64_t{32}); }, "rotates"},
      {"an unknown scaling", [](auto& p) { set(p, "llama.rope.scaling.type", std::string("dynamic")); }, "dynamic"},
      {"a factor without a type", [](auto& p) { set(p, "llama.rope.scaling.factor", 4.0); }, "scaling.type"},
      {"a factor with type none",
       [](auto& p) {
         set(p, "llama.rope.scaling.type", std::string("none"));
         set(p, "llama.rope.scaling.factor", 4.0);
       },
       "factor"},
      {"linear without a factor", [](auto& p) { set(p, "llama.rope.scaling.type", std::string("linear")); }, "factor"},
      {"yarn without its original context",
       [](auto& p) {
         set(p, "llama.rope.scaling.type", std::string("yarn"));
         set(p, "llama.rope.scaling.factor", 4.0);
       },
       "original context"},
      {"longrope without its tensors",
       [](auto& p) {
         set(p, "llama.rope.scaling.type", std::string("longrope"));
         set(p, "llama.rope.scaling.attn_factor", 1.1);
         set(p, "llama.rope.scaling.original_context_length", int64_t{64});
       },
       "rope_factors_short.weight"},
      {"yarn with a log multiplier",
       [](auto& p) {
         set(p, "llama.rope.scaling.type", std::string("yarn"));
         set(p, "llama.rope.scaling.factor", 4.0);
         set(p, "llama.rope.scaling.original_context_length", int64_t{128});
         set(p, "llama.rope.scaling.yarn_log_multiplier", 0.1);
       },
       "log multiplier"},
      {"an attention factor of zero", [](auto& p) { set(p, "llama.rope.scaling.attn_factor", 0.0); },
       "attention factor"},
      {"two descriptions of linear scaling",
       [](auto& p) {
         set(p, "llama.rope.scale_linear", 2.0);
         set(p, "llama.rope.scaling.type", std::string("linear"));
       },
       "twice"},
      {"a negative window", [](auto& p) { set(p, "llama.attention.sliding_window", int64_t{-5}); }, "window"},
      {"a window of 2^40", [](auto& p) { set(p, "llama.attention.sliding_window", int64_t{1} << 40); }, "window"},
      {"no embedding", [](auto& p) { drop(p, "token_embd.weight"); }, "token_embd.weight"},
      {"an embedding that is a vector",
       [](auto& p) { tensor(p, "token_embd.weight").view = tensor(p, "output_norm.weight").view; },
       "token_embd.weight"},
      {"an embedding of another width", [](auto& p) { resize_dim(p, "token_embd.weight", 1, 64); },
       "token_embd.weight"},
      {"no output norm", [](auto& p) { drop(p, "output_norm.weight"); }, "output_norm.weight"},
      {"no attention norm", [](auto& p) { drop(p, "blk.1.attn_norm.weight"); }, "blk.1.attn_norm.weight"},
      {"no q", [](auto& p) { drop(p, "blk.0.attn_q.weight"); }, "blk.0.attn_q.weight"},
      {"no down projection", [](auto& p) { drop(p, "blk.1.ffn_down.weight"); }, "blk.1.ffn_down.weight"},
      {"a k of the shape of q",
       [](auto& p) { tensor(p, "blk.0.attn_k.weight").view = tensor(p, "blk.0.attn_q.weight").view; }, "[96, 96]"},
      {"a gate with too few rows", [](auto& p) { resize_dim(p, "blk.0.ffn_gate.weight", 0, 32); }, "[32, 96]"},
      {"a norm that is a matrix",
       [](auto& p) { tensor(p, "blk.0.ffn_norm.weight").view = tensor(p, "blk.0.attn_q.weight").view; },
       "blk.0.ffn_norm.weight"},
      {"a norm of another length", [](auto& p) { resize_dim(p, "blk.0.ffn_norm.weight", 0, 48); }, "[48]"},
      {"a norm of integers", [](auto& p) { tensor(p, "blk.0.ffn_norm.weight").view.dtype = DType::kI32; }, "I32"},
      {"a matrix of integers", [](auto& p) { tensor(p, "blk.0.attn_v.weight").view.dtype = DType::kI32; }, "I32"},
      {"a matrix of F64", [](auto& p) { tensor(p, "blk.0.attn_v.weight").view.dtype = DType::kF64; }, "F64"},
      {"a tensor that nothing reads", [](auto& p) { tensor(p, "output_norm.weight").name = "blk.0.attn_sinks.weight"; },
       "output_norm.weight"},
      {"a stray tensor",
       [](auto& p) {
         TensorInfo extra = tensor(p, "output_norm.weight");
         extra.name = "blk.0.attn_sinks.weight";
         p.tensors.push_back(extra);
       },
       "attn_sinks"},
      {"one bias of three",
       [](auto& p) {
         TensorInfo extra = tensor(p, "output_norm.weight");
         extra.name = "blk.0.attn_q.bias";
         p.tensors.push_back(extra);
       },
       "attn_k.bias"},
      {"frequency factors of another length",
       [](auto& p) {
         TensorInfo extra = tensor(p, "output_norm.weight");
         extra.name = "rope_freqs.weight";
         p.tensors.push_back(extra);
       },
       "frequency factors"},
      {"frequency factors that are a matrix",
       [](auto& p) {
         TensorInfo extra = tensor(p, "blk.0.attn_q.weight");
         extra.name = "rope_freqs.weight";
         p.tensors.push_back(extra);
       },
       "rope_freqs.weight"},
  };
  return cases;
}

// Of qwen3moe: ten experts of 64, three for a token.
const std::vector<Bad>& bad_experts_of_ggufs() {
  static const std::vector<Bad> cases = {
      {"more used than there are", [](auto& p) { set(p, "qwen3moe.expert_used_count", int64_t{11}); }, "1 to 10"},
      {"none used", [](auto& p) { set(p, "qwen3moe.expert_used_count", int64_t{0}); }, "that a token uses"},
      {"minus one used", [](auto& p) { set(p, "qwen3moe.expert_used_count", int64_t{-1}); }, "that a token uses"},
      {"zero experts", [](auto& p) { set(p, "qwen3moe.expert_count", int64_t{0}); }, "0 experts"},
      {"2^40 experts", [](auto& p) { set(p, "qwen3moe.expert_count", int64_t{1} << 40); }, "1 to 1024"},
      {"no count of experts", [](auto& p) { p.metadata.erase("qwen3moe.expert_count"); }, "expert_count"},
      {"experts as text", [](auto& p) { set(p, "qwen3moe.expert_count", std::string("10")); }, "expert_count"},
      {"fewer experts than the tensors have", [](auto& p) { set(p, "qwen3moe.expert_count", int64_t{9}); }, "[10, 96]"},
      {"zero width", [](auto& p) { set(p, "qwen3moe.expert_feed_forward_length", int64_t{0}); }, "width of an expert"},
      {"another width", [](auto& p) { set(p, "qwen3moe.expert_feed_forward_length", int64_t{32}); }, "[10, 64, 96]"},
      {"a width of 2^50", [](auto& p) { set(p, "qwen3moe.expert_feed_forward_length", int64_t{1} << 50); },
       "width of an expert"},
      {"shared ones that are not there", [](auto& p) { set(p, "qwen3moe.expert_shared_count", int64_t{1}); },
       "ffn_gate_shexp"},
      {"2^62 shared ones", [](auto& p) { set(p, "qwen3moe.expert_shared_count", int64_t{1} << 62); }, "shared experts"},
      {"a shared width of minus one",
       [](auto& p) { set(p, "qwen3moe.expert_shared_feed_forward_length", int64_t{-1}); }, "shared experts"},
      {"an unknown score", [](auto& p) { set(p, "qwen3moe.expert_gating_func", int64_t{4}); }, "scores by function 4"},
      {"a score of 2^40", [](auto& p) { set(p, "qwen3moe.expert_gating_func", int64_t{1} << 40); },
       "scores by function"},
      {"groups of different sizes", [](auto& p) { set(p, "qwen3moe.expert_group_count", int64_t{3}); }, "equal groups"},
      {"no groups", [](auto& p) { set(p, "qwen3moe.expert_group_count", int64_t{0}); }, "expert_group_count"},
      {"more groups used than there are", [](auto& p) { set(p, "qwen3moe.expert_group_used_count", int64_t{2}); },
       "groups of experts that a token uses"},
      {"groups with too few experts", [](auto& p) { set(p, "qwen3moe.expert_group_count", int64_t{5}); },
       "a token uses 3 experts"},
      {"a negative scale", [](auto& p) { set(p, "qwen3moe.expert_weights_scale", -1.0); }, "scale of experts"},
      {"a scale that is no number", [](auto& p) { set(p, "qwen3moe.expert_weights_scale", std::nan("")); },
       "scale of experts"},
      {"no router in a layer", [](auto& p) { drop(p, "blk.2.ffn_gate_inp.weight"); }, "blk.2.ffn_gate.weight"},
      {"no experts in a layer", [](auto& p) { drop(p, "blk.2.ffn_up_exps.weight"); }, "blk.2.ffn_up_exps.weight"},
      {"experts that are a matrix",
       [](auto& p) { tensor(p, "blk.0.ffn_up_exps.weight").view = tensor(p, "blk.0.attn_q.weight").view; }, "[96, 96]"},
      {"a router of integers", [](auto& p) { tensor(p, "blk.0.ffn_gate_inp.weight").view.dtype = DType::kI32; }, "I32"},
      {"experts of integers", [](auto& p) { tensor(p, "blk.0.ffn_down_exps.weight").view.dtype = DType::kI32; }, "I32"},
      {"a bias of the choice of another length",
       [](auto& p) {
         TensorInfo extra = tensor(p, "output_norm.weight");
         extra.name = "blk.0.exp_probs_b.bias";
         p.tensors.push_back(extra);
       },
       "exp_probs_b"},
  };
  return cases;
}

// Of lfm2: a short convolution of three taps, attention, and a short convolution.
const std::vector<Bad>& bad_states_of_ggufs() {
  static const std::vector<Bad> cases = {
      {"no taps", [](auto& p) { set(p, "lfm2.shortconv.l_cache", int64_t{0}); }, "0 taps; expected 2 to 64"},
      {"one tap", [](auto& p) { set(p, "lfm2.shortconv.l_cache", int64_t{1}); }, "1 taps"},
      {"minus three taps", [](auto& p) { set(p, "lfm2.shortconv.l_cache", int64_t{-3}); }, "-3 taps"},
      {"2^62 taps", [](auto& p) { set(p, "lfm2.shortconv.l_cache", int64_t{1} << 62); }, "taps; expected"},
      {"taps that the tensor has not", [](auto& p) { set(p, "lfm2.shortconv.l_cache", int64_t{4}); }, "[96, 3]"},
      {"taps as text", [](auto& p) { set(p, "lfm2.shortconv.l_cache", std::string("3")); }, "shortconv.l_cache"},
      {"no number of taps", [](auto& p) { p.metadata.erase("lfm2.shortconv.l_cache"); }, "shortconv.l_cache"},
      {"both directions", [](auto& p) { set(p, "lfm2.attention.causal", false); }, "both directions"},
      {"attention where the tensors have none", [](auto& p) { set(p, "lfm2.attention.head_count_kv", int64_t{2}); },
       "blk.0.attn_q.weight"},
      {"no attention at all", [](auto& p) { set(p, "lfm2.attention.head_count_kv", int64_t{0}); },
       "none of the model's layers attends"},
      {"a negative number of heads",
       [](auto& p) {
         set(p, "lfm2.attention.head_count_kv", std::vector<int64_t>{0, -2, 0});
       },
       "key/value heads of layer 1"},
      {"no taps in a layer", [](auto& p) { drop(p, "blk.2.shortconv.conv.weight"); }, "blk.2.shortconv.conv.weight"},
      {"taps of integers", [](auto& p) { tensor(p, "blk.0.shortconv.conv.weight").view.dtype = DType::kI32; }, "I32"},
      {"taps that are quantised", [](auto& p) { tensor(p, "blk.0.shortconv.conv.weight").view.dtype = DType::kQ8_0; },
       "Q8_0"},
      {"taps of fewer channels", [](auto& p) { resize_dim(p, "blk.0.shortconv.conv.weight", 0, 95); }, "[95, 3]"},
      {"a projection of two parts", [](auto& p) { resize_dim(p, "blk.0.shortconv.in_proj.weight", 0, 192); },
       "[192, 96]"},
      {"layers that draft further tokens by a convolution",
       [](auto& p) { set(p, "lfm2.nextn_predict_layers", int64_t{3}); }, "draft further tokens"},
  };
  return cases;
}

// Of qwen35: gated delta nets of two key heads of 16 and four value heads of 24, and gated attention.
const std::vector<Bad>& bad_delta_nets_of_ggufs() {
  static const std::vector<Bad> cases = {
      {"no key heads", [](auto& p) { set(p, "qwen35.ssm.group_count", int64_t{0}); }, "ssm.group_count"},
      {"2^40 value heads", [](auto& p) { set(p, "qwen35.ssm.time_step_rank", int64_t{1} << 40); },
       "ssm.time_step_rank"},
      {"key heads that do not part the value heads", [](auto& p) { set(p, "qwen35.ssm.group_count", int64_t{3}); },
       "must be a multiple of the second"},
      {"more key heads than value heads", [](auto& p) { set(p, "qwen35.ssm.group_count", int64_t{8}); },
       "must be a multiple of the second"},
      {"outputs that do not part into heads", [](auto& p) { set(p, "qwen35.ssm.inner_size", int64_t{97}); },
       "outputs of 97 for 4 heads"},
      {"keys of zero numbers", [](auto& p) { set(p, "qwen35.ssm.state_size", int64_t{0}); }, "ssm.state_size"},
      {"keys of 2^50 numbers", [](auto& p) { set(p, "qwen35.ssm.state_size", int64_t{1} << 50); }, "ssm.state_size"},
      {"keys of 2000 numbers", [](auto& p) { set(p, "qwen35.ssm.state_size", int64_t{2000}); }, "size of a key head"},
      {"values of 2000 numbers", [](auto& p) { set(p, "qwen35.ssm.inner_size", int64_t{8000}); },
       "size of a value head"},
      {"keys of another length", [](auto& p) { set(p, "qwen35.ssm.state_size", int64_t{24}); }, "blk.0.attn_qkv"},
      {"one tap", [](auto& p) { set(p, "qwen35.ssm.conv_kernel", int64_t{1}); }, "1 taps"},
      {"other taps", [](auto& p) { set(p, "qwen35.ssm.conv_kernel", int64_t{3}); }, "ssm_conv1d"},
      {"kinds of fewer layers",
       [](auto& p) {
         set(p, "qwen35.attention.recurrent_layers", std::vector<int64_t>{1, 0});
       },
       "2 values for 3 layers"},
      {"attention in every zeroth layer",
       [](auto& p) {
         p.metadata.erase("qwen35.attention.recurrent_layers");
         set(p, "qwen35.full_attention_interval", int64_t{0});
       },
       "every 0th layer"},
      {"attention where the tensors have none",
       [](auto& p) {
         set(p, "qwen35.attention.recurrent_layers", std::vector<int64_t>{0, 0, 1});
       },
       "blk.0.attn_q"},
      {"values longer than keys in attention", [](auto& p) { set(p, "qwen35.attention.value_length", int64_t{24}); },
       "gate of attention"},
      {"a query without a gate", [](auto& p) { resize_dim(p, "blk.1.attn_q.weight", 0, 96); }, "[96, 96]"},
      {"no decay", [](auto& p) { drop(p, "blk.2.ssm_a"); }, "blk.2.ssm_a"},
      {"a decay of integers", [](auto& p) { tensor(p, "blk.2.ssm_a").view.dtype = DType::kI32; }, "I32"},
      {"two projections for one",
       [](auto& p) {
         TensorInfo extra = tensor(p, "blk.0.ssm_beta.weight");
         extra.name = "blk.0.ssm_ba.weight";
         p.tensors.push_back(extra);
       },
       "blk.0.ssm_ba.weight"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadGgufWithDeltaNetsIsRefusedByASentence) {
  for (const std::string_view architecture : {"qwen35", "qwen3next"})
    EXPECT_EQ(load_error(tiny_parts({.architecture = architecture})), "") << architecture;
  for (const Bad& bad : bad_delta_nets_of_ggufs()) {
    ModelFile::Parts parts = tiny_parts({.architecture = "qwen35"});
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

TEST(ModelConfig, EveryBadGgufWithStatesIsRefusedByASentence) {
  EXPECT_EQ(load_error(tiny_parts({.architecture = "lfm2"})), "");
  for (const Bad& bad : bad_states_of_ggufs()) {
    ModelFile::Parts parts = tiny_parts({.architecture = "lfm2"});
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

TEST(ModelConfig, EveryBadGgufWithExpertsIsRefusedByASentence) {
  EXPECT_EQ(load_error(tiny_parts({.architecture = "qwen3moe"})), "");
  for (const Bad& bad : bad_experts_of_ggufs()) {
    ModelFile::Parts parts = tiny_parts({.architecture = "qwen3moe"});
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

// Of gpt-oss, whose first of two layers slides.
const std::vector<Bad>& bad_gpt_oss() {
  static const std::vector<Bad> cases = {
      {"no sinks", [](auto& p) { drop(p, "blk.1.attn_sinks.weight"); }, "blk.1.attn_sinks.weight"},
      {"a sink too many", [](auto& p) { resize_dim(p, "blk.0.attn_sinks.weight", 0, 7); }, "[7]"},
      {"no bias of the output", [](auto& p) { drop(p, "blk.0.attn_output.bias"); }, "blk.0.attn_output.bias"},
      {"no bias of the router", [](auto& p) { drop(p, "blk.0.ffn_gate_inp.bias"); }, "blk.0.ffn_gate_inp.bias"},
      {"no biases of experts", [](auto& p) { drop(p, "blk.0.ffn_up_exps.bias"); }, "blk.0.ffn_up_exps.bias"},
      {"biases of other experts", [](auto& p) { resize_dim(p, "blk.0.ffn_down_exps.bias", 0, 9); }, "[9, 96]"},
      {"biases of integers", [](auto& p) { tensor(p, "blk.0.ffn_down_exps.bias").view.dtype = DType::kI32; },
       "for a bias"},
      {"a pattern of windows for other layers",
       [](auto& p) {
         set(p, "gpt-oss.attention.sliding_window_pattern", std::vector<int64_t>{1, 0, 1});
       },
       "3 entries"},
      {"a pattern of minus one", [](auto& p) { set(p, "gpt-oss.attention.sliding_window_pattern", int64_t{-1}); },
       "pattern is -1"},
      {"a negative window", [](auto& p) { set(p, "gpt-oss.attention.sliding_window", int64_t{-1}); },
       "sliding window is -1"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadGgufOfGptOssIsRefusedByASentence) {
  EXPECT_EQ(load_error(tiny_parts({.architecture = "gpt_oss"})), "");
  for (const Bad& bad : bad_gpt_oss()) {
    ModelFile::Parts parts = tiny_parts({.architecture = "gpt_oss"});
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

// Its windows are those of every other layer, unless the file has a pattern; its yarn has no whole ends.
TEST(ModelConfig, OfGptOssHasWhatItsGgufHasNoKeyFor) {
  const auto config_of = [](auto change) {
    ModelFile::Parts parts = tiny_parts({.architecture = "gpt_oss", .n_layers = 4});
    change(parts);
    Result<ModelConfig> config = read_config(ModelFile(std::move(parts)));
    EXPECT_TRUE(config.ok());
    return std::move(config).value();
  };
  const auto windows = [](const ModelConfig& c) {
    std::vector<int32_t> out;
    for (const LayerConfig& layer : c.layers) out.push_back(layer.window);
    return out;
  };
  const ModelConfig plain = config_of([](ModelFile::Parts&) {});
  EXPECT_EQ(windows(plain), (std::vector{24, 0, 24, 0}));
  EXPECT_FALSE(plain.ropes.front().truncate);
  EXPECT_EQ(plain.expert_clamp, 7.0f);
  EXPECT_EQ(plain.router.score, RouterScore::kChosenSoftmax);
  const std::string key = "gpt-oss.attention.sliding_window_pattern";
  EXPECT_EQ(windows(config_of([&](ModelFile::Parts& p) { set(p, key, int64_t{3}); })), (std::vector{24, 24, 0, 24}));
  EXPECT_EQ(windows(config_of([&](ModelFile::Parts& p) {
              set(p, key, std::vector<int64_t>{0, 0, 1, 0});
            })),
            (std::vector{0, 0, 24, 0}));
}

TEST(ModelConfig, EveryBadGgufIsRefusedByASentence) {
  EXPECT_EQ(load_error(tiny_parts()), "");
  for (const Bad& bad : bad_ggufs()) {
    ModelFile::Parts parts = tiny_parts();
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

// Of nemotron_h_moe: a state space of four heads of 24 by 16 in two groups, attention, experts.
const std::vector<Bad>& bad_state_spaces_of_ggufs() {
  static const std::vector<Bad> cases = {
      {"no heads", [](auto& p) { set(p, "nemotron_h_moe.ssm.time_step_rank", int64_t{0}); }, "ssm.time_step_rank"},
      {"2^40 heads", [](auto& p) { set(p, "nemotron_h_moe.ssm.time_step_rank", int64_t{1} << 40); },
       "ssm.time_step_rank"},
      {"groups that do not part the heads", [](auto& p) { set(p, "nemotron_h_moe.ssm.group_count", int64_t{3}); },
       "must be a multiple of the second"},
      {"other groups", [](auto& p) { set(p, "nemotron_h_moe.ssm.group_count", int64_t{4}); }, "blk.0.ssm_in"},
      {"outputs that do not part into heads", [](auto& p) { set(p, "nemotron_h_moe.ssm.inner_size", int64_t{97}); },
       "outputs of 97 for 4 heads"},
      {"heads of 2^30", [](auto& p) { set(p, "nemotron_h_moe.ssm.inner_size", int64_t{1} << 32); }, "heads of"},
      {"states of 2^50", [](auto& p) { set(p, "nemotron_h_moe.ssm.state_size", int64_t{1} << 50); }, "ssm.state_size"},
      {"states of 2000", [](auto& p) { set(p, "nemotron_h_moe.ssm.state_size", int64_t{2000}); },
       "size of its state space"},
      {"one tap", [](auto& p) { set(p, "nemotron_h_moe.ssm.conv_kernel", int64_t{1}); }, "1 taps"},
      {"no decay", [](auto& p) { drop(p, "blk.0.ssm_a"); }, "blk.0.ssm_a"},
      {"a decay of a row",
       [](auto& p) {
         tensor(p, "blk.0.ssm_a").view.dim = {1, 4};
       },
       "[1, 4]"},
      {"a norm of other groups",
       [](auto& p) {
         tensor(p, "blk.0.ssm_norm.weight").view.dim = {4, 24};
       },
       "[4, 24]"},
      {"no bias of one convolution, where another has one",
       [](auto& p) {
         TensorInfo extra = tensor(p, "blk.0.ssm_conv1d.bias");
         drop(p, "blk.0.ssm_conv1d.bias");
         extra.name = "blk.1.ssm_conv1d.bias";
         p.tensors.push_back(extra);
       },
       "blk.0.ssm_conv1d.bias"},
      {"attention where the tensors have a state space",
       [](auto& p) { set(p, "nemotron_h_moe.attention.head_count_kv", int64_t{2}); }, "blk.0.attn_q"},
      {"experts of another row", [](auto& p) { set(p, "nemotron_h_moe.moe_latent_size", int64_t{32}); }, "_exps"},
      {"experts of a negative row", [](auto& p) { set(p, "nemotron_h_moe.moe_latent_size", int64_t{-1}); },
       "rows of -1"},
      {"no way back from what experts give", [](auto& p) { drop(p, "blk.2.ffn_latent_up.weight"); }, "ffn_latent_up"},
      {"a gate that is not used",
       [](auto& p) {
         TensorInfo extra = tensor(p, "blk.2.ffn_up_exps.weight");
         extra.name = "blk.2.ffn_gate_exps.weight";
         p.tensors.push_back(extra);
       },
       "blk.2.ffn_gate_exps.weight"},
      {"a second norm",
       [](auto& p) {
         TensorInfo extra = tensor(p, "blk.2.attn_norm.weight");
         extra.name = "blk.2.ffn_norm.weight";
         p.tensors.push_back(extra);
       },
       "blk.2.ffn_norm.weight"},
  };
  return cases;
}

TEST(ModelConfig, EveryBadGgufWithStateSpacesIsRefusedByASentence) {
  for (const std::string_view architecture : {"granitehybrid", "nemotron_h", "nemotron_h_moe", "falcon_h1"})
    EXPECT_EQ(load_error(tiny_parts({.architecture = architecture})), "") << architecture;
  for (const Bad& bad : bad_state_spaces_of_ggufs()) {
    ModelFile::Parts parts = tiny_parts({.architecture = "nemotron_h_moe"});
    bad.change(parts);
    const std::string error = load_error(std::move(parts));
    EXPECT_NE(error.find(bad.says), std::string::npos) << bad.what << ": " << error;
  }
}

}  // namespace
}  // namespace ibid
