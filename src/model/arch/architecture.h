// Architecture: one brand of model that runs as one of our shapes: how its hyper-parameters and its weights are named.
// A new model of known shape is one file here (a mapping for each container and a table of names) and a row in
// architecture.cc; docs/developers/adding_a_model.md walks through it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "format/model_file.h"
#include "model/config.h"

namespace ibid {

// A tensor's canonical name, which is GGUF's, and its name in a Hugging Face folder; {} stands for the layer.
struct WeightName {
  std::string_view canonical;  // "blk.{}.attn_q.weight"
  // "layers.{}.self_attn.q_proj.weight", after the folder's "model." prefix. A second {} is an expert: a folder has a
  // tensor for each. Several rows of one canonical name: the one that the folder has.
  std::string_view folder;
  bool transposed = false;  // [inputs, outputs] in a folder
  bool by_head = false;     // of a fused q, k, v: in a folder those of the first head, then of the next
};

struct Architecture {
  std::string_view gguf_name;    // general.architecture; empty: not found in GGUF files under a name of its own
  std::string_view folder_name;  // config.json's model_type
  Result<ModelConfig> (*from_gguf)(const ModelFile& file);
  Result<ModelConfig> (*from_folder)(const ModelFile& file);
  std::span<const WeightName> names;  // the embedding's is the first
};

// The architecture that a file names; the error lists the known ones.
Result<const Architecture*> find_architecture(const ModelFile& file);
std::span<const Architecture> architectures();

// The tables that several architectures share.
extern const std::span<const WeightName> kLlamaNames;  // llama, mistral, qwen, smollm: all but the fused ones
extern const std::span<const WeightName> kPhi3Names;
extern const std::span<const WeightName> kGemma3Names;  // olmo 2 and 3, exaone 4 too
extern const std::span<const WeightName> kGlm4Names;
extern const std::span<const WeightName> kGemma4Names;
extern const std::span<const WeightName> kNemotronNames;
extern const std::span<const WeightName> kGpt2Names;
extern const std::span<const WeightName> kBloomNames;
extern const std::span<const WeightName> kMptNames;
extern const std::span<const WeightName> kGptOssNames;
extern const std::span<const WeightName> kBertNames;
extern const std::span<const WeightName> kLfm2Names;
extern const std::span<const WeightName> kGraniteHybridNames;
extern const std::span<const WeightName> kNemotronHNames;
extern const std::span<const WeightName> kFalconH1Names;
extern const std::span<const WeightName> kMuseGlimmerNames;

namespace arch {
Result<ModelConfig> llama_from_gguf(const ModelFile& file);
Result<ModelConfig> llama_from_folder(const ModelFile& file);
Result<ModelConfig> mistral_from_folder(const ModelFile& file);
Result<ModelConfig> qwen2_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen2_from_folder(const ModelFile& file);
Result<ModelConfig> qwen3_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen3_from_folder(const ModelFile& file);
Result<ModelConfig> mixtral_from_folder(const ModelFile& file);
Result<ModelConfig> qwen2moe_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen2moe_from_folder(const ModelFile& file);
Result<ModelConfig> qwen3moe_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen3moe_from_folder(const ModelFile& file);
Result<ModelConfig> qwen3vl_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen3vl_from_folder(const ModelFile& file);
Result<ModelConfig> olmoe_from_gguf(const ModelFile& file);
Result<ModelConfig> olmoe_from_folder(const ModelFile& file);
Result<ModelConfig> granitemoe_from_gguf(const ModelFile& file);
Result<ModelConfig> granitemoe_from_folder(const ModelFile& file);
Result<ModelConfig> glm4moe_from_gguf(const ModelFile& file);
Result<ModelConfig> glm4moe_from_folder(const ModelFile& file);
Result<ModelConfig> dots1_from_gguf(const ModelFile& file);
Result<ModelConfig> dots1_from_folder(const ModelFile& file);
Result<ModelConfig> minimax_m2_from_gguf(const ModelFile& file);
Result<ModelConfig> minimax_m2_from_folder(const ModelFile& file);
Result<ModelConfig> hy_v3_from_gguf(const ModelFile& file);
Result<ModelConfig> hy_v3_from_folder(const ModelFile& file);
Result<ModelConfig> hunyuan_moe_from_gguf(const ModelFile& file);
Result<ModelConfig> hunyuan_moe_from_folder(const ModelFile& file);
Result<ModelConfig> ernie4_5_moe_from_gguf(const ModelFile& file);
Result<ModelConfig> ernie4_5_moe_from_folder(const ModelFile& file);
Result<ModelConfig> granite_from_gguf(const ModelFile& file);
Result<ModelConfig> granite_from_folder(const ModelFile& file);
Result<ModelConfig> granitehybrid_from_gguf(const ModelFile& file);
Result<ModelConfig> granitehybrid_from_folder(const ModelFile& file);
Result<ModelConfig> nemotron_h_from_gguf(const ModelFile& file);
Result<ModelConfig> nemotron_h_from_folder(const ModelFile& file);
Result<ModelConfig> falcon_h1_from_gguf(const ModelFile& file);
Result<ModelConfig> falcon_h1_from_folder(const ModelFile& file);
Result<ModelConfig> seed_oss_from_gguf(const ModelFile& file);
Result<ModelConfig> seed_oss_from_folder(const ModelFile& file);
Result<ModelConfig> mistral3_from_gguf(const ModelFile& file);
Result<ModelConfig> mistral3_from_folder(const ModelFile& file);
Result<ModelConfig> glm4_from_gguf(const ModelFile& file);
Result<ModelConfig> glm4_from_folder(const ModelFile& file);
Result<ModelConfig> exaone4_from_gguf(const ModelFile& file);
Result<ModelConfig> exaone4_from_folder(const ModelFile& file);
Result<ModelConfig> ernie4_5_from_gguf(const ModelFile& file);
Result<ModelConfig> ernie4_5_from_folder(const ModelFile& file);
Result<ModelConfig> hunyuan_dense_from_gguf(const ModelFile& file);
Result<ModelConfig> hunyuan_dense_from_folder(const ModelFile& file);
Result<ModelConfig> olmo2_from_gguf(const ModelFile& file);
Result<ModelConfig> olmo2_from_folder(const ModelFile& file);
Result<ModelConfig> olmo3_from_folder(const ModelFile& file);
Result<ModelConfig> gpt_oss_from_gguf(const ModelFile& file);
Result<ModelConfig> gpt_oss_from_folder(const ModelFile& file);
Result<ModelConfig> deepseek2_from_gguf(const ModelFile& file);
Result<ModelConfig> deepseek_v2_from_folder(const ModelFile& file);
Result<ModelConfig> deepseek_v3_from_folder(const ModelFile& file);
Result<ModelConfig> mistral4_from_folder(const ModelFile& file);
Result<ModelConfig> bailing2_from_gguf(const ModelFile& file);
Result<ModelConfig> smollm3_from_gguf(const ModelFile& file);
Result<ModelConfig> smollm3_from_folder(const ModelFile& file);
Result<ModelConfig> phi3_from_gguf(const ModelFile& file);
Result<ModelConfig> phi3_from_folder(const ModelFile& file);
Result<ModelConfig> cohere2_from_gguf(const ModelFile& file);
Result<ModelConfig> cohere2_from_folder(const ModelFile& file);
Result<ModelConfig> nemotron_from_gguf(const ModelFile& file);
Result<ModelConfig> nemotron_from_folder(const ModelFile& file);
Result<ModelConfig> gpt2_from_gguf(const ModelFile& file);
Result<ModelConfig> gpt2_from_folder(const ModelFile& file);
Result<ModelConfig> bloom_from_gguf(const ModelFile& file);
Result<ModelConfig> bloom_from_folder(const ModelFile& file);
Result<ModelConfig> mpt_from_gguf(const ModelFile& file);
Result<ModelConfig> mpt_from_folder(const ModelFile& file);
Result<ModelConfig> gemma2_from_gguf(const ModelFile& file);
Result<ModelConfig> gemma2_from_folder(const ModelFile& file);
Result<ModelConfig> gemma4_from_gguf(const ModelFile& file);
Result<ModelConfig> gemma4_from_folder(const ModelFile& file);
Result<ModelConfig> gemma3_from_gguf(const ModelFile& file);
Result<ModelConfig> gemma3_from_folder(const ModelFile& file);
Result<ModelConfig> lfm2_from_gguf(const ModelFile& file);
Result<ModelConfig> lfm2_from_folder(const ModelFile& file);
Result<ModelConfig> qwen3next_from_gguf(const ModelFile& file);
Result<ModelConfig> qwen3next_from_folder(const ModelFile& file);
Result<ModelConfig> qwen35_from_gguf(const ModelFile& file);
Result<ModelConfig> muse_glimmer_from_gguf(const ModelFile& file);
Result<ModelConfig> muse_glimmer_from_folder(const ModelFile& file);
Result<ModelConfig> bert_from_gguf(const ModelFile& file);
Result<ModelConfig> bert_from_folder(const ModelFile& file);
}  // namespace arch

}  // namespace ibid
