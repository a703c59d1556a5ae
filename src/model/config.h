// ModelConfig: the hyper-parameters of a model in our own words, whatever the container they came from.
//
// All of it is bytes from outside. read_config checks every number against what a forward pass needs (no zero, no
// absurd size, H a multiple of K, windows and RoPE data that fit), so that the rest of model/ may CHECK. What a file
// contains and we do not support (biases, activations, RoPE kinds) is refused by name, never skipped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "kernels/delta_heads.h"
#include "kernels/expert_rows.h"
#include "kernels/kv_layout.h"
#include "kernels/ssm_heads.h"
#include "model/pooling.h"

namespace ibid {

// How a file scales RoPE beyond the context it was trained for (model/rope.h has the formulas).
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope };
std::string_view rope_scaling_name(RopeScaling scaling);

struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  bool interleaved = false;      // pairs (2i, 2i + 1), as GGUF stores llama; else (i, i + n_pairs)
  int n_pairs = 0;               // the first 2 * n_pairs values of a head turn
  int n_turning = 0;             // of the pairs the first, the others stand still (gemma 4); 0: all turn
  double base = 10000.0;         // theta
  double factor = 1.0;           // linear, llama3, yarn
  int64_t original_context = 0;  // llama3, yarn, longrope
  double magnitude = 0.0;        // of cos and sin; 0: the scaling's own formula
  double mscale_all = 0.0;       // yarn's, which scales the scores of latent attention (model/arch/deepseek2.cc)
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn
  bool truncate = true;                                  // yarn: whole numbers as the ramp's ends
  std::vector<double> short_factors, long_factors;       // longrope, [n_pairs] each
  std::vector<double> divisors;                          // GGUF's rope_freqs.weight, [n_pairs] or empty
  std::vector<uint8_t> axes;                             // ops::Rope::axes, [n_pairs]; empty: there is one axis
};

inline constexpr int kNoRope = -1;

// What mixes the tokens of a layer.
enum class Mixer : uint8_t {
  kAttention,  // queries over a key and a value for each KV head
  kLatent,     // queries over one row a token, which is key and value of all heads
  kState,      // a state of the sequence that each token overwrites
  kNone,
};
std::string_view mixer_name(Mixer mixer);

// What a recurrent layer keeps of a sequence besides keys and values.
enum class Recurrence : uint8_t {
  kNone,
  kShortConv,  // the last inputs of a convolution over time (LFM2)
  kDeltaNet,   // those, and a matrix of each head (Qwen3-Next, Qwen3.5)
  kMamba2,     // likewise (Granite 4, Nemotron-H, Falcon-H1)
};

// Of what the heads of a state space give, beside the multiplication by their gate.
enum class SsmNorm : uint8_t { kNone, kBeforeGate, kAfterGate };

// What a file of Falcon-H1 multiplies the inputs and outputs of its products by, where the weights do not hold it.
struct Multipliers {
  float query = 1.0f, key = 1.0f, value = 1.0f, attention = 1.0f;  // outputs of attention's four products
  float z = 1.0f, x = 1.0f, b = 1.0f, c = 1.0f, dt = 1.0f;         // parts of what a state space's first product gives
  float ssm = 1.0f;                                                // outputs of its last one
  float gate = 1.0f, down = 1.0f;                                  // outputs of the feed-forward's
  bool operator==(const Multipliers&) const = default;
};

// One layer. Layers of a model may differ in all of it; blocks, memory and cache read the layer's, never the model's.
struct LayerConfig {
  Mixer mixer = Mixer::kAttention;
  int64_t n_heads = 0;        // H
  int64_t n_kv_heads = 0;     // K, divides H; 1 of a latent layer
  int64_t key_len = 0;        // Dk, of a head of queries and keys
  int64_t value_len = 0;      // Dv, of a head of values and outputs
  bool value_is_key = false;  // values are the products of the keys' weights, before the keys' norm and rotation
  // F; of a layer of experts that of those that all its tokens use (shared experts) together, or 0: none.
  int64_t ffn_len = 0;
  int64_t n_experts = 0;       // E; 0: all tokens use the same feed-forward
  int64_t n_experts_used = 0;  // k, by each token
  int64_t expert_len = 0;      // F of an expert
  // Of a latent layer, whose key_len and value_len are those of its row: the values of a head's query that do not turn,
  // and those of a head's output. The row's last key_len - value_len values turn, and as many of a head's query.
  int64_t plain_len = 0;
  int64_t out_len = 0;
  float attention_scale = 0.0f;      // of the scores
  int32_t window = 0;                // 0: sees everything before it; else the last `window` positions, its own included
  bool sees_whole_pictures = false;  // cells of one picture see each other (gemma 3; gemma 4 in layers with a window)
  int rope = 0;                      // index into ModelConfig::ropes, or kNoRope
  // An earlier layer of the same K, Dk, Dv that owns its cache: this one has queries alone and reads what that one
  // keeps. kOwnCache: it has keys and values of its own.
  int32_t kv_owner = kOwnCache;
  // Of a recurrent layer: its kind, the taps of its convolution over time and the channels that it runs over, its
  // heads, and the F32 values that it keeps of a sequence (kernels/state_layout.h): the convolution's, then those of
  // the heads. A layer of Mixer::kState has no heads of the above. One of Mixer::kAttention may be recurrent too: both
  // read one input, and their outputs are added (Falcon-H1).
  Recurrence recurrence = Recurrence::kNone;
  int64_t conv_len = 0;
  int64_t conv_channels = 0;
  DeltaHeads delta = {};
  SsmHeads ssm = {};
  int64_t state_len = 0;

  int64_t q_len() const { return n_heads * key_len; }
  // Of a latent layer's queries before its up-projection of keys is part of them.
  int64_t latent_q_len() const { return n_heads * (plain_len + key_len - value_len); }
  int64_t k_len() const { return n_kv_heads * key_len; }
  int64_t v_len() const { return n_kv_heads * value_len; }
  int64_t attention_len() const { return n_heads * value_len; }
  int64_t conv_state_len() const { return (conv_len - 1) * conv_channels; }
  bool is_recurrent() const { return recurrence != Recurrence::kNone; }
  bool has_ffn() const { return ffn_len > 0 || n_experts > 0; }
  // Of what a recurrent layer's first products give for a token, and of what its heads give.
  int64_t recurrent_in_len() const;
  int64_t recurrent_len() const;
  // Of what the layer's mixer gives for a token, before the product that all end in.
  int64_t mixed_len() const { return mixer == Mixer::kState ? recurrent_len() : attention_len(); }
  int64_t kv_group_len() const { return n_heads / n_kv_heads * value_len; }  // of the outputs of one KV head's queries
  void set_head_len(int64_t len) { key_len = value_len = len; }
  bool operator==(const LayerConfig&) const = default;
};

// One forward pass each; model/llama.cc, model/gemma.cc, model/gemma4.cc, model/post_norm.cc, model/parallel.cc,
// model/gpt.cc and model/bert.cc.
enum class Shape : uint8_t { kLlama, kGemma, kGemma4, kPostNorm, kParallel, kGpt, kBert };

// Of a feed-forward's gate; of its only projection, where it has no gate: in the gpt shape, and kRelu2 in any.
enum class FfnActivation : uint8_t { kSilu, kGeluTanh, kRelu2, kGelu };

struct ModelConfig {
  std::string architecture;  // as the file names it: "llama", "qwen2", "gemma3_text" ...
  Shape shape = Shape::kLlama;

  int64_t n_layers = 0;             // L
  int64_t width = 0;                // C
  int64_t vocab_size = 0;           // V
  int64_t trained_context_len = 0;  // tokens; the longest the file promises

  float norm_eps = 1e-5f;
  float attention_soft_cap = 0.0f;  // 0: none
  float logit_soft_cap = 0.0f;      // 0: none
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // of what a layer's two parts add (granite)
  float logit_scale = 1.0f;
  // A query at position p is multiplied by 1 + query_scale ln(1 + floor(p / query_scale_len)) (ministral 3). 0: it is
  // not.
  float query_scale = 0.0f;
  int64_t query_scale_len = 0;
  float norm_offset = 0.0f;              // added to every norm weight at load (gemma in safetensors: 1)
  bool output_norm_is_plain = false;     // but the last one's
  float post_norm_eps = 0.0f;            // of the gemma shape's norms after attention and feed-forward; 0: norm_eps
  bool embedding_norm_is_plain = false;  // embeddings have a norm without a weight

  // Layers after the last one, which draft further tokens (spec/heads/mtp_layer.h) and are no part of a forward pass.
  int64_t n_mtp_layers = 0;

  // Of the layers with experts, all alike. Its bias, of each layer, is a weight.
  Router router;
  bool router_bias = false;
  bool shared_gate = false;        // a token's shared experts are multiplied by a sigmoid of their own
  bool router_logit_bias = false;  // the router's product has a bias
  bool expert_bias = false;        // and so have the experts' products
  float expert_clamp = 0.0f;       // the limit of ops::clamped_silu_mul between them; 0: silu(gate) * up
  // Experts, not the router and the shared ones, read and give so many values, to and from which the layer has
  // products; 0: C.
  int64_t expert_latent_len = 0;

  // The switches of the llama shape.
  bool qkv_bias = false;
  bool qk_norm = false;
  bool qk_norm_whole = false;       // one norm over all heads together, not one for each
  bool qk_norm_after_rope = false;  // not before
  bool attention_gate = false;      // q has a gate beside each head, by whose sigmoid attention's output is multiplied
  bool attention_gate_apart = false;  // a product of its own gives that gate
  float query_norm = 0.0f;      // norms of heads without tensors: weights of queries are this, of keys 1; 0: tensors
  bool value_norm = false;      // of each head of values, without a weight
  bool sinks = false;           // each head has one (ops::AttentionParams)
  float alibi_bias_max = 0.0f;  // heads have slopes by it (model/alibi.h); 0: they have none
  float qkv_clip = 0.0f;        // the limit of queries, keys and values as they are projected; 0: none
  int64_t q_rank = 0;           // of latent layers: their queries go through so many values; 0: one product
  bool fused_qkv = false;       // one matrix [(H + 2 K) D, C]
  bool fused_gate_up = false;   // one matrix [2 F, C]
  bool tied_embedding = false;
  FfnActivation activation = FfnActivation::kSilu;  // of the gemma shape too
  // Each layer is a mixer or a feed-forward, with one norm (Nemotron-H); else it is both, with two.
  bool one_part_layers = false;
  bool conv_bias = false;  // of convolutions over time
  SsmNorm ssm_norm = SsmNorm::kNone;
  Multipliers multipliers;

  // Of each token and each layer a row of an embedding, which the layer adds (gemma 4).
  int64_t layer_embedding_len = 0;   // P; 0: none
  int64_t layer_embeddings_len = 0;  // L P: of all layers of the file, whichever are loaded
  TokenId picture_row = TokenId{0};  // whose rows of that embedding the cells of pictures have

  // Those of the gpt shape, whose norms subtract the mean.
  bool norm_bias = true;
  bool embedding_norm = false;  // of embeddings, before the first layer
  bool ffn_bias = false;
  bool learned_positions = false;  // a row for each of trained_context_len, added to the embedding; no RoPE

  bool attention_output_bias = false;
  // Those of the bert shape, which has every other bias too.
  bool gelu_by_tanh = false;
  int64_t n_token_types = 0;
  int64_t n_labels = 0;     // that its head scores; 0: it has none
  bool dense_head = false;  // a product [C, C] and tanh before the scores

  std::optional<Pooling> pooling;  // of a text's vector, where the file states it

  // The first so many layers add rows of pictures to those of their cells (Qwen3-VL's DeepStack).
  int64_t n_picture_layers = 0;

  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;  // [L]

  // The first layer with experts; null: there is none.
  const LayerConfig* first_with_experts() const {
    const auto at = std::ranges::find_if(layers, [](const LayerConfig& l) { return l.n_experts > 0; });
    return at == layers.end() ? nullptr : &*at;
  }
  // The first recurrent layer, whatever else it is; null: there is none.
  const LayerConfig* first_recurrent() const {
    const auto at = std::ranges::find_if(layers, &LayerConfig::is_recurrent);
    return at == layers.end() ? nullptr : &*at;
  }
  bool ffn_has_gate() const { return shape != Shape::kGpt && activation != FfnActivation::kRelu2; }
  int64_t expert_width() const { return expert_latent_len > 0 ? expert_latent_len : width; }
  // Whether rows of pictures may stand in the place of embeddings.
  bool takes_pictures() const {
    return (shape == Shape::kLlama || shape == Shape::kGemma || shape == Shape::kGemma4) && !learned_positions;
  }
  // Whether in some layer a picture's cells see those after them, so that all are computed in one step.
  bool sees_whole_pictures() const { return std::ranges::any_of(layers, &LayerConfig::sees_whole_pictures); }
  // Reads a text whole and in both directions, and makes no tokens.
  bool is_encoder() const { return shape == Shape::kBert; }
  // The first layer of this kind; null: there is none.
  const LayerConfig* first_with(Mixer mixer) const {
    const auto at = std::ranges::find(layers, mixer, &LayerConfig::mixer);
    return at == layers.end() ? nullptr : &*at;
  }
  // The most that `of` is in any layer: most(&LayerConfig::q_len).
  template <typename Of>
  int64_t most(Of of) const {
    int64_t most = 0;
    for (const LayerConfig& layer : layers) most = std::max<int64_t>(most, std::invoke(of, layer));
    return most;
  }
  int64_t n_parameters() const;              // of the forward pass, a tied embedding once
  int64_t n_parameters_used() const;         // by one token: of experts those that it uses
  int64_t kv_projection_parameters() const;  // of K and V over all layers (row K18)
};

Result<ModelConfig> read_config(const ModelFile& file);

// The types of keys and values that a folder's recipe asks for, as vLLM's --kv-cache-dtype auto: E4M3 or int8, with our
// scales instead of the folder's (kernels/kv_codes.h); F16 where it asks for none. An error names any other type.
Result<KvTypes> own_kv_types(const ModelFile& file);

// The checks that do not depend on the container; part of read_config.
Status validate(const ModelConfig& config);

}  // namespace ibid
