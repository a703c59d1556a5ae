// bert: encoders of texts (bge, MiniLM, e5, gte) and cross-encoders that score a pair of them.
//
// GGUF does not state which GELU it was. BERT's is the exact one, which is what runs; a folder states it.
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/common.h"

namespace ibid {
namespace {

constexpr std::array<WeightName, 25> kNames = {{
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"position_embd.weight", "embeddings.position_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
    {"blk.{}.attn_q.weight", "encoder.layer.{}.attention.self.query.weight"},
    {"blk.{}.attn_q.bias", "encoder.layer.{}.attention.self.query.bias"},
    {"blk.{}.attn_k.weight", "encoder.layer.{}.attention.self.key.weight"},
    {"blk.{}.attn_k.bias", "encoder.layer.{}.attention.self.key.bias"},
    {"blk.{}.attn_v.weight", "encoder.layer.{}.attention.self.value.weight"},
    {"blk.{}.attn_v.bias", "encoder.layer.{}.attention.self.value.bias"},
    {"blk.{}.attn_output.weight", "encoder.layer.{}.attention.output.dense.weight"},
    {"blk.{}.attn_output.bias", "encoder.layer.{}.attention.output.dense.bias"},
    {"blk.{}.attn_output_norm.weight", "encoder.layer.{}.attention.output.LayerNorm.weight"},
    {"blk.{}.attn_output_norm.bias", "encoder.layer.{}.attention.output.LayerNorm.bias"},
    {"blk.{}.ffn_up.weight", "encoder.layer.{}.intermediate.dense.weight"},
    {"blk.{}.ffn_up.bias", "encoder.layer.{}.intermediate.dense.bias"},
    {"blk.{}.ffn_down.weight", "encoder.layer.{}.output.dense.weight"},
    {"blk.{}.ffn_down.bias", "encoder.layer.{}.output.dense.bias"},
    {"blk.{}.layer_output_norm.weight", "encoder.layer.{}.output.LayerNorm.weight"},
    {"blk.{}.layer_output_norm.bias", "encoder.layer.{}.output.LayerNorm.bias"},
    {"cls.weight", "pooler.dense.weight"},
    {"cls.bias", "pooler.dense.bias"},
    {"cls.output.weight", "classifier.weight"},
    {"cls.output.bias", "classifier.bias"},
}};

}  // namespace

constinit const std::span<const WeightName> kBertNames = kNames;

namespace arch {
namespace {

// Rows of a matrix of the file; 0: there is none.
int64_t rows_of(const ModelFile& file, std::string_view name) {
  const TensorInfo* found = file.find(name);
  return found != nullptr && found->view.rank == 2 ? found->view.dim[0] : 0;
}

// What both containers' numbers come to. `layer` has heads and feed-forward width.
Result<ModelConfig> completed(ModelConfig config, LayerConfig layer) {
  config.shape = Shape::kBert;
  config.qkv_bias = config.attention_output_bias = true;
  layer.n_kv_heads = layer.n_heads;
  layer.rope = kNoRope;
  if (layer.n_heads < 1 || config.width < 1 || config.width % layer.n_heads != 0) {
    return invalid("the encoder's width " + std::to_string(config.width) + " is not a multiple of its " +
                   std::to_string(layer.n_heads) + " heads");
  }
  layer.set_head_len(config.width / layer.n_heads);
  layer.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(layer.key_len)));
  if (config.n_layers < 1 || config.n_layers > 65536) TRY(validate(config));
  config.layers.assign(static_cast<size_t>(config.n_layers), layer);
  return config;
}

}  // namespace

Result<ModelConfig> bert_from_gguf(const ModelFile& file) {
  ModelConfig config;
  LayerConfig layer;
  ASSIGN_OR_RETURN(config.architecture, file.meta_string("general.architecture"));
  const std::string arch = config.architecture + ".";
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int(arch + "block_count"));
  ASSIGN_OR_RETURN(config.width, file.meta_int(arch + "embedding_length"));
  ASSIGN_OR_RETURN(layer.ffn_len, file.meta_int(arch + "feed_forward_length"));
  ASSIGN_OR_RETURN(layer.n_heads, file.meta_int(arch + "attention.head_count"));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int(arch + "context_length"));
  ASSIGN_OR_RETURN(const double eps, file.meta_float(arch + "attention.layer_norm_epsilon"));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(const bool is_causal, file.meta_bool(arch + "attention.causal", false));
  if (is_causal) return unsupported("a causal model of this architecture", arch + "attention.causal");
  ASSIGN_OR_RETURN(config.pooling, pooling_from_gguf(file, arch + "pooling_type"));
  config.vocab_size = rows_of(file, "token_embd.weight");
  config.n_token_types = rows_of(file, "token_types.weight");
  config.n_labels = rows_of(file, "cls.output.weight");
  config.dense_head = config.n_labels > 0 && rows_of(file, "cls.weight") > 0;
  return completed(std::move(config), layer);
}

Result<ModelConfig> bert_from_folder(const ModelFile& file) {
  ModelConfig config;
  LayerConfig layer;
  ASSIGN_OR_RETURN(config.architecture, file.meta_string("model_type"));
  ASSIGN_OR_RETURN(config.n_layers, file.meta_int("num_hidden_layers"));
  ASSIGN_OR_RETURN(config.width, file.meta_int("hidden_size"));
  ASSIGN_OR_RETURN(layer.ffn_len, file.meta_int("intermediate_size"));
  ASSIGN_OR_RETURN(layer.n_heads, file.meta_int("num_attention_heads"));
  ASSIGN_OR_RETURN(config.trained_context_len, file.meta_int("max_position_embeddings"));
  ASSIGN_OR_RETURN(config.vocab_size, file.meta_int("vocab_size"));
  ASSIGN_OR_RETURN(config.n_token_types, file.meta_int("type_vocab_size", 2));
  ASSIGN_OR_RETURN(const double eps, file.meta_float("layer_norm_eps", 1e-12));
  config.norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(const std::string activation, file.meta_string("hidden_act", "gelu"));
  config.gelu_by_tanh = activation == "gelu_new" || activation == "gelu_pytorch_tanh";
  if (activation != "gelu" && !config.gelu_by_tanh) {
    return unsupported("config.json sets \"hidden_act\" to " + in_quotes(activation) +
                           "; ibid runs this architecture with gelu, gelu_new and gelu_pytorch_tanh",
                       "hidden_act");
  }
  TRY(must_be(file, "position_embedding_type", "absolute"));
  TRY(flag_must_be(file, "is_decoder", false));
  config.n_labels = rows_of(file, "classifier.weight");
  config.dense_head = config.n_labels > 0;
  if (config.n_labels > 0) config.pooling = Pooling::kRank;
  return completed(std::move(config), layer);
}

}  // namespace arch
}  // namespace ibid
