#include "model/config.h"

#include <cmath>
#include <string>

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
constexpr int64_t kMaxContext = int64_t{1} << 28;
constexpr int64_t kMaxTokenTypes = 65536;
constexpr double kMinFactor = 1e-6, kMaxFactor = 1e6;  // of angles, which must stay numbers

Status in_range(std::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return {};
  return invalid("the model's " + std::string(what) + " is " + std::to_string(value) + "; from 1 to " +
                     std::to_string(max) + " would do",
                 std::string(what));
}

Status positive(std::string_view what, double value, double max) {
  if (std::isfinite(value) && value > 0 && value <= max) return {};
  return invalid("the model's " + std::string(what) + " is " + std::to_string(value) + "; a positive number up to " +
                     std::to_string(max) + " would do",
                 std::string(what));
}

Status factor(std::string_view what, double value) {
  if (value >= kMinFactor && value <= kMaxFactor) return {};
  return invalid("the model's " + std::string(what) + " is or holds " + std::to_string(value) +
                     "; from 0.000001 to 1000000 would do",
                 std::string(what));
}

Status all_positive(std::string_view what, const std::vector<double>& values, int n_pairs) {
  if (static_cast<int>(values.size()) != n_pairs) {
    return invalid("the model has " + std::to_string(values.size()) + " " + std::string(what) + " but its heads have " +
                       std::to_string(n_pairs) + " rotated pairs; one a pair would do",
                   std::string(what));
  }
  for (double v : values) TRY(factor(what, v));
  return {};
}

Status validate_rope(const RopeConfig& rope, const ModelConfig& config) {
  TRY(in_range("number of rotated pairs of a head", rope.n_pairs, config.head_len / 2));
  TRY(positive("RoPE base", rope.base, 1e12));
  if (rope.base <= 1)
    return invalid("the model's RoPE base is " + std::to_string(rope.base) + "; more than 1 would do");
  TRY(factor("RoPE scaling factor", rope.factor));
  if (!std::isfinite(rope.magnitude) || rope.magnitude < 0 || rope.magnitude > 100) {
    return invalid("the model's RoPE attention factor is " + std::to_string(rope.magnitude) +
                   "; a positive number up to 100 would do");
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

}  // namespace

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

int64_t ModelConfig::kv_projection_parameters() const { return n_layers * 2 * kv_len() * width; }

int64_t ModelConfig::n_parameters() const {
  if (is_encoder()) {
    const int64_t layer = 4 * width * width + 4 * width + 2 * width * ffn_len + ffn_len + width + 4 * width;
    const int64_t head = (dense_head ? width * width + width : 0) + n_labels * (width + 1);
    return n_layers * layer + (vocab_size + trained_context_len + n_token_types + 2) * width + head;
  }
  int64_t layer = 2 * q_len() * width + 2 * kv_len() * width + 3 * width * ffn_len;
  layer += (shape == Shape::kGemma ? 4 : 2) * width;
  if (qkv_bias) layer += q_len() + 2 * kv_len();
  if (qk_norm) layer += 2 * head_len;
  return n_layers * layer + (tied_embedding ? 1 : 2) * vocab_size * width + width;
}

Status validate(const ModelConfig& config) {
  TRY(in_range("number of layers", config.n_layers, kMaxLayers));
  TRY(in_range("width", config.width, kMaxWidth));
  TRY(in_range("feed-forward width", config.ffn_len, kMaxFfn));
  TRY(in_range("number of query heads", config.n_heads, kMaxHeads));
  TRY(in_range("number of key/value heads", config.n_kv_heads, kMaxHeads));
  TRY(in_range("head size", config.head_len, kMaxHeadLen));
  TRY(in_range("vocabulary size", config.vocab_size, kMaxVocabulary));
  TRY(in_range("context", config.trained_context_len, kMaxContext));
  TRY(in_range("width of all heads together", config.q_len(), kMaxWidth));
  if (config.n_heads % config.n_kv_heads != 0) {
    return invalid("the model has " + std::to_string(config.n_heads) + " query heads and " +
                   std::to_string(config.n_kv_heads) + " key/value heads; the first must be a multiple of the second");
  }
  if (config.head_len % 8 != 0) {
    return unsupported("the model's head size is " + std::to_string(config.head_len) + "; ibid runs multiples of 8");
  }
  TRY(positive("norm epsilon", config.norm_eps, 1.0));
  TRY(positive("attention scale", config.attention_scale, 1e4));
  TRY(positive("embedding scale", config.embedding_scale, 1e6));
  for (float cap : {config.attention_soft_cap, config.logit_soft_cap}) {
    if (cap != 0) TRY(positive("soft cap", cap, 1e6));
  }
  if (config.is_encoder()) {
    if (config.q_len() != config.width || config.n_kv_heads != config.n_heads)
      return unsupported("the encoder's heads are not " + std::to_string(config.width) +
                         " wide together, as its texts are");
    if (config.n_token_types != 0) TRY(in_range("number of token types", config.n_token_types, kMaxTokenTypes));
    if (config.n_labels != 0) TRY(in_range("number of labels", config.n_labels, config.vocab_size));
  }
  if (config.qk_norm && config.fused_qkv) return unsupported("a model with a fused q, k, v and norms of q and k");
  for (const RopeConfig& rope : config.ropes) TRY(validate_rope(rope, config));
  if (static_cast<int64_t>(config.layers.size()) != config.n_layers) {
    return invalid("the model describes " + std::to_string(config.layers.size()) + " layers but says that it has " +
                   std::to_string(config.n_layers));
  }
  for (const LayerConfig& layer : config.layers) {
    if (layer.window < 0) return invalid("the model's sliding window is negative; 1 or more would do");
    CHECK(layer.rope == kNoRope || layer.rope < static_cast<int>(config.ropes.size()));
  }
  return {};
}

Result<ModelConfig> read_config(const ModelFile& file) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(file));
  const bool gguf = file.container() == Container::kGguf;
  ASSIGN_OR_RETURN(ModelConfig config, gguf ? architecture->from_gguf(file) : architecture->from_folder(file));
  TRY(validate(config));
  return config;
}

}  // namespace ibid
