#include "model/vision/tower_config.h"

#include <algorithm>
#include <cmath>

#include "base/quoted.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

using arch::bounded_size;
using arch::must_be;

constexpr std::array<WeightName, 23> kQwenTowerNames = {{
    {"v.patch_embd.weight", "visual.patch_embed.proj.weight"},
    {"v.patch_embd.bias", "visual.patch_embed.proj.bias"},
    {"v.position_embd.weight", "visual.pos_embed.weight"},
    {"v.blk.{}.ln1.weight", "visual.blocks.{}.norm1.weight"},
    {"v.blk.{}.ln1.bias", "visual.blocks.{}.norm1.bias"},
    {"v.blk.{}.ln2.weight", "visual.blocks.{}.norm2.weight"},
    {"v.blk.{}.ln2.bias", "visual.blocks.{}.norm2.bias"},
    {"v.blk.{}.attn_qkv.weight", "visual.blocks.{}.attn.qkv.weight"},
    {"v.blk.{}.attn_qkv.bias", "visual.blocks.{}.attn.qkv.bias"},
    {"v.blk.{}.attn_out.weight", "visual.blocks.{}.attn.proj.weight"},
    {"v.blk.{}.attn_out.bias", "visual.blocks.{}.attn.proj.bias"},
    {"v.blk.{}.ffn_up.weight", "visual.blocks.{}.mlp.linear_fc1.weight"},
    {"v.blk.{}.ffn_up.bias", "visual.blocks.{}.mlp.linear_fc1.bias"},
    {"v.blk.{}.ffn_down.weight", "visual.blocks.{}.mlp.linear_fc2.weight"},
    {"v.blk.{}.ffn_down.bias", "visual.blocks.{}.mlp.linear_fc2.bias"},
    {"v.post_ln.weight", "visual.merger.norm.weight"},
    {"v.post_ln.bias", "visual.merger.norm.bias"},
    {"mm.0.weight", "visual.merger.linear_fc1.weight"},
    {"mm.0.bias", "visual.merger.linear_fc1.bias"},
    {"mm.2.weight", "visual.merger.linear_fc2.weight"},
    {"mm.2.bias", "visual.merger.linear_fc2.bias"},
    // A folder counts these from 0, a GGUF by the layer that they follow.
    {"v.deepstack.{}.norm.weight", "visual.deepstack_merger_list.{}.norm.weight"},
    {"v.deepstack.{}.norm.bias", "visual.deepstack_merger_list.{}.norm.bias"},
}};
constexpr std::array<WeightName, 4> kDeepNames = {{
    {"v.deepstack.{}.fc1.weight", "visual.deepstack_merger_list.{}.linear_fc1.weight"},
    {"v.deepstack.{}.fc1.bias", "visual.deepstack_merger_list.{}.linear_fc1.bias"},
    {"v.deepstack.{}.fc2.weight", "visual.deepstack_merger_list.{}.linear_fc2.weight"},
    {"v.deepstack.{}.fc2.bias", "visual.deepstack_merger_list.{}.linear_fc2.bias"},
}};

constexpr auto kAllQwenNames = [] {
  std::array<WeightName, kQwenTowerNames.size() + kDeepNames.size()> all = {};
  std::ranges::copy(kDeepNames, std::ranges::copy(kQwenTowerNames, all.begin()).out);
  return all;
}();

// Of SigLIP; `place` is where a folder has it: transformers 5 drops a part of the older name.
#define IBID_SIGLIP_NAMES(place)                                                                            \
  {"v.patch_embd.weight", place "embeddings.patch_embedding.weight"},                                       \
      {"v.patch_embd.bias", place "embeddings.patch_embedding.bias"},                                       \
      {"v.position_embd.weight", place "embeddings.position_embedding.weight"},                             \
      {"v.blk.{}.ln1.weight", place "encoder.layers.{}.layer_norm1.weight"},                                \
      {"v.blk.{}.ln1.bias", place "encoder.layers.{}.layer_norm1.bias"},                                    \
      {"v.blk.{}.ln2.weight", place "encoder.layers.{}.layer_norm2.weight"},                                \
      {"v.blk.{}.ln2.bias", place "encoder.layers.{}.layer_norm2.bias"},                                    \
      {"v.blk.{}.attn_q.weight", place "encoder.layers.{}.self_attn.q_proj.weight"},                        \
      {"v.blk.{}.attn_q.bias", place "encoder.layers.{}.self_attn.q_proj.bias"},                            \
      {"v.blk.{}.attn_k.weight", place "encoder.layers.{}.self_attn.k_proj.weight"},                        \
      {"v.blk.{}.attn_k.bias", place "encoder.layers.{}.self_attn.k_proj.bias"},                            \
      {"v.blk.{}.attn_v.weight", place "encoder.layers.{}.self_attn.v_proj.weight"},                        \
      {"v.blk.{}.attn_v.bias", place "encoder.layers.{}.self_attn.v_proj.bias"},                            \
      {"v.blk.{}.attn_out.weight", place "encoder.layers.{}.self_attn.out_proj.weight"},                    \
      {"v.blk.{}.attn_out.bias", place "encoder.layers.{}.self_attn.out_proj.bias"},                        \
      {"v.blk.{}.ffn_up.weight", place "encoder.layers.{}.mlp.fc1.weight"},                                 \
      {"v.blk.{}.ffn_up.bias", place "encoder.layers.{}.mlp.fc1.bias"},                                     \
      {"v.blk.{}.ffn_down.weight", place "encoder.layers.{}.mlp.fc2.weight"},                               \
      {"v.blk.{}.ffn_down.bias", place "encoder.layers.{}.mlp.fc2.bias"},                                   \
      {"v.post_ln.weight", place "post_layernorm.weight"}, {"v.post_ln.bias", place "post_layernorm.bias"}, \
      {"mm.soft_emb_norm.weight", "multi_modal_projector.mm_soft_emb_norm.weight"}, {                       \
    "mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight"                        \
  }
constexpr std::array<WeightName, 23> kSiglipNames = {{IBID_SIGLIP_NAMES("vision_tower.")}};
constexpr std::array<WeightName, 23> kOldSiglipNames = {{IBID_SIGLIP_NAMES("vision_tower.vision_model.")}};
#undef IBID_SIGLIP_NAMES

// gemma 4's; `in_layer` is a product's or a norm's name in a layer.
#define IBID_GEMMA4_NAME(canonical, in_layer) \
  { "v.blk.{}." canonical, "vision_tower.encoder.layers.{}." in_layer }
#define IBID_GEMMA4_PRODUCT(canonical, in_layer)                         \
  IBID_GEMMA4_NAME(canonical ".weight", in_layer ".linear.weight"),      \
      IBID_GEMMA4_NAME(canonical ".input_min", in_layer ".input_min"),   \
      IBID_GEMMA4_NAME(canonical ".input_max", in_layer ".input_max"),   \
      IBID_GEMMA4_NAME(canonical ".output_min", in_layer ".output_min"), \
      IBID_GEMMA4_NAME(canonical ".output_max", in_layer ".output_max")
constexpr WeightName kGemma4TowerNames[] = {
    {"v.patch_embd.weight", "vision_tower.patch_embedder.input_proj.weight"},
    {"v.position_embd.weight", "vision_tower.patch_embedder.position_embedding_table"},
    IBID_GEMMA4_NAME("ln1.weight", "input_layernorm.weight"),
    IBID_GEMMA4_NAME("attn_post_norm.weight", "post_attention_layernorm.weight"),
    IBID_GEMMA4_NAME("ln2.weight", "pre_feedforward_layernorm.weight"),
    IBID_GEMMA4_NAME("ffn_post_norm.weight", "post_feedforward_layernorm.weight"),
    IBID_GEMMA4_NAME("attn_q_norm.weight", "self_attn.q_norm.weight"),
    IBID_GEMMA4_NAME("attn_k_norm.weight", "self_attn.k_norm.weight"),
    IBID_GEMMA4_PRODUCT("attn_q", "self_attn.q_proj"),
    IBID_GEMMA4_PRODUCT("attn_k", "self_attn.k_proj"),
    IBID_GEMMA4_PRODUCT("attn_v", "self_attn.v_proj"),
    IBID_GEMMA4_PRODUCT("attn_out", "self_attn.o_proj"),
    IBID_GEMMA4_PRODUCT("ffn_gate", "mlp.gate_proj"),
    IBID_GEMMA4_PRODUCT("ffn_up", "mlp.up_proj"),
    IBID_GEMMA4_PRODUCT("ffn_down", "mlp.down_proj"),
    {"v.std_bias", "vision_tower.std_bias"},
    {"v.std_scale", "vision_tower.std_scale"},
    {"mm.input_projection.weight", "embed_vision.embedding_projection.weight"},
};
#undef IBID_GEMMA4_PRODUCT
#undef IBID_GEMMA4_NAME

constexpr int64_t kMostLayers = 1024, kMostWidth = 1 << 16, kMostSide = 1 << 10;
constexpr double kGemma4RopeBase = 100.0;

Result<int64_t> square_root(int64_t square, const std::string& key) {
  for (int64_t side = 1; side <= kMostSide; ++side) {
    if (side * side == square) return side;
  }
  return invalid("the vision tower has " + std::to_string(square) + " positions; expected those of a square", key);
}

Status read_eps(const ModelFile& file, const std::string& key, double missing, TowerConfig& out) {
  ASSIGN_OR_RETURN(const double eps, file.meta_float(key, missing));
  if (!(eps > 0 && eps < 1)) return invalid("the vision tower's norms have an eps of " + std::to_string(eps), key);
  out.norm_eps = static_cast<float>(eps);
  return {};
}

// What both containers must agree on with the tower's code.
Status check(const TowerConfig& c, const std::string& file) {
  const auto bad = [&file](const std::string& what) { return invalid(file + ": the vision tower " + what); };
  if (c.width % c.n_heads != 0 || c.head_len() % 8 != 0 || c.head_len() > 256) {
    return bad("has " + std::to_string(c.n_heads) + " heads in a width of " + std::to_string(c.width) +
               "; expected heads of a multiple of 8, up to 256");
  }
  if (c.kind == TowerKind::kGemma3 && c.grid_side % c.merge != 0) {
    return bad("has " + std::to_string(c.grid_side) + " patches a side, which cells of " + std::to_string(c.merge) +
               " do not part");
  }
  int64_t last = -1;
  for (const int64_t layer : c.deep_layers) {
    if (layer <= last || layer >= c.n_layers) return bad("merges rows after layers that it does not have");
    last = layer;
  }
  return {};
}

Result<TowerConfig> qwen_from_folder(const ModelFile& file, TowerConfig c) {
  const std::string v = "vision_config.";
  ASSIGN_OR_RETURN(c.n_layers, bounded_size(file, v + "depth", kMostLayers));
  ASSIGN_OR_RETURN(c.width, bounded_size(file, v + "hidden_size", kMostWidth));
  ASSIGN_OR_RETURN(c.ffn_len, bounded_size(file, v + "intermediate_size", kMostWidth));
  ASSIGN_OR_RETURN(c.n_heads, bounded_size(file, v + "num_heads", kMostWidth));
  ASSIGN_OR_RETURN(c.patch_side, bounded_size(file, v + "patch_size", kMostSide));
  ASSIGN_OR_RETURN(c.n_frames, bounded_size(file, v + "temporal_patch_size", 8));
  ASSIGN_OR_RETURN(c.merge, bounded_size(file, v + "spatial_merge_size", 8));
  ASSIGN_OR_RETURN(c.out_width, bounded_size(file, v + "out_hidden_size", kMostWidth));
  ASSIGN_OR_RETURN(const int64_t n_positions, file.meta_int(v + "num_position_embeddings"));
  ASSIGN_OR_RETURN(c.grid_side, square_root(n_positions, v + "num_position_embeddings"));
  TRY(must_be(file, v + "hidden_act", "gelu_pytorch_tanh"));
  if (file.has_meta(v + "deepstack_visual_indexes")) {
    ASSIGN_OR_RETURN(c.deep_layers, file.meta_ints(v + "deepstack_visual_indexes"));
  }
  return c;
}

// What both generations name alike.
Status gemma_sizes(const ModelFile& file, TowerConfig& c) {
  const std::string v = "vision_config.";
  ASSIGN_OR_RETURN(c.n_layers, bounded_size(file, v + "num_hidden_layers", kMostLayers));
  ASSIGN_OR_RETURN(c.width, bounded_size(file, v + "hidden_size", kMostWidth));
  ASSIGN_OR_RETURN(c.ffn_len, bounded_size(file, v + "intermediate_size", kMostWidth));
  ASSIGN_OR_RETURN(c.n_heads, bounded_size(file, v + "num_attention_heads", kMostWidth));
  ASSIGN_OR_RETURN(c.patch_side, bounded_size(file, v + "patch_size", kMostSide));
  ASSIGN_OR_RETURN(c.out_width, bounded_size(file, "text_config.hidden_size", kMostWidth));
  return {};
}

Result<TowerConfig> gemma3_from_folder(const ModelFile& file, TowerConfig c) {
  const std::string v = "vision_config.";
  int64_t image_side = 0, n_cells = 0;
  TRY(gemma_sizes(file, c));
  ASSIGN_OR_RETURN(image_side, bounded_size(file, v + "image_size", 1 << 14));
  ASSIGN_OR_RETURN(n_cells, bounded_size(file, "mm_tokens_per_image", 1 << 16));
  TRY(read_eps(file, v + "layer_norm_eps", 1e-6, c));
  TRY(must_be(file, v + "hidden_act", "gelu_pytorch_tanh"));
  ASSIGN_OR_RETURN(const int64_t cells_side, square_root(n_cells, "mm_tokens_per_image"));
  c.grid_side = image_side / c.patch_side;
  if (c.grid_side < 1 || c.grid_side % cells_side != 0)
    return invalid("the vision tower makes " + std::to_string(n_cells) + " cells of " + std::to_string(c.grid_side) +
                       " patches a side",
                   "mm_tokens_per_image");
  c.merge = c.grid_side / cells_side;
  return c;
}

Result<TowerConfig> gemma4_from_folder(const ModelFile& file, TowerConfig c) {
  const std::string v = "vision_config.";
  TRY(gemma_sizes(file, c));
  ASSIGN_OR_RETURN(const int64_t n_kv_heads, file.meta_int(v + "num_key_value_heads", c.n_heads));
  ASSIGN_OR_RETURN(const int64_t head_len, file.meta_int(v + "head_dim", c.width / c.n_heads));
  if (n_kv_heads != c.n_heads || head_len * c.n_heads != c.width) {
    return unsupported("the vision tower has " + std::to_string(c.n_heads) + " heads of " + std::to_string(head_len) +
                           ", " + std::to_string(n_kv_heads) + " of keys, in a width of " + std::to_string(c.width) +
                           "; heads that fill the width, as many of keys, are supported",
                       v + "head_dim");
  }
  ASSIGN_OR_RETURN(c.merge, bounded_size(file, v + "pooling_kernel_size", 8));
  ASSIGN_OR_RETURN(c.grid_side, bounded_size(file, v + "position_embedding_size", kMostWidth));
  TRY(read_eps(file, v + "rms_norm_eps", 1e-6, c));
  TRY(must_be(file, v + "hidden_activation", "gelu_pytorch_tanh"));
  if (file.has_meta(v + "rope_parameters.rope_type")) TRY(must_be(file, v + "rope_parameters.rope_type", "axial"));
  ASSIGN_OR_RETURN(c.rope_base, file.meta_float(v + "rope_parameters.rope_theta", kGemma4RopeBase));
  ASSIGN_OR_RETURN(c.clips, file.meta_bool(v + "use_clipped_linears", false));
  ASSIGN_OR_RETURN(c.standardises, file.meta_bool(v + "standardize", false));
  return c;
}

// What llama.cpp's converter leaves to the tensors.
Status gemma4_from_tensors(const ModelFile& file, TowerConfig& c) {
  const TensorInfo* positions = file.find("v.position_embd.weight");
  const int64_t n = positions == nullptr ? 0 : positions->view.n_elements();
  c.grid_side = n / (2 * c.width);
  if (c.grid_side < 1 || c.grid_side > kMostWidth || c.grid_side * 2 * c.width != n)
    return invalid(file.path() + ": the vision tower has no table of positions for two axes", "v.position_embd.weight");
  c.rope_base = kGemma4RopeBase;
  c.clips = file.find("v.blk.0.attn_q.input_max") != nullptr;
  c.standardises = file.find("v.std_scale") != nullptr;
  return {};
}

Result<TowerConfig> from_gguf(const ModelFile& file) {
  const std::string v = "clip.vision.";
  const char* key = file.has_meta("clip.projector_type") ? "clip.projector_type" : "clip.vision.projector_type";
  ASSIGN_OR_RETURN(const std::string name, file.meta_string(key));
  TowerConfig c = {.architecture = name};
  if (name == "qwen3vl_merger") {
    c.kind = TowerKind::kQwen;
    c.n_frames = 2;
  } else if (name == "gemma3") {
    c.kind = TowerKind::kGemma3;
  } else if (name == "gemma4v") {
    c.kind = TowerKind::kGemma4;
  } else {
    return unsupported(file.path() + " is a vision tower with the projector " + in_quotes(name) +
                           "; ibid runs qwen3vl_merger, gemma3 and gemma4v",
                       key);
  }
  int64_t image_side = 0;
  ASSIGN_OR_RETURN(c.n_layers, bounded_size(file, v + "block_count", kMostLayers));
  ASSIGN_OR_RETURN(c.width, bounded_size(file, v + "embedding_length", kMostWidth));
  ASSIGN_OR_RETURN(c.ffn_len, bounded_size(file, v + "feed_forward_length", kMostWidth));
  ASSIGN_OR_RETURN(c.n_heads, bounded_size(file, v + "attention.head_count", kMostWidth));
  ASSIGN_OR_RETURN(c.patch_side, bounded_size(file, v + "patch_size", kMostSide));
  ASSIGN_OR_RETURN(image_side, bounded_size(file, v + "image_size", 1 << 14));
  ASSIGN_OR_RETURN(c.out_width, bounded_size(file, v + "projection_dim", kMostWidth));
  TRY(read_eps(file, v + "attention.layer_norm_epsilon", 1e-6, c));
  c.grid_side = image_side / c.patch_side;
  if (c.kind == TowerKind::kQwen) {
    ASSIGN_OR_RETURN(c.merge, file.meta_int(v + "spatial_merge_size", 2));
    if (file.has_meta(v + "is_deepstack_layers")) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> is_deep, file.meta_ints(v + "is_deepstack_layers"));
      for (size_t l = 0; l < is_deep.size(); ++l) {
        if (is_deep[l] != 0) c.deep_layers.push_back(static_cast<int64_t>(l));
      }
    }
  } else {
    const bool is_gemma4 = c.kind == TowerKind::kGemma4;
    ASSIGN_OR_RETURN(c.merge, file.meta_int(v + "projector.scale_factor", is_gemma4 ? 3 : 4));
    if (is_gemma4) TRY(gemma4_from_tensors(file, c));
  }
  if (c.merge < 1 || c.merge > 8 || c.grid_side < 1 || (c.grid_side > kMostSide && c.kind != TowerKind::kGemma4))
    return invalid(file.path() + ": the vision tower's grid of " + std::to_string(c.grid_side) +
                   " patches a side, merged by " + std::to_string(c.merge) + ", is not one");
  return c;
}

TowerKind kind_of(const std::string& model_type) {
  if (model_type == "gemma4") return TowerKind::kGemma4;
  return model_type == "gemma3" ? TowerKind::kGemma3 : TowerKind::kQwen;
}

bool is_known(const std::string& model_type) {
  return model_type == "gemma3" || model_type == "gemma4" || model_type == "qwen3_vl" || model_type == "qwen3_5" ||
         model_type == "qwen3_5_moe";
}

}  // namespace

bool has_tower(const ModelFile& file) {
  if (file.container() == Container::kGguf) {
    const Result<std::string> name = file.meta_string("general.architecture");
    return name && *name == "clip";
  }
  const Result<std::string> type = file.meta_string("model_type");
  return type && is_known(*type) && file.has_meta("vision_config.hidden_size");
}

Result<TowerConfig> read_tower(const ModelFile& file) {
  if (!has_tower(file))
    return unsupported(file.path() +
                       " has no vision tower that ibid runs; expected one of gemma 3 and 4, Qwen3-VL or "
                       "Qwen3.5, or a GGUF file of the architecture clip");
  Result<TowerConfig> config = invalid("");
  if (file.container() == Container::kGguf) {
    config = from_gguf(file);
  } else {
    ASSIGN_OR_RETURN(const std::string type, file.meta_string("model_type"));
    TowerConfig c = {.kind = kind_of(type), .architecture = type};
    switch (c.kind) {
      case TowerKind::kQwen:
        config = qwen_from_folder(file, std::move(c));
        break;
      case TowerKind::kGemma3:
        config = gemma3_from_folder(file, std::move(c));
        break;
      case TowerKind::kGemma4:
        config = gemma4_from_folder(file, std::move(c));
        break;
    }
  }
  if (!config) return config;
  TRY(check(*config, file.path()));
  return config;
}

std::span<const WeightName> tower_names(TowerKind kind, const ModelFile& file) {
  if (kind == TowerKind::kQwen) return kAllQwenNames;
  if (kind == TowerKind::kGemma4) return kGemma4TowerNames;
  const auto is_old = [](const TensorInfo& t) {
    return t.name.find("vision_tower.vision_model.") != std::string::npos;
  };
  if (std::ranges::any_of(file.tensors(), is_old)) return kOldSiglipNames;
  return kSiglipNames;
}

}  // namespace ibid
