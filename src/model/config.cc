#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/quoted.h"
#include "format/quant_recipe.h"
#include "kernels/paged_kv.h"
#include "model/arch/architecture.h"

namespace ibid {
namespace {

// Far above every published model, far below where products of two of them overflow 64 bits.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 65536;  // also of heads together and of F: the longest sums that ops::linear takes
constexpr int64_t kMaxFfn = 65536;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPairs = kMaxHeadLen / 2;
constexpr int64_t kMaxContext = int64_t{1} << 28;
constexpr int64_t kMaxStateLen = 1024;  // rows and columns of a delta net's matrix
constexpr int64_t kMaxTaps = 64;        // of a convolution over time
constexpr int64_t kMaxTokenTypes = 65536;
constexpr double kMinFactor = 1e-6, kMaxFactor = 1e6;  // of angles, which must stay numbers

Status in_range(std::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return {};
  return invalid(
      "the model's " + std::string(what) + " is " + std::to_string(value) + "; expected 1 to " + std::to_string(max),
      std::string(what));
}

Status positive(std::string_view what, double value, double max) {
  if (std::isfinite(value) && value > 0 && value <= max) return {};
  return invalid("the model's " + std::string(what) + " is " + std::to_string(value) +
                     "; expected a positive number up to " + std::to_string(max),
                 std::string(what));
}

Status factor(std::string_view what, double value) {
  if (value >= kMinFactor && value <= kMaxFactor) return {};
  return invalid(
      "the model's " + std::string(what) + " is or holds " + std::to_string(value) + "; expected 0.000001 to 1000000",
      std::string(what));
}

Status all_positive(std::string_view what, const std::vector<double>& values, int n_pairs) {
  if (static_cast<int>(values.size()) != n_pairs) {
    return invalid("the model has " + std::to_string(values.size()) + " " + std::string(what) + " but its heads have " +
                       std::to_string(n_pairs) + " rotated pairs; expected one a pair",
                   std::string(what));
  }
  for (double v : values) TRY(factor(what, v));
  return {};
}

Status validate_rope(const RopeConfig& rope, const ModelConfig& config) {
  TRY(in_range("number of rotated pairs of a head", rope.n_pairs, kMaxPairs));
  TRY(positive("RoPE base", rope.base, 1e12));
  if (rope.n_turning < 0 || rope.n_turning > rope.n_pairs) {
    return invalid("the model turns " + std::to_string(rope.n_turning) + " of " + std::to_string(rope.n_pairs) +
                   " pairs of a head; expected at most all");
  }
  if (rope.base <= 1)
    return invalid("the model's RoPE base is " + std::to_string(rope.base) + "; expected more than 1");
  TRY(factor("RoPE scaling factor", rope.factor));
  if (!std::isfinite(rope.magnitude) || rope.magnitude < 0 || rope.magnitude > 100) {
    return invalid("the model's RoPE attention factor is " + std::to_string(rope.magnitude) +
                   "; expected a positive number up to 100");
  }
  if (!rope.divisors.empty()) {
    if (rope.scaling != RopeScaling::kNone) {
      return invalid("the model has RoPE frequency factors and " + std::string(rope_scaling_name(rope.scaling)) +
                         " scaling too; they exclude each other",
                     "rope_freqs.weight");
    }
    TRY(all_positive("RoPE frequency factors", rope.divisors, rope.n_pairs));
  }
  const bool wants_original = rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn ||
                              rope.scaling == RopeScaling::kLongrope;
  if (!wants_original) return {};
  TRY(in_range("original context of its RoPE scaling", rope.original_context, kMaxContext));
  if (rope.scaling == RopeScaling::kLlama3) {
    TRY(positive("RoPE low_freq_factor", rope.low_freq_factor, kMaxFactor));
    TRY(positive("RoPE high_freq_factor", rope.high_freq_factor, kMaxFactor));
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      return invalid("the model's RoPE high_freq_factor is not above its low_freq_factor, as llama-3 scaling needs");
    }
  }
  if (rope.scaling == RopeScaling::kYarn) {
    TRY(positive("RoPE beta_fast", rope.beta_fast, kMaxFactor));
    TRY(positive("RoPE beta_slow", rope.beta_slow, kMaxFactor));
    if (static_cast<double>(config.trained_context_len) >
        1.01 * rope.factor * static_cast<double>(rope.original_context)) {
      return invalid("the model promises " + std::to_string(config.trained_context_len) +
                     " tokens of context but its yarn scaling reaches " + std::to_string(rope.factor) + " times " +
                     std::to_string(rope.original_context) + "; the two must agree");
    }
  }
  if (rope.scaling == RopeScaling::kLongrope) {
    TRY(all_positive("longrope short factors", rope.short_factors, rope.n_pairs));
    TRY(all_positive("longrope long factors", rope.long_factors, rope.n_pairs));
    if (rope.original_context < 2 || rope.original_context > config.trained_context_len) {
      return invalid("the model's longrope scaling starts from " + std::to_string(rope.original_context) +
                     " tokens, outside 2 to its context of " + std::to_string(config.trained_context_len));
    }
  }
  return {};
}

Status validate_experts(const ModelConfig& config, const LayerConfig& layer, const std::string& of) {
  if (config.shape != Shape::kLlama && config.shape != Shape::kGemma4)
    return unsupported("experts" + of + ", in a model of this shape");
  TRY(in_range("number of experts" + of, layer.n_experts, kMaxExperts));
  TRY(in_range("number of experts that a token uses" + of, layer.n_experts_used,
               std::min<int64_t>(layer.n_experts, kMaxExpertsUsed)));
  TRY(in_range("width of an expert" + of, layer.expert_len, kMaxFfn));
  if (layer.ffn_len != 0) TRY(in_range("width of shared experts" + of, layer.ffn_len, kMaxFfn));
  const Router& router = config.router;
  TRY(in_range("number of groups of experts" + of, router.n_groups,
               std::min<int64_t>(layer.n_experts, kMaxExpertGroups)));
  TRY(in_range("number of groups of experts that a token uses" + of, router.groups_used, router.n_groups));
  if (layer.n_experts % router.n_groups != 0) {
    return invalid("the model's " + std::to_string(layer.n_experts) + " experts" + of + " do not part into " +
                   std::to_string(router.n_groups) + " equal groups");
  }
  if (layer.n_experts_used > layer.n_experts / router.n_groups * router.groups_used) {
    return invalid("a token uses " + std::to_string(layer.n_experts_used) + " experts" + of + " of " +
                   std::to_string(router.groups_used) + " groups, which have " +
                   std::to_string(layer.n_experts / router.n_groups * router.groups_used));
  }
  TRY(positive("scale of experts", router.scale, 1e6));
  if (config.expert_latent_len != 0)
    TRY(in_range("width of what experts read" + of, config.expert_latent_len, kMaxWidth));
  if (config.expert_clamp != 0) TRY(positive("limit of experts' gates", config.expert_clamp, 1e6));
  return {};
}

Status validate_latent(const ModelConfig& config, const LayerConfig& layer, const std::string& of) {
  if (config.shape != Shape::kLlama) return unsupported("latent attention" + of + ", in a model of this shape");
  const bool has_more = config.qkv_bias || config.qk_norm || config.fused_qkv || config.sinks ||
                        config.alibi_bias_max != 0 || config.qkv_clip != 0 || config.attention_output_bias ||
                        config.attention_soft_cap != 0;
  if (has_more)
    return unsupported("latent attention" + of + " with biases, norms or slopes of heads, sinks, a clip or a soft cap");
  if (layer.n_kv_heads != 1 || layer.kv_owner != kOwnCache || layer.value_len >= layer.key_len) {
    return invalid("the model's latent attention" + of + " keeps rows of " + std::to_string(layer.key_len) +
                   " that begin with " + std::to_string(layer.value_len) + " values, for " +
                   std::to_string(layer.n_kv_heads) + " heads; expected longer rows of its own, for one");
  }
  TRY(in_range("number of query heads" + of, layer.n_heads, kMaxExperts));
  TRY(in_range("values of a query that do not turn" + of, layer.plain_len, kMaxHeadLen));
  TRY(in_range("size of a head's output" + of, layer.out_len, kMaxHeadLen));
  if (config.q_rank != 0) TRY(in_range("rank of queries", config.q_rank, kMaxWidth));
  if (layer.rope != kNoRope) {
    const int64_t n_turned = 2 * int64_t{config.ropes[static_cast<size_t>(layer.rope)].n_pairs};
    if (n_turned != layer.key_len - layer.value_len) {
      return invalid("the model's RoPE turns " + std::to_string(n_turned) + " values of latent rows" + of +
                     ", which have " + std::to_string(layer.key_len - layer.value_len) + " for it");
    }
  }
  return {};
}

Status validate_ssm(const ModelConfig& config, const LayerConfig& layer, const std::string& of) {
  const SsmHeads& heads = layer.ssm;
  TRY(in_range("number of heads of its state space" + of, heads.n_heads, kMaxHeads));
  TRY(in_range("number of groups of its state space" + of, heads.n_groups, heads.n_heads));
  TRY(in_range("size of a head of its state space" + of, heads.head_len, kMaxStateLen));
  TRY(in_range("size of its state space" + of, heads.state_len, kMaxStateLen));
  TRY(in_range("width of all heads of its state space together" + of, heads.x_len(), kMaxWidth));
  CHECK(heads.n_heads % heads.n_groups == 0 && layer.conv_channels == heads.xbc_len(), "its parts fit");
  const Multipliers& m = config.multipliers;
  for (const float by : {m.query, m.key, m.value, m.attention, m.z, m.x, m.b, m.c, m.dt, m.ssm, m.gate, m.down}) {
    if (!std::isfinite(by) || std::fabs(by) > 1e6f) {
      return invalid("the model multiplies what a product gives by " + std::to_string(by) +
                     "; expected a number of at most 1000000");
    }
  }
  return {};
}

// Of a layer with nothing else, or beside attention.
Status validate_recurrent(const ModelConfig& config, const LayerConfig& layer, const std::string& of) {
  if (config.shape != Shape::kLlama || !layer.is_recurrent())
    return unsupported("the recurrent state" + of + " is of no kind that ibid runs in a model of this shape");
  if (layer.conv_len < 2 || layer.conv_len > kMaxTaps) {
    return invalid("the model's convolution over time" + of + " has " + std::to_string(layer.conv_len) +
                   " taps; expected 2 to " + std::to_string(kMaxTaps));
  }
  TRY(in_range("number of channels of its convolution over time" + of, layer.conv_channels, kMaxWidth));
  if (layer.recurrence == Recurrence::kDeltaNet) {
    const DeltaHeads& heads = layer.delta;
    TRY(in_range("number of value heads" + of, heads.n_value_heads, kMaxHeads));
    TRY(in_range("number of key heads" + of, heads.n_key_heads, heads.n_value_heads));
    TRY(in_range("size of a key head" + of, heads.key_len, kMaxStateLen));
    TRY(in_range("size of a value head" + of, heads.value_len, kMaxStateLen));
    TRY(in_range("width of all value heads together" + of, heads.v_len(), kMaxWidth));
    CHECK(heads.n_value_heads % heads.n_key_heads == 0 && layer.conv_channels == heads.qkv_len(), "its parts fit");
  }
  if (layer.recurrence == Recurrence::kMamba2) TRY(validate_ssm(config, layer, of));
  CHECK(layer.mixer == Mixer::kState || layer.recurrence == Recurrence::kMamba2,
        "the kind that attention may be beside");
  CHECK(layer.mixer == Mixer::kAttention || (layer.n_heads == 0 && layer.n_kv_heads == 0), "no heads of attention");
  CHECK(layer.kv_owner == kOwnCache, "a state cannot be another's");
  CHECK(layer.recurrence != Recurrence::kShortConv || layer.conv_channels == config.width, "it runs over the stream");
  CHECK(layer.state_len == layer.conv_state_len() + layer.delta.state_len() + layer.ssm.n_values(),
        "what its parts keep");
  return {};
}

// Of layer l. Sentences name the layer where it is not as those before it.
Status validate_layer(const ModelConfig& config, size_t l) {
  const LayerConfig& layer = config.layers[l];
  const std::string of = l == 0 ? "" : " of layer " + std::to_string(l);
  if (config.one_part_layers) {
    if ((layer.mixer == Mixer::kNone) != layer.has_ffn()) {
      return invalid("layer " + std::to_string(l) + " of the model has " +
                     (layer.has_ffn() ? "a feed-forward beside what mixes its tokens" : "no part") +
                     "; expected one part a layer");
    }
  } else if (layer.mixer == Mixer::kNone) {
    return unsupported("layer " + std::to_string(l) + " mixes its tokens by " + std::string(mixer_name(layer.mixer)) +
                       ", which ibid does not run yet");
  }
  const bool has_ffn = !config.one_part_layers || layer.has_ffn();
  if (layer.n_experts == 0 && has_ffn) TRY(in_range("feed-forward width" + of, layer.ffn_len, kMaxFfn));
  if (layer.n_experts != 0) TRY(validate_experts(config, layer, of));
  if (layer.mixer == Mixer::kNone) return {};
  if (layer.mixer == Mixer::kState || layer.is_recurrent()) TRY(validate_recurrent(config, layer, of));
  if (layer.mixer == Mixer::kState) return {};
  TRY(in_range("number of query heads" + of, layer.n_heads, kMaxHeads));
  TRY(in_range("number of key/value heads" + of, layer.n_kv_heads, kMaxHeads));
  TRY(in_range("head size" + of, layer.key_len, kMaxHeadLen));
  TRY(in_range("head size of values" + of, layer.value_len, kMaxHeadLen));
  const bool is_latent = layer.mixer == Mixer::kLatent;
  const int64_t widest = is_latent ? std::max(layer.latent_q_len(), layer.n_heads * layer.out_len)
                                   : std::max(layer.q_len(), layer.attention_len());
  TRY(in_range("width of all heads together" + of, widest, kMaxWidth));
  if (is_latent) TRY(validate_latent(config, layer, of));
  if (layer.n_heads % layer.n_kv_heads != 0) {
    return invalid("the model has " + std::to_string(layer.n_heads) + " query heads and " +
                   std::to_string(layer.n_kv_heads) + " key/value heads" + of +
                   "; the first must be a multiple of the second");
  }
  for (const int64_t len : {layer.key_len, layer.value_len}) {
    if (len % 8 == 0) continue;
    return unsupported("the model's head size" + of + " is " + std::to_string(len) + "; ibid runs multiples of 8");
  }
  TRY(positive("attention scale" + of, layer.attention_scale, 1e4));
  if (layer.value_is_key && layer.key_len != layer.value_len) {
    return invalid("the model's values" + of + " are its keys, of another length");
  }
  if (layer.window < 0) return invalid("the model's sliding window is negative; expected 1 or more");
  CHECK(layer.rope == kNoRope || layer.rope < static_cast<int>(config.ropes.size()));
  if (layer.rope != kNoRope) {
    TRY(in_range("number of rotated pairs of a head" + of, config.ropes[static_cast<size_t>(layer.rope)].n_pairs,
                 layer.key_len / 2));
  }
  if (layer.kv_owner == kOwnCache) return {};
  const bool is_before = layer.kv_owner >= 0 && layer.kv_owner < static_cast<int64_t>(l);
  const LayerConfig& owner = config.layers[is_before ? static_cast<size_t>(layer.kv_owner) : l];
  if (!is_before || owner.kv_owner != kOwnCache || owner.n_kv_heads != layer.n_kv_heads ||
      owner.key_len != layer.key_len || owner.value_len != layer.value_len) {
    return invalid("layer " + std::to_string(l) + " reads the keys and values of layer " +
                   std::to_string(layer.kv_owner) + "; expected an earlier one with a cache of the same heads");
  }
  if (config.fused_qkv) return unsupported("a model with a fused q, k, v and layers that read another's cache");
  return {};
}

}  // namespace

std::string_view mixer_name(Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention:
      return "attention";
    case Mixer::kLatent:
      return "latent attention";
    case Mixer::kState:
      return "a recurrent state";
    case Mixer::kNone:
      return "nothing";
  }
  return "?";
}

std::string_view rope_scaling_name(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone:
      return "none";
    case RopeScaling::kLinear:
      return "linear";
    case RopeScaling::kLlama3:
      return "llama3";
    case RopeScaling::kYarn:
      return "yarn";
    case RopeScaling::kLongrope:
      return "longrope";
  }
  return "?";
}

int64_t LayerConfig::recurrent_in_len() const {
  switch (recurrence) {
    case Recurrence::kNone:
      break;
    case Recurrence::kShortConv:
      return 3 * conv_channels;
    case Recurrence::kDeltaNet:
      return delta.qkv_len();
    case Recurrence::kMamba2:
      return ssm.x_len() + ssm.xbc_len() + ssm.n_heads;
  }
  return 0;
}

int64_t LayerConfig::recurrent_len() const {
  switch (recurrence) {
    case Recurrence::kNone:
      break;
    case Recurrence::kShortConv:
      return conv_channels;
    case Recurrence::kDeltaNet:
      return delta.v_len();
    case Recurrence::kMamba2:
      return ssm.x_len();
  }
  return 0;
}

int64_t ModelConfig::kv_projection_parameters() const {
  int64_t n = 0;
  for (const LayerConfig& l : layers) {
    if (l.mixer == Mixer::kLatent) {
      n += l.key_len * width + l.n_heads * (l.plain_len + l.out_len) * l.value_len;
    } else if (l.kv_owner == kOwnCache) {
      n += (l.k_len() + (l.value_is_key ? 0 : l.v_len())) * width;
    }
  }
  return n;
}

namespace {

// Of a layer's feed-forward, `n_experts` of its experts counted.
int64_t ffn_parameters(const ModelConfig& c, const LayerConfig& l, int64_t n_experts) {
  const int64_t n_products = c.ffn_has_gate() ? 3 : 2;
  int64_t n = n_products * c.width * l.ffn_len;
  if (l.n_experts == 0) return n;
  n += 2 * c.width * c.expert_latent_len;
  n += (n_products * c.expert_width() * l.expert_len + (c.expert_bias ? 2 * l.expert_len + c.width : 0)) * n_experts;
  n += l.n_experts * (c.width + (c.router_bias ? 1 : 0) + (c.router_logit_bias ? 1 : 0));
  return n + (c.shared_gate && l.ffn_len > 0 ? c.width : 0);
}

// Vectors [C] of a layer's norms.
int64_t norms_of(const ModelConfig& c) {
  if (c.shape == Shape::kParallel) return 1;
  const bool has_biases = c.shape == Shape::kGpt && c.norm_bias;
  return c.shape == Shape::kGemma || c.shape == Shape::kGemma4 || has_biases ? 4 : 2;
}

// Queries and outputs; and norms within.
int64_t mixer_parameters(const ModelConfig& c, const LayerConfig& l) {
  if (l.recurrence == Recurrence::kShortConv) return (4 * c.width + l.conv_len) * l.conv_channels;
  if (l.recurrence == Recurrence::kDeltaNet) {
    const DeltaHeads& d = l.delta;
    return (d.qkv_len() + 2 * d.v_len() + 2 * d.n_value_heads) * c.width + l.conv_len * l.conv_channels +
           2 * d.n_value_heads + d.value_len;
  }
  if (l.mixer == Mixer::kNone) return 0;
  int64_t n_beside = 0;
  if (l.recurrence == Recurrence::kMamba2) {
    const SsmHeads& s = l.ssm;
    n_beside = (s.x_len() + s.xbc_len() + s.n_heads + s.x_len()) * c.width +
               (l.conv_len + (c.conv_bias ? 1 : 0)) * l.conv_channels + 3 * s.n_heads +
               (c.ssm_norm == SsmNorm::kNone ? 0 : s.x_len());
    if (l.mixer == Mixer::kState) return n_beside;
  }
  if (l.mixer == Mixer::kLatent) {
    const int64_t q = c.q_rank > 0 ? c.q_rank * (c.width + 1 + l.latent_q_len()) : c.width * l.latent_q_len();
    return q + l.value_len + l.n_heads * l.out_len * c.width;
  }
  return n_beside + ((c.attention_gate || c.attention_gate_apart ? 2 : 1) * l.q_len() + l.attention_len()) * c.width;
}

}  // namespace

int64_t ModelConfig::n_parameters_used() const {
  int64_t n = n_parameters();
  for (const LayerConfig& l : layers)
    n -= ffn_parameters(*this, l, l.n_experts) - ffn_parameters(*this, l, l.n_experts_used);
  return n;
}

int64_t ModelConfig::n_parameters() const {
  if (is_encoder()) {
    int64_t n = (vocab_size + trained_context_len + n_token_types + 2) * width;
    for (const LayerConfig& l : layers) n += 4 * width * width + (2 * width + 1) * l.ffn_len + 9 * width;
    return n + (dense_head ? width * width + width : 0) + n_labels * (width + 1);
  }
  int64_t n = (tied_embedding ? 1 : 2) * vocab_size * width + width + kv_projection_parameters();
  for (const LayerConfig& l : layers) {
    const bool owns = l.kv_owner == kOwnCache;
    n += mixer_parameters(*this, l) + ffn_parameters(*this, l, l.n_experts) +
         (one_part_layers ? 1 : norms_of(*this)) * width;
    if (shape == Shape::kGemma4) n += 1 + (l.n_experts > 0 ? 4 * width + l.n_experts : 0);
    if (attention_output_bias) n += width;
    if (ffn_bias) n += l.ffn_len + width;
    if (qkv_bias) n += l.q_len() + (owns ? l.k_len() + l.v_len() : 0);
    n += sinks ? l.n_heads : 0;
    if (qk_norm) n += qk_norm_whole ? l.q_len() + (owns ? l.k_len() : 0) : (owns ? 2 : 1) * l.key_len;
  }
  if (shape == Shape::kGpt) n += (norm_bias ? 1 + embedding_norm : 0) * width;
  if (embedding_norm) n += width;
  if (learned_positions) n += trained_context_len * width;
  if (layer_embedding_len > 0) {
    n += layer_embeddings_len * (vocab_size + width) + layer_embedding_len;
    n += n_layers * (2 * layer_embedding_len + 1) * width;
  }
  return n;
}

Status validate(const ModelConfig& config) {
  TRY(in_range("number of layers", config.n_layers, kMaxLayers));
  TRY(in_range("width", config.width, kMaxWidth));
  if (static_cast<int64_t>(config.layers.size()) != config.n_layers) {
    return invalid("the model describes " + std::to_string(config.layers.size()) + " layers but states that it has " +
                   std::to_string(config.n_layers));
  }
  for (size_t l = 0; l < config.layers.size(); ++l) {
    if (l == 0 || config.layers[l] != config.layers[l - 1]) TRY(validate_layer(config, l));
  }
  if (config.first_with(Mixer::kAttention) == nullptr && config.first_with(Mixer::kLatent) == nullptr)
    return unsupported("none of the model's layers attends; ibid runs recurrent layers beside those that do");
  TRY(in_range("vocabulary size", config.vocab_size, kMaxVocabulary));
  TRY(in_range("context", config.trained_context_len, kMaxContext));
  TRY(positive("norm epsilon", config.norm_eps, 1.0));
  TRY(positive("embedding scale", config.embedding_scale, 1e6));
  TRY(positive("scale of residuals", config.residual_scale, 1e6));
  TRY(positive("scale of logits", config.logit_scale, 1e6));
  if (config.shape != Shape::kLlama && config.residual_scale != 1)
    return unsupported("a model of this shape with a scale of residuals");
  if (config.query_scale != 0) {
    TRY(positive("scale of queries by their position", config.query_scale, 1e3));
    TRY(in_range("positions between two scales of queries", config.query_scale_len, kMaxContext));
  }
  if (config.layer_embedding_len != 0) {
    TRY(in_range("width of a layer's embedding", config.layer_embedding_len, kMaxWidth));
    TRY(in_range("width of all layers' embeddings", config.layer_embeddings_len, kMaxVocabulary));
  }
  for (float cap : {config.attention_soft_cap, config.logit_soft_cap}) {
    if (cap != 0) TRY(positive("soft cap", cap, 1e6));
  }
  if (config.alibi_bias_max != 0) TRY(positive("highest exponent of slopes (ALiBi)", config.alibi_bias_max, 100));
  if (config.qkv_clip != 0) TRY(positive("limit of queries, keys and values", config.qkv_clip, 1e6));
  if (config.is_encoder()) {
    const bool fit = std::ranges::all_of(config.layers, [&](const LayerConfig& l) {
      return l.q_len() == config.width && l.attention_len() == config.width && l.n_kv_heads == l.n_heads;
    });
    if (!fit)
      return unsupported("the encoder's heads are not " + std::to_string(config.width) +
                         " wide together, as its texts are");
    if (config.n_token_types != 0) TRY(in_range("number of token types", config.n_token_types, kMaxTokenTypes));
    if (config.n_labels != 0) TRY(in_range("number of labels", config.n_labels, config.vocab_size));
  }
  for (const LayerConfig& layer : config.layers) {
    if (config.attention_gate && (layer.key_len != layer.value_len || config.fused_qkv))
      return unsupported(
          "a gate of attention's output whose heads are not as long as its keys, or with a fused q, k, v");
  }
  if (config.qk_norm && config.fused_qkv) return unsupported("a model with a fused q, k, v and norms of q and k");
  for (const RopeConfig& rope : config.ropes) TRY(validate_rope(rope, config));
  return {};
}

Result<ModelConfig> read_config(const ModelFile& file) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(file));
  const bool gguf = file.container() == Container::kGguf;
  ASSIGN_OR_RETURN(ModelConfig config, gguf ? architecture->from_gguf(file) : architecture->from_folder(file));
  TRY(validate(config));
  TRY(read_quant_recipe(file));
  return config;
}

Result<KvTypes> own_kv_types(const ModelFile& file) {
  ASSIGN_OR_RETURN(const QuantRecipe recipe, read_quant_recipe(file));
  if (recipe.kv_type.empty()) return KvTypes();
  if (recipe.kv_type == "FP8") return KvTypes(KvType::kF8);
  if (recipe.kv_type == "INT8") return KvTypes(KvType::kI8);
  return unsupported(file.path() + ": its keys and values are of type " + in_quotes(recipe.kv_type) +
                         ", which ibid does not have; choose one of " + std::string(kKvTypeNames),
                     "kv_dtype");
}

}  // namespace ibid
