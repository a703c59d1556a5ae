#include "model/testing/tiny_model.h"

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "model/arch/common.h"
#include "model/gguf_form.h"
#include "model/testing/config_as_gguf.h"
#include "tensor/half.h"
#include "tensor/quantise.h"

namespace ibid::testing {
namespace {

constexpr std::array<std::string_view, 29> kArchitectures = {
    "llama",          "mistral",   "qwen2",    "qwen3",  "smollm3",     "phi3",       "gemma3",        "qwen3moe",
    "qwen2moe",       "glm4moe",   "lfm2",     "qwen35", "qwen3next",   "ministral3", "olmo3",         "gemma4",
    "glm4",           "cohere2",   "nemotron", "gpt2",   "gpt_oss",     "deepseek2",  "granitehybrid", "nemotron_h",
    "nemotron_h_moe", "falcon_h1", "bloom",    "mpt",    "muse_glimmer"};
constexpr std::array<DType, 16> kDTypes = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                                           DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                                           DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                           DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
constexpr std::array<DType, 12> kLowBitDTypes = {DType::kIQ1_S, DType::kIQ1_M,   DType::kIQ2_XXS, DType::kIQ2_XS,
                                                 DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S,   DType::kTQ1_0,
                                                 DType::kTQ2_0, DType::kNVFP4,   DType::kQ1_0,    DType::kQ2_0};

// splitmix64 (Steele et al.): a stream of 64-bit numbers from a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // Variance 1, nearly normal: the sum of four uniform numbers.
  float normal() {
    const uint64_t bits = next();
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>((bits >> (16 * i)) & 0xffff) / 65536.0f - 0.5f;
    return sum * 1.7320508f;
  }

 private:
  uint64_t state_;
};

uint64_t hash_name(std::string_view name, uint64_t seed) {
  uint64_t h = seed * 0x9e3779b97f4a7c15u + 1469598103934665603u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

// Formats that quantise_row cannot write: random codes under small scales. Where the 16-bit scales lie in a block, and
// what one step of them is worth.
struct RandomBlock {
  DType dtype;
  std::array<int, 2> scales;  // offsets of halves; -1: none
  float scale, min;
};
constexpr std::array<RandomBlock, 17> kRandomBlocks = {{{DType::kQ2_K, {80, 82}, 0.006f, 0.006f},
                                                        {DType::kQ3_K, {108, -1}, 0.002f, 0},
                                                        {DType::kQ4_K, {0, 2}, 0.0003f, 0.002f},
                                                        {DType::kQ5_K, {0, 2}, 0.00015f, 0.002f},
                                                        {DType::kQ6_K, {208, -1}, 0.00004f, 0},
                                                        {DType::kIQ4_NL, {0, -1}, 0.001f, 0},
                                                        {DType::kIQ4_XS, {0, -1}, 0.00005f, 0},
                                                        {DType::kIQ1_S, {0, -1}, 0.008f, 0},
                                                        {DType::kIQ2_XXS, {0, -1}, 0.001f, 0},
                                                        {DType::kIQ2_XS, {0, -1}, 0.001f, 0},
                                                        {DType::kIQ2_S, {0, -1}, 0.001f, 0},
                                                        {DType::kIQ3_XXS, {0, -1}, 0.0005f, 0},
                                                        {DType::kIQ3_S, {0, -1}, 0.0005f, 0},
                                                        {DType::kTQ1_0, {52, -1}, 0.08f, 0},
                                                        {DType::kTQ2_0, {64, -1}, 0.05f, 0},
                                                        {DType::kQ1_0, {0, -1}, 0.06f, 0},
                                                        {DType::kQ2_0, {0, -1}, 0.05f, 0}}};

void random_row(DType dtype, Random& random, std::byte* row, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) row[i] = static_cast<std::byte>(random.next() >> 56);
  const int64_t block = traits(dtype).block_bytes;
  for (int64_t at = 0; at < bytes; at += block) {
    if (dtype == DType::kMXFP4) row[at] = std::byte{static_cast<uint8_t>(122 + (random.next() & 1))};
    if (dtype == DType::kNVFP4) {
      for (int i = 0; i < 4; ++i) row[at + i] = std::byte{static_cast<uint8_t>(8 + (random.next() & 7))};
    }
    if (dtype == DType::kIQ1_M) {  // 0.008 in the high halves of four words
      constexpr uint8_t kHigh[] = {0x00, 0x10, 0x00, 0x20};
      for (int i = 0; i < 4; ++i) row[at + 49 + 2 * i] = (row[at + 49 + 2 * i] & std::byte{15}) | std::byte{kHigh[i]};
    }
    for (const RandomBlock& r : kRandomBlocks) {
      if (r.dtype != dtype) continue;
      const float wobble = 0.75f + 0.5f * static_cast<float>(random.next() >> 40) / 16777216.0f;
      for (int i = 0; i < 2; ++i) {
        const int offset = r.scales[static_cast<size_t>(i)];
        if (offset < 0) continue;
        const uint16_t half = float_to_half((i == 0 ? r.scale : r.min) * wobble);
        std::memcpy(row + at + offset, &half, 2);
      }
    }
  }
}

int64_t n_rows(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) n *= dims[i];
  return n;
}

void fill(const TensorSpec& spec, DType dtype, Random& random, std::byte* out) {
  using Kind = TensorSpec::Kind;
  const int64_t columns = spec.dims.back(), rows = n_rows(spec.dims);
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    std::byte* to = out + r * row_bytes(dtype, columns);
    if (std::ranges::count(kLowBitDTypes, dtype) > 0) {
      random_row(dtype, random, to, row_bytes(dtype, columns));
      continue;
    }
    const float scale = spec.kind == Kind::kMatrix      ? 1.3f / std::sqrt(static_cast<float>(columns))
                        : spec.kind == Kind::kEmbedding ? 0.6f
                        : spec.kind == Kind::kRouter    ? 1.0f
                        : spec.kind == Kind::kTaps      ? 0.6f
                                                        : 0.2f;
    const bool is_decay = spec.kind == Kind::kDecay;
    for (float& x : row)
      x = is_decay ? -0.05f - std::fabs(random.normal())
                   : (spec.kind == Kind::kNorm ? 1.0f : 0.0f) + scale * random.normal();
    quantise_row(dtype, row.data(), to, columns);
  }
}

// The printable alphabet of byte-level BPE: visible Latin-1 as itself, the other bytes from U+0100 on.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool visible = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    const int code = visible ? b : next++;
    tokens.push_back(code < 128
                         ? std::string(1, static_cast<char>(code))
                         : std::string{static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))});
  }
  return tokens;
}

void put_tokenizer(int64_t vocab_size, Metadata& m) {
  std::vector<std::string> tokens = byte_tokens();
  std::vector<int64_t> types(tokens.size(), 1);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(special);
    types.push_back(3);
  }
  while (static_cast<int64_t>(tokens.size()) < vocab_size) {
    tokens.push_back("[unused" + std::to_string(tokens.size()) + "]");
    types.push_back(5);
  }
  m["tokenizer.ggml.model"] = std::string("gpt2");
  m["tokenizer.ggml.pre"] = std::string("gpt-2");
  m["tokenizer.ggml.tokens"] = tokens;
  m["tokenizer.ggml.token_type"] = types;
  m["tokenizer.ggml.merges"] = std::vector<std::string>{};  // bytes stay bytes
  m["tokenizer.ggml.bos_token_id"] = int64_t{256};
  m["tokenizer.ggml.eos_token_id"] = int64_t{258};
  m["tokenizer.chat_template"] = std::string(
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' "
      "}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

RopeConfig tiny_rope(const TinyModelOptions& o, RopeScaling scaling, int n_pairs) {
  RopeConfig rope;
  rope.n_pairs = n_pairs;
  rope.scaling = scaling;
  if (scaling != RopeScaling::kNone) rope.factor = 4.0;
  if (scaling != RopeScaling::kNone && scaling != RopeScaling::kLinear) rope.original_context = o.context_len / 4;
  if (scaling == RopeScaling::kLongrope) {
    for (int i = 0; i < n_pairs; ++i) {
      rope.short_factors.push_back(1.0 + i / 16.0);
      rope.long_factors.push_back(1.5 + i / 2.0);
    }
  }
  return rope;
}

// bert_rank has a head that scores pairs.
ModelConfig tiny_encoder(ModelConfig c, LayerConfig layer, bool has_head) {
  c.architecture = "bert";
  c.shape = Shape::kBert;
  layer.n_kv_heads = layer.n_heads;
  layer.rope = kNoRope;
  c.qkv_bias = c.attention_output_bias = true;
  c.n_token_types = 2;
  c.n_labels = has_head;
  c.dense_head = has_head;
  c.pooling = has_head ? Pooling::kRank : Pooling::kMean;
  c.layers.assign(static_cast<size_t>(c.n_layers), layer);
  return c;
}

// The second of qwen3moe's layers has none, nor has the first of glm4moe's and deepseek2's; the others but gpt-oss have
// a shared one too.
void put_experts(ModelConfig& c, bool wide) {
  const bool is_glm = c.architecture == "glm4moe", is_qwen3 = c.architecture == "qwen3moe";
  const bool is_next = c.architecture == "qwen3next";
  const bool is_gpt = c.architecture == "gpt_oss", is_deepseek = c.architecture == "deepseek2";
  if (is_gpt) c.router.score = RouterScore::kChosenSoftmax;
  c.shared_gate = c.architecture == "qwen2moe" || is_next;
  c.router.normalises = is_qwen3 || is_glm || is_next || is_deepseek;
  if (is_glm || is_deepseek) {
    c.router_bias = true;
    c.router.score = RouterScore::kSigmoid;
    c.router.sum_epsilon = 1e-20f;
    c.router.scale = 2.5f;
    c.router.n_groups = 5;
    c.router.groups_used = 3;
  }
  for (size_t l = 0; l < c.layers.size(); ++l) {
    if ((is_qwen3 && l == 1) || ((is_glm || is_deepseek) && l == 0)) continue;
    LayerConfig& layer = c.layers[l];
    layer.n_experts = 10;
    layer.n_experts_used = 3;
    layer.expert_len = wide ? 256 : 64;
    layer.ffn_len = is_qwen3 || is_gpt ? 0 : is_glm || is_deepseek ? layer.expert_len : layer.ffn_len;
  }
}

// A state space in each layer but every third, from the second on; of falcon-h1 in all, beside attention.
void put_mamba2(ModelConfig& c, bool wide) {
  const arch::Mamba2Sizes sizes = {
      .heads = {.n_heads = wide ? 8 : 4, .n_groups = 2, .head_len = wide ? 32 : 24, .state_len = 16}, .conv_len = 4};
  c.conv_bias = true;
  c.ssm_norm = SsmNorm::kAfterGate;
  for (size_t l = 0; l < c.layers.size(); ++l) {
    const bool is_beside = c.architecture == "falcon_h1";
    if (l % 3 == 1 && !is_beside) continue;
    if (!is_beside) arch::set_no_attention(Mixer::kState, c.layers[l]);
    CHECK(sizes.put(c.layers[l]).ok());
  }
}

// A state space, attention and a feed-forward in turn.
void put_nemotron_h(ModelConfig& c, bool wide) {
  const LayerConfig plain = c.layers.front();
  put_mamba2(c, wide);
  c.one_part_layers = true;
  c.activation = FfnActivation::kRelu2;
  c.ropes.clear();
  const bool has_experts = c.architecture == "nemotron_h_moe";
  if (has_experts) {
    c.router = {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-20f, .scale = 2.5f};
    c.router_bias = true;
    c.expert_latent_len = wide ? 256 : 64;
  }
  for (size_t l = 0; l < c.layers.size(); ++l) {
    LayerConfig& layer = c.layers[l];
    layer.rope = kNoRope;
    layer.ffn_len = 0;
    if (l % 3 != 2) continue;
    layer = plain;
    arch::set_no_attention(Mixer::kNone, layer);
    if (!has_experts) continue;
    layer.n_experts = 10;
    layer.n_experts_used = 3;
    layer.expert_len = wide ? 256 : 32;
  }
}

void put_granitehybrid(ModelConfig& c, bool wide) {
  put_mamba2(c, wide);
  c.router.score = RouterScore::kChosenSoftmax;
  c.embedding_scale = 3.0f;
  c.residual_scale = 0.6f;
  c.logit_scale = 0.4f;
  c.ropes.clear();
  for (LayerConfig& layer : c.layers) {
    layer.rope = kNoRope;
    if (layer.mixer == Mixer::kAttention) layer.attention_scale = 0.3f;
    layer.n_experts = 10;
    layer.n_experts_used = 3;
    layer.expert_len = wide ? 256 : 64;
  }
}

void put_latent(ModelConfig& c, bool wide) {
  c.q_rank = wide ? 256 : 64;
  RopeConfig& rope = c.ropes.front();
  rope.interleaved = true;
  rope.n_pairs = 8;
  for (LayerConfig& layer : c.layers) {
    layer.mixer = Mixer::kLatent;
    layer.n_kv_heads = 1;
    layer.n_heads = wide ? 2 : 6;
    layer.value_len = wide ? 256 : 64;
    layer.key_len = layer.value_len + 16;
    layer.plain_len = wide ? 256 : 32;
    layer.out_len = wide ? 128 : 32;
    layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(layer.plain_len + 16));
  }
}

// Every third layer and the last see everything, with heads of their own; the last two read what others keep.
void put_gemma4(ModelConfig& c, int32_t window, bool wide) {
  c.activation = FfnActivation::kGeluTanh;
  c.value_norm = true;
  c.router.normalises = true;
  c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  c.logit_soft_cap = 16.0f;
  c.layer_embedding_len = wide ? 256 : 32;
  c.layer_embeddings_len = c.layer_embedding_len * c.n_layers;
  c.ropes.push_back(c.ropes[0]);
  c.ropes[0].base = 1e6;
  c.ropes[0].n_pairs = static_cast<int>(c.layers[0].key_len);  // of heads twice as long
  c.ropes[0].n_turning = c.ropes[0].n_pairs / 4;
  const auto n = static_cast<int32_t>(c.n_layers);
  for (int32_t l = 0; l < n; ++l) {
    LayerConfig& layer = c.layers[static_cast<size_t>(l)];
    const bool is_global = l % 3 == 2 || l == n - 1;
    layer.attention_scale = 1.0f;
    layer.rope = is_global ? 0 : 1;
    layer.window = is_global ? 0 : window;
    if (is_global) layer.set_head_len(2 * layer.key_len);
    if (is_global) layer.n_kv_heads = 1;
    layer.value_is_key = is_global;
    if (n >= 5 && l >= n - 2) {
      for (int32_t o = 0; o < n - 2; ++o) {
        if ((c.layers[static_cast<size_t>(o)].window == 0) == is_global) layer.kv_owner = o;
      }
      layer.value_is_key = false;
      layer.ffn_len *= 2;
    }
    layer.n_experts = 10;
    layer.n_experts_used = 3;
    layer.expert_len = wide ? 256 : 64;
  }
}

}  // namespace

std::span<const std::string_view> tiny_architectures() { return kArchitectures; }
std::span<const DType> tiny_dtypes() { return kDTypes; }
std::span<const DType> low_bit_dtypes() { return kLowBitDTypes; }

ModelConfig tiny_config(const TinyModelOptions& o) {
  const std::string_view a = o.architecture;
  const bool wide = traits(o.dtype).block_len > 32;
  const bool is_delta = a == "qwen35" || a == "qwen3next", is_hybrid = is_delta || a == "lfm2";
  const bool is_ssm = a == "granitehybrid" || a.starts_with("nemotron_h") || a == "falcon_h1";
  const bool is_gpt = a == "gpt2" || a == "bloom" || a == "mpt";
  ModelConfig c;
  LayerConfig layer;
  c.architecture = a;
  c.shape = a == "gemma3" || a == "glm4" || a == "muse_glimmer" ? Shape::kGemma
            : a == "olmo3"                                      ? Shape::kPostNorm
            : a == "gemma4"                                     ? Shape::kGemma4
            : a == "cohere2"                                    ? Shape::kParallel
            : a == "nemotron" || is_gpt                         ? Shape::kGpt
                                                                : Shape::kLlama;
  const bool has_kinds = a == "smollm3" || a == "gemma3" || a == "olmo3" || a == "cohere2" || a == "muse_glimmer";
  c.n_layers = o.n_layers != 0                          ? o.n_layers
               : a == "gemma4"                          ? 5
               : has_kinds                              ? 4
               : a == "qwen3moe" || is_hybrid || is_ssm ? 3
                                                        : 2;
  c.width = wide ? 256 : 96;
  layer.ffn_len = wide ? 256 : 160;
  layer.n_heads = wide ? 8 : 6;
  layer.n_kv_heads = 2;
  layer.set_head_len(wide ? 32 : 16);
  if (o.long_sums) {
    layer.n_heads = 32;
    layer.n_kv_heads = 8;
    layer.set_head_len(64);
    layer.ffn_len = 2304;  // 9 blocks of 256
  }
  c.vocab_size = o.tokenizer ? std::max<int64_t>(o.vocab_size, 260) : o.vocab_size;
  c.trained_context_len = o.context_len;
  c.norm_eps = 0x1p-16f;
  layer.attention_scale = 1.0f / std::sqrt(static_cast<float>(layer.key_len));
  if (a.starts_with("bert")) return tiny_encoder(std::move(c), layer, a == "bert_rank");
  c.qkv_bias = a.starts_with("qwen2") || a.starts_with("glm4") || a == "gpt_oss";
  c.qk_norm = a.starts_with("qwen3") || a.starts_with("gemma") || a == "glm4moe" || a == "olmo3" || a == "lfm2" ||
              a == "muse_glimmer";
  c.qk_norm_whole = a == "olmo3";
  c.fused_qkv = a == "phi3" || is_gpt;
  c.fused_gate_up = a == "phi3" || a == "glm4";
  c.tied_embedding =
      a == "qwen2" || a == "smollm3" || a.starts_with("gemma") || a == "lfm2" || a == "cohere2" || is_gpt;
  c.layers.assign(static_cast<size_t>(c.n_layers), layer);
  const bool turns_half = a.starts_with("glm4") || a == "nemotron";
  const int n_pairs = static_cast<int>(layer.key_len / (is_delta ? 8 : turns_half ? 4 : 2));
  const RopeScaling scaling = a == "phi3"                         ? RopeScaling::kLongrope
                              : a == "ministral3" || a == "olmo3" ? RopeScaling::kYarn
                                                                  : o.scaling;
  c.ropes.push_back(tiny_rope(o, scaling, n_pairs));
  for (size_t l = 0; l < c.layers.size(); ++l) {
    if (a == "mistral" || (a == "gpt_oss" && l % 2 == 0)) c.layers[l].window = o.window;
    if (a == "smollm3" && l % 4 == 3) c.layers[l].rope = kNoRope;
    if (a == "gemma3" && l % 3 != 2) c.layers[l].window = o.window, c.layers[l].rope = 1;
    c.layers[l].sees_whole_pictures = a == "gemma3";
    if (a == "olmo3" && l % 4 != 3) c.layers[l].window = o.window, c.layers[l].rope = 1;
    if (!is_hybrid || l % 3 == 1) continue;  // the first and the last are recurrent
    if (a == "lfm2") arch::set_short_conv(c, 3, c.layers[l]);
    const int64_t v = wide ? 64 : 24;
    const DeltaHeads heads = {
        .n_key_heads = 2, .n_value_heads = 4, .key_len = 16, .value_len = v, .tiled = a == "qwen35"};
    if (is_delta) CHECK(arch::set_delta_net(heads, 4, c.layers[l]).ok());
  }
  c.attention_gate = is_delta;
  if (a == "gpt_oss") {
    c.attention_output_bias = c.sinks = c.router_logit_bias = c.expert_bias = true;
    c.expert_clamp = 7.0f;
    c.ropes[0].truncate = false;
  }
  if (a == "deepseek2") put_latent(c, wide);
  if ((a.ends_with("moe") && a != "nemotron_h_moe") || a == "qwen3next" || a == "gpt_oss" || a == "deepseek2")
    put_experts(c, wide);
  if (a.starts_with("nemotron_h")) put_nemotron_h(c, wide);
  if (a == "falcon_h1") put_mamba2(c, wide);
  if (a == "granitehybrid") put_granitehybrid(c, wide);
  if (a == "gemma4") put_gemma4(c, o.window, wide);
  if (a == "cohere2") {
    c.logit_scale = 0.25f;
    for (size_t l = 0; l < c.layers.size(); ++l) {
      c.layers[l].window = l % 4 == 3 ? 0 : o.window;
      c.layers[l].rope = l % 4 == 3 ? kNoRope : 0;
    }
  }
  if (a == "muse_glimmer") {
    c.attention_gate_apart = c.embedding_norm_is_plain = c.output_norm_is_plain = true;
    c.post_norm_eps = 1e-8f;
    c.logit_scale = 0.4f;
    c.logit_soft_cap = 16.0f;
    for (size_t l = 0; l < c.layers.size(); ++l) {
      c.layers[l].window = l % 4 == 3 ? 0 : o.window;
      c.layers[l].rope = l % 4 == 3 ? kNoRope : 0;
    }
  }
  if (a == "nemotron") c.activation = FfnActivation::kRelu2;
  if (is_gpt) {
    c.activation = a == "mpt" ? FfnActivation::kGelu : FfnActivation::kGeluTanh;
    c.qkv_bias = c.attention_output_bias = c.ffn_bias = c.norm_bias = a != "mpt";
    c.learned_positions = a == "gpt2";
    c.embedding_norm = a == "bloom";
    c.alibi_bias_max = a == "bloom" ? 8.0f : a == "mpt" ? 6.0f : 0.0f;
    c.qkv_clip = a == "mpt" ? 1.5f : 0.0f;
    c.ropes.clear();
    for (LayerConfig& of : c.layers) {
      of.rope = kNoRope;
      of.n_kv_heads = of.n_heads;
    }
  }
  if (a == "ministral3") {
    c.ropes[0].magnitude = 1.0;
    c.query_scale = 0.1f;
    c.query_scale_len = c.ropes[0].original_context;
  }
  if (a == "olmo3") c.ropes.push_back(tiny_rope(o, RopeScaling::kNone, n_pairs));
  if (a == "gemma3") {
    c.activation = FfnActivation::kGeluTanh;
    c.ropes.push_back(c.ropes[0]);
    c.ropes[0].base = 1e6;
    c.attention_soft_cap = 8.0f;
    c.logit_soft_cap = 16.0f;
  }
  return c;
}

std::shared_ptr<const ModelFile> tiny_model_file(const TinyModelOptions& o) { return tiny_file_of(tiny_config(o), o); }

std::shared_ptr<const ModelFile> tiny_file_of(const ModelConfig& config, const TinyModelOptions& o) {
  ModelFile::Parts parts;
  parts.path = "tiny " + std::string(o.architecture);
  parts.metadata = metadata_of(config);
  if (o.tokenizer) put_tokenizer(config.vocab_size, parts.metadata);
  auto add = [&parts](const std::string& name, DType dtype, const std::vector<int64_t>& dims) {
    auto bytes = std::make_unique<std::byte[]>(static_cast<size_t>(n_rows(dims) * row_bytes(dtype, dims.back())));
    TensorView view = view_of(bytes.get(), dtype, dims);
    parts.tensors.push_back({name, view});
    parts.copies.push_back(std::move(bytes));
    return view.data;
  };
  for (const TensorSpec& spec : tensors_of(config)) {
    const bool is_float = spec.dims.size() == 1 || spec.kind == TensorSpec::Kind::kRouter ||
                          spec.kind == TensorSpec::Kind::kTaps || spec.kind == TensorSpec::Kind::kBias ||
                          spec.kind == TensorSpec::Kind::kNorm || spec.kind == TensorSpec::Kind::kDecay;
    const DType dtype = is_float ? DType::kF32 : o.dtype;
    Random random(hash_name(spec.name, o.seed));
    fill(spec, dtype, random, add(spec.name, dtype, spec.dims));
  }
  for (const auto& [name, values] : rope_vectors_of(config)) {
    std::memcpy(add(name, DType::kF32, {static_cast<int64_t>(values.size())}), values.data(), values.size() * 4);
  }
  return std::make_shared<ModelFile>(std::move(parts));
}

std::string tiny_gguf(const TinyModelOptions& options) { return gguf_bytes(*tiny_model_file(options)); }

}  // namespace ibid::testing
