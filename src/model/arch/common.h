// What the architectures' mappings share: the keys that all of them have, under GGUF's names ("llama.block_count") and
// under those of config.json ("num_hidden_layers", or "text_config.num_hidden_layers").
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid::arch {

// Whether an architecture's mapping reads the keys of experts; else a file that has some is refused.
enum class Experts : uint8_t { kRefused, kRead };
// Fills sizes of each layer, norm, context, scale 1 / sqrt(Dk), one RoPE that all layers use, no windows, no experts.
// `mixer`: of all layers, and so whether yarn's log multiplier is read.
Result<ModelConfig> common_from_gguf(const ModelFile& file, Shape shape, bool interleaved,
                                     Experts experts = Experts::kRefused, Mixer mixer = Mixer::kAttention);
// The same without the results of the vocabulary's tensors (vocab_size, tied_embedding), for a file without any.
Result<ModelConfig> layers_from_gguf(const ModelFile& file, Shape shape, bool interleaved,
                                     Experts experts = Experts::kRefused, Mixer mixer = Mixer::kAttention);

// Experts as GGUF describes them: the keys `arch`.expert_*; a layer with a router has some. `router`: what the
// architecture means where a key is absent.
Status experts_from_gguf(const ModelFile& file, const Router& router, ModelConfig& config);
// What config.json lacks about an architecture's experts.
struct FolderExperts {
  Router router = {};      // where a key is absent
  bool reads_norm = true;  // norm_topk_prob; false: the architecture has no such choice
  bool has_bias = false;   // of the choice
  bool shared_gate = false;
  std::string_view shared_count{};  // the key of how many shared experts there are, each as wide as an expert
  std::string_view shared_len{};    // or that of their width together
};
Status experts_from_folder(const ModelFile& file, const std::string& prefix, const FolderExperts& kind,
                           ModelConfig& config);

// How texts are pooled, by GGUF's numbers of the kinds; nullopt: the file does not specify it.
Result<std::optional<Pooling>> pooling_from_gguf(const ModelFile& file, const std::string& key);

// Values for keys that config.json may leave out; 0: must be given.
struct FolderDefaults {
  int64_t n_layers = 0, n_heads = 0, n_kv_heads = 0, head_len = 0, vocab_size = 0, trained_context_len = 0;
  double norm_eps = 0.0;
  std::string_view norm_eps_key = "rms_norm_eps";
  bool tied_embedding = false;
  std::string_view ffn_len_key = "intermediate_size";
  Experts experts = Experts::kRefused;
  bool reads_mxfp4 = false;  // quantised experts as gpt-oss keeps them, and no others
};
// `prefix` is "" or "text_config.". RoPE is read apart (rope_from_folder).
Result<ModelConfig> common_from_folder(const ModelFile& file, Shape shape, const std::string& prefix,
                                       const FolderDefaults& defaults = {});

// RoPE as GGUF describes it, of heads as the first layer's: `arch`.rope.*, rope_freqs.weight,
// rope_factors_{short,long}.weight.
Result<RopeConfig> rope_from_gguf(const ModelFile& file, const ModelConfig& config, bool interleaved);
// RoPE as config.json describes it, of heads as the first layer's, in the old form (rope_theta, rope_scaling) or the
// new (rope_parameters). `parameters` is the object's key, e.g. "rope_parameters" or "rope_parameters.full_attention".
Result<RopeConfig> rope_from_folder(const ModelFile& file, const ModelConfig& config, const std::string& prefix,
                                    const std::string& parameters, double default_base);

// M-RoPE: which of three positions each pair of the first RoPE turns by (RopeConfig::axes); one axis where the file has
// no sections. `in_turn`: as Qwen3-VL deals the pairs; a folder states it.
Status rope_axes_from_gguf(const ModelFile& file, bool in_turn, ModelConfig& config);
Status rope_axes_from_folder(const ModelFile& file, const std::string& prefix, ModelConfig& config);
// The first n layers add rows of pictures (ModelConfig::n_picture_layers), as `key` states.
Status set_picture_layers(int64_t n, const std::string& key, ModelConfig& config);

// How many layers draft further tokens (ModelConfig::n_mtp_layers), as `key` states: none to `most`.
inline constexpr int64_t kMostMtpLayers = 64;
Status check_mtp_layers(const ModelConfig& config, const std::string& key, int64_t most);

// Makes an attention layer a short convolution over the stream, of `conv_len` taps.
void set_short_conv(const ModelConfig& config, int64_t conv_len, LayerConfig& layer);

// A size that the file must give, 1 to `most`.
Result<int64_t> bounded_size(const ModelFile& file, const std::string& key, int64_t most);

// Makes an attention layer one with another mixer, or with none: its attention's sizes are 0.
void set_no_attention(Mixer mixer, LayerConfig& layer);

// A state space as all layers of a model have it.
struct Mamba2Sizes {
  SsmHeads heads;
  int64_t conv_len = 0;
  Status put(LayerConfig& layer) const;  // its recurrence; the layer's mixer stays
};
// By the keys `arch`.ssm.*. Sets config.conv_bias.
Result<Mamba2Sizes> mamba2_from_gguf(const ModelFile& file, ModelConfig& config);
// Keys of config.json. Where it has no head_len, H P is `inner`, else `expand` times the width.
struct Mamba2Keys {
  std::string n_heads, n_groups, state_len, conv_len, head_len{}, inner{}, expand{}, conv_bias, proj_bias;
  int64_t usual_groups = 1, usual_state_len = 128;
};
// Sets config.conv_bias; refuses biases of the products and limits of steps.
Result<Mamba2Sizes> mamba2_from_folder(const ModelFile& file, const Mamba2Keys& keys, ModelConfig& config);
Status steps_must_be_unlimited(const ModelFile& file);

// Makes an attention layer a gated delta net with a convolution of `conv_len` taps; sizes are at least 1.
Status set_delta_net(const DeltaHeads& heads, int64_t conv_len, LayerConfig& layer);

// Of gpt-2 and its like, whose config.json has names of its own: layers that are all alike, heads as wide as the model
// together, no RoPE. `config` has n_layers, width and the context, `layer` its heads and ffn_len; the widths are
// checked.
Status set_gpt_layers(const LayerConfig& layer, ModelConfig& config);

// Windows of layers from `layer_types`, where config.json has them: "sliding_attention" gets `window`.
Status windows_from_layer_types(const ModelFile& file, const std::string& prefix, int64_t window, ModelConfig& config);
void set_all_windows(ModelConfig& config, int64_t window);
// A window as a file gives it: absent, null, 0 or as long as the context: none.
Result<int64_t> read_window(const ModelFile& file, const std::string& key);

// Windows as `arch`.attention.sliding_window and sliding_window_pattern describe them: a flag for each layer, or a
// period n whose last layer sees everything; `period` where the pattern's key is absent.
Status windows_from_gguf(const ModelFile& file, int64_t period, ModelConfig& config);
// Every `period`th layer sees everything, the others `window` positions.
Status windows_by_period(int64_t period, int64_t window, ModelConfig& config);

// What granite multiplies embeddings, residuals, scores and logits by; logits are divided by theirs. Absent: 1.
Status granite_scales_from_gguf(const ModelFile& file, ModelConfig& config);
Status granite_scales_from_folder(const ModelFile& file, ModelConfig& config);

// Of a model without RoPE.
void set_no_rope(ModelConfig& config);
// An error unless a list of `n_types` types, which `key` gives, has one for each layer.
Status check_layer_types(size_t n_types, int64_t n_layers, const std::string& key);

// Refuses a key whose value is anything but the one that our forward pass does.
Status flag_must_be(const ModelFile& file, const std::string& key, bool value);
Status must_be(const ModelFile& file, const std::string& key, std::string_view value);

}  // namespace ibid::arch
