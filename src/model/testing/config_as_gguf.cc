#include "model/testing/config_as_gguf.h"

#include <cmath>
#include <cstring>

#include "format/gguf_writer.h"
#include "model/arch/architecture.h"
#include "model/rope.h"
#include "model/weights.h"
#include "tensor/dequantise.h"

namespace ibid::testing {
namespace {

// GGUF's architecture and whether it keeps rotated pairs side by side.
std::string gguf_architecture(const std::string& name) {
  if (name == "mistral") return "llama";
  if (name == "gemma3_text") return "gemma3";
  return name;
}
bool interleaves(const std::string& gguf_name) { return gguf_name == "llama" || gguf_name == "smollm3"; }

void put_rope(const ModelConfig& c, const std::string& arch, Metadata& m) {
  if (c.ropes.empty()) return;
  const RopeConfig& rope = c.ropes[0];
  const std::string scaling = arch + "rope.scaling.";
  m[arch + "rope.dimension_count"] = int64_t{2 * rope.n_pairs};
  m[arch + "rope.freq_base"] = rope.base;
  if (c.ropes.size() > 1) m[arch + "rope.freq_base_swa"] = c.ropes[1].base;
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    m[scaling + "type"] = std::string(rope_scaling_name(rope.scaling));
    m[scaling + "factor"] = rope.factor;
  }
  if (rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongrope) {
    m[scaling + "original_context_length"] = rope.original_context;
  }
  if (rope.scaling == RopeScaling::kLongrope) {
    m[scaling + "attn_factor"] = static_cast<double>(make_rope_table(rope, c.trained_context_len).magnitude);
  }
}

// Row r of a head's D rows: halves (i, i + n) become neighbours (2 i, 2 i + 1).
std::vector<float> interleave_rows(const std::vector<float>& rows, int64_t n_heads, int64_t head_len, int64_t columns) {
  std::vector<float> out(rows.size());
  const int64_t n = head_len / 2;
  for (int64_t h = 0; h < n_heads; ++h) {
    for (int64_t i = 0; i < head_len; ++i) {
      const int64_t to = i < n ? 2 * i : 2 * (i - n) + 1;
      std::memcpy(&out[static_cast<size_t>((h * head_len + to) * columns)],
                  &rows[static_cast<size_t>((h * head_len + i) * columns)],
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }
  return out;
}

// One number where all layers are alike.
MetaValue of_layers(const ModelConfig& c, int64_t LayerConfig::*size) {
  std::vector<int64_t> values;
  for (const LayerConfig& layer : c.layers) values.push_back(layer.*size);
  for (const int64_t value : values) {
    if (value != values.front()) return values;
  }
  return values.front();
}

Metadata metadata_of_encoder(const ModelConfig& c, const std::string& arch) {
  Metadata m;
  m["general.architecture"] = c.architecture;
  m[arch + "block_count"] = c.n_layers;
  m[arch + "embedding_length"] = c.width;
  m[arch + "feed_forward_length"] = of_layers(c, &LayerConfig::ffn_len);
  m[arch + "attention.head_count"] = of_layers(c, &LayerConfig::n_heads);
  m[arch + "attention.layer_norm_epsilon"] = static_cast<double>(c.norm_eps);
  m[arch + "attention.causal"] = false;
  m[arch + "context_length"] = c.trained_context_len;
  const Pooling pooling = c.pooling.value_or(Pooling::kNone);
  m[arch + "pooling_type"] = int64_t{pooling == Pooling::kMean    ? 1
                                     : pooling == Pooling::kFirst ? 2
                                     : pooling == Pooling::kLast  ? 3
                                     : pooling == Pooling::kRank  ? 4
                                                                  : 0};
  return m;
}

std::vector<TensorSpec> tensors_of_encoder(const ModelConfig& c) {
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> specs;
  const auto rows = [&](std::string name, int64_t n) {
    if (n > 0) specs.push_back({std::move(name), Kind::kEmbedding, {n, c.width}});
  };
  const auto norm = [&](const std::string& name) {
    specs.push_back({name + ".weight", Kind::kNorm, {c.width}});
    specs.push_back({name + ".bias", Kind::kBias, {c.width}});
  };
  const auto linear = [&](const std::string& name, int64_t n, int64_t k) {
    specs.push_back({name + ".weight", Kind::kMatrix, {n, k}});
    specs.push_back({name + ".bias", Kind::kBias, {n}});
  };
  rows("token_embd.weight", c.vocab_size);
  rows("position_embd.weight", c.trained_context_len);
  rows("token_types.weight", c.n_token_types);
  norm("token_embd_norm");
  for (int64_t l = 0; l < c.n_layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) linear(p + name, c.width, c.width);
    norm(p + "attn_output_norm");
    linear(p + "ffn_up", c.layers[static_cast<size_t>(l)].ffn_len, c.width);
    linear(p + "ffn_down", c.width, c.layers[static_cast<size_t>(l)].ffn_len);
    norm(p + "layer_output_norm");
  }
  if (c.dense_head) linear("cls", c.width, c.width);
  if (c.n_labels > 0) linear("cls.output", c.n_labels, c.width);
  return specs;
}

// Before a tensor's name in the folder that has it.
std::string folder_prefix(const ModelFile& folder, const std::string& name) {
  for (const char* prefix : {"model.", "bert."}) {
    if (folder.find(prefix + name) != nullptr) return prefix;
  }
  return "";
}

}  // namespace

Metadata metadata_of(const ModelConfig& c) {
  const std::string name = gguf_architecture(c.architecture), arch = name + ".";
  Metadata m;
  if (c.is_encoder()) return metadata_of_encoder(c, arch);
  m["general.architecture"] = name;
  m[arch + "block_count"] = c.n_layers;
  m[arch + "embedding_length"] = c.width;
  m[arch + "feed_forward_length"] = of_layers(c, &LayerConfig::ffn_len);
  m[arch + "attention.head_count"] = of_layers(c, &LayerConfig::n_heads);
  m[arch + "attention.head_count_kv"] = of_layers(c, &LayerConfig::n_kv_heads);
  m[arch + "attention.key_length"] = c.layers.front().key_len;
  m[arch + "attention.value_length"] = c.layers.front().value_len;
  m[arch + "attention.layer_norm_rms_epsilon"] = static_cast<double>(c.norm_eps);
  m[arch + "context_length"] = c.trained_context_len;
  m[arch + "vocab_size"] = c.vocab_size;
  put_rope(c, arch, m);
  std::vector<int64_t> slides;
  int64_t window = 0;
  for (const LayerConfig& layer : c.layers) {
    slides.push_back(layer.window != 0);
    window = std::max<int64_t>(window, layer.window);
  }
  if (window != 0) m[arch + "attention.sliding_window"] = window;
  if (c.shape == Shape::kGemma) {
    m[arch + "attention.sliding_window_pattern"] = slides;
    m[arch + "attention.scale"] = static_cast<double>(c.layers.front().attention_scale);
    if (c.attention_soft_cap != 0) m[arch + "attn_logit_softcapping"] = static_cast<double>(c.attention_soft_cap);
    if (c.logit_soft_cap != 0) m[arch + "final_logit_softcapping"] = static_cast<double>(c.logit_soft_cap);
  }
  return m;
}

std::vector<TensorSpec> tensors_of(const ModelConfig& c) {
  if (c.is_encoder()) return tensors_of_encoder(c);
  using Kind = TensorSpec::Kind;
  std::vector<TensorSpec> specs;
  auto matrix = [&specs](std::string name, int64_t n, int64_t k) {
    specs.push_back({std::move(name), Kind::kMatrix, {n, k}});
  };
  auto norm = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kNorm, {n}}); };
  auto bias = [&specs](std::string name, int64_t n) { specs.push_back({std::move(name), Kind::kBias, {n}}); };
  specs.push_back({"token_embd.weight", Kind::kEmbedding, {c.vocab_size, c.width}});
  if (!c.tied_embedding) matrix("output.weight", c.vocab_size, c.width);
  norm("output_norm.weight", c.width);
  for (int64_t l = 0; l < c.n_layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
    const bool owns_cache = layer.kv_owner == kOwnCache;
    norm(p + "attn_norm.weight", c.width);
    norm(p + "ffn_norm.weight", c.width);
    if (c.fused_qkv) {
      matrix(p + "attn_qkv.weight", layer.q_len() + layer.k_len() + layer.v_len(), c.width);
    } else {
      matrix(p + "attn_q.weight", layer.q_len(), c.width);
      if (owns_cache) matrix(p + "attn_k.weight", layer.k_len(), c.width);
      if (owns_cache) matrix(p + "attn_v.weight", layer.v_len(), c.width);
    }
    if (c.qkv_bias) {
      bias(p + "attn_q.bias", layer.q_len());
      if (owns_cache) bias(p + "attn_k.bias", layer.k_len());
      if (owns_cache) bias(p + "attn_v.bias", layer.v_len());
    }
    if (c.qk_norm) {
      norm(p + "attn_q_norm.weight", layer.key_len);
      if (owns_cache) norm(p + "attn_k_norm.weight", layer.key_len);
    }
    matrix(p + "attn_output.weight", c.width, layer.attention_len());
    if (c.fused_gate_up) {
      matrix(p + "ffn_up.weight", 2 * layer.ffn_len, c.width);
    } else {
      matrix(p + "ffn_gate.weight", layer.ffn_len, c.width);
      matrix(p + "ffn_up.weight", layer.ffn_len, c.width);
    }
    matrix(p + "ffn_down.weight", c.width, layer.ffn_len);
    if (c.shape == Shape::kGemma) {
      norm(p + "post_attention_norm.weight", c.width);
      norm(p + "post_ffw_norm.weight", c.width);
    }
  }
  return specs;
}

std::map<std::string, std::vector<float>> rope_vectors_of(const ModelConfig& c) {
  std::map<std::string, std::vector<float>> out;
  if (c.ropes.empty()) return out;
  const RopeConfig& rope = c.ropes[0];
  if (rope.scaling == RopeScaling::kLlama3) {
    RopeConfig plain = rope;
    plain.scaling = RopeScaling::kNone;
    const RopeTable scaled = make_rope_table(rope, c.trained_context_len),
                    unscaled = make_rope_table(plain, c.trained_context_len);
    std::vector<float>& divisors = out["rope_freqs.weight"];
    for (size_t i = 0; i < scaled.frequency.size(); ++i) {
      divisors.push_back(static_cast<float>(unscaled.frequency[i] / scaled.frequency[i]));
    }
  }
  if (rope.scaling == RopeScaling::kLongrope) {
    out["rope_factors_short.weight"] = {rope.short_factors.begin(), rope.short_factors.end()};
    out["rope_factors_long.weight"] = {rope.long_factors.begin(), rope.long_factors.end()};
  }
  return out;
}

Result<ModelFile> as_gguf(const ModelFile& folder) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(folder));
  ASSIGN_OR_RETURN(ModelConfig config, read_config(folder));
  ModelFile::Parts parts;
  parts.path = folder.path() + " as GGUF";
  parts.metadata = metadata_of(config);
  auto add = [&parts](const std::string& name, const std::vector<float>& values, const std::vector<int64_t>& dims) {
    auto copy = std::make_unique<std::byte[]>(values.size() * sizeof(float));
    std::memcpy(copy.get(), values.data(), values.size() * sizeof(float));
    TensorView view = dims.size() == 1 ? TensorView(copy.get(), DType::kF32, {dims[0]})
                                       : TensorView(copy.get(), DType::kF32, {dims[0], dims[1]});
    parts.tensors.push_back({name, view});
    parts.copies.push_back(std::move(copy));
  };
  const bool interleaved = interleaves(gguf_architecture(config.architecture));
  for (const TensorSpec& spec : tensors_of(config)) {
    int64_t layer = 0;
    std::string pattern = spec.name;
    if (pattern.starts_with("blk.")) {
      const size_t end = pattern.find('.', 4);
      layer = std::stoll(pattern.substr(4, end - 4));
      pattern = "blk.{}" + pattern.substr(end);
    }
    const WeightName* found = nullptr;
    for (const WeightName& n : architecture->names) found = n.canonical == pattern ? &n : found;
    CHECK(found != nullptr, pattern.c_str());
    const std::string name = layer_name(found->folder, layer);
    ASSIGN_OR_RETURN(TensorView view, folder.tensor(folder_prefix(folder, name) + name));
    std::vector<float> values(static_cast<size_t>(view.n_elements()));
    dequantise(view, values.data());
    if (spec.kind == TensorSpec::Kind::kNorm) {
      for (float& v : values) v += config.norm_offset;
    }
    const bool is_q = pattern.find("attn_q.") != std::string::npos, is_k = pattern.find("attn_k.") != std::string::npos;
    if (interleaved && (is_q || is_k)) {
      const int64_t columns = spec.dims.size() == 2 ? spec.dims[1] : 1;
      const LayerConfig& of = config.layers[static_cast<size_t>(layer)];
      values = interleave_rows(values, is_q ? of.n_heads : of.n_kv_heads, of.key_len, columns);
    }
    add(spec.name, values, spec.dims);
  }
  for (const auto& [name, values] : rope_vectors_of(config)) add(name, values, {static_cast<int64_t>(values.size())});
  return ModelFile(std::move(parts));
}

std::string gguf_bytes(const ModelFile& file) {
  GgufWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.set(key, value);
  for (const TensorInfo& tensor : file.tensors()) writer.add_tensor(tensor.name, tensor.view);
  return writer.bytes();
}

}  // namespace ibid::testing
