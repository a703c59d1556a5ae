#include "model/arch/architecture.h"

#include <array>

namespace ibid {
namespace {

using namespace arch;

const std::array<Architecture, 66> kArchitectures = {{
    {"llama", "llama", llama_from_gguf, llama_from_folder, kLlamaNames},
    {"", "mistral", llama_from_gguf, mistral_from_folder, kLlamaNames},  // GGUF calls mistral llama
    {"qwen2", "qwen2", qwen2_from_gguf, qwen2_from_folder, kLlamaNames},
    {"", "mimo", qwen2_from_gguf, qwen2_from_folder, kLlamaNames},  // with an MTP layer after
    {"qwen3", "qwen3", qwen3_from_gguf, qwen3_from_folder, kLlamaNames},
    {"", "mixtral", llama_from_gguf, mixtral_from_folder, kLlamaNames},
    {"qwen2moe", "qwen2_moe", qwen2moe_from_gguf, qwen2moe_from_folder, kLlamaNames},
    {"qwen3moe", "qwen3_moe", qwen3moe_from_gguf, qwen3moe_from_folder, kLlamaNames},
    {"qwen3vl", "qwen3_vl", qwen3vl_from_gguf, qwen3vl_from_folder, kLlamaNames},
    {"qwen3vlmoe", "", qwen3vl_from_gguf, qwen3vl_from_folder, kLlamaNames},
    {"", "qwen3_vl_text", qwen3vl_from_gguf, qwen3vl_from_folder, kLlamaNames},
    {"olmoe", "olmoe", olmoe_from_gguf, olmoe_from_folder, kLlamaNames},
    {"granitemoe", "granitemoe", granitemoe_from_gguf, granitemoe_from_folder, kLlamaNames},
    {"glm4moe", "glm4_moe", glm4moe_from_gguf, glm4moe_from_folder, kLlamaNames},
    {"dots1", "dots1", dots1_from_gguf, dots1_from_folder, kLlamaNames},
    {"minimax-m2", "minimax_m2", minimax_m2_from_gguf, minimax_m2_from_folder, kLlamaNames},
    {"hy_v3", "hy_v3", hy_v3_from_gguf, hy_v3_from_folder, kLlamaNames},
    {"hunyuan-moe", "hunyuan_v1_moe", hunyuan_moe_from_gguf, hunyuan_moe_from_folder, kLlamaNames},
    {"ernie4_5-moe", "ernie4_5_moe", ernie4_5_moe_from_gguf, ernie4_5_moe_from_folder, kLlamaNames},
    {"granite", "granite", granite_from_gguf, granite_from_folder, kLlamaNames},
    {"granitehybrid", "granitemoehybrid", granitehybrid_from_gguf, granitehybrid_from_folder, kGraniteHybridNames},
    {"nemotron_h", "nemotron_h", nemotron_h_from_gguf, nemotron_h_from_folder, kNemotronHNames},
    {"nemotron_h_moe", "", nemotron_h_from_gguf, nemotron_h_from_folder, kNemotronHNames},
    {"falcon-h1", "falcon_h1", falcon_h1_from_gguf, falcon_h1_from_folder, kFalconH1Names},
    {"seed_oss", "seed_oss", seed_oss_from_gguf, seed_oss_from_folder, kLlamaNames},
    {"mistral3", "mistral3", mistral3_from_gguf, mistral3_from_folder, kLlamaNames},  // its vision tower stays unread
    {"", "ministral3", mistral3_from_gguf, mistral3_from_folder, kLlamaNames},
    {"ernie4_5", "ernie4_5", ernie4_5_from_gguf, ernie4_5_from_folder, kLlamaNames},
    {"hunyuan-dense", "hunyuan_v1_dense", hunyuan_dense_from_gguf, hunyuan_dense_from_folder, kLlamaNames},
    {"olmo2", "olmo2", olmo2_from_gguf, olmo2_from_folder, kGemma3Names},
    {"", "olmo3", olmo2_from_gguf, olmo3_from_folder, kGemma3Names},
    {"exaone4", "exaone4", exaone4_from_gguf, exaone4_from_folder, kGemma3Names},
    {"glm4", "glm4", glm4_from_gguf, glm4_from_folder, kGlm4Names},
    {"gpt-oss", "gpt_oss", gpt_oss_from_gguf, gpt_oss_from_folder, kGptOssNames},
    {"deepseek2", "deepseek_v3", deepseek2_from_gguf, deepseek_v3_from_folder, kLlamaNames},
    {"", "deepseek_v2", deepseek2_from_gguf, deepseek_v2_from_folder, kLlamaNames},
    {"", "kimi_k2", deepseek2_from_gguf, deepseek_v3_from_folder, kLlamaNames},
    {"", "kimi_k25", deepseek2_from_gguf, deepseek_v3_from_folder, kLlamaNames},  // its vision tower stays unread
    {"", "glm4_moe_lite", deepseek2_from_gguf, deepseek_v3_from_folder, kLlamaNames},
    {"mistral4", "mistral4", deepseek2_from_gguf, mistral4_from_folder, kLlamaNames},
    {"bailingmoe2", "", bailing2_from_gguf, nullptr, kLlamaNames},  // no class of transformers reads its folders
    {"smollm3", "smollm3", smollm3_from_gguf, smollm3_from_folder, kLlamaNames},
    {"phi3", "phi3", phi3_from_gguf, phi3_from_folder, kPhi3Names},
    {"gemma3", "gemma3_text", gemma3_from_gguf, gemma3_from_folder, kGemma3Names},
    {"", "gemma3", gemma3_from_gguf, gemma3_from_folder, kGemma3Names},  // with a vision tower, which stays unread
    {"lfm2", "lfm2", lfm2_from_gguf, lfm2_from_folder, kLfm2Names},
    {"lfm2moe", "lfm2_moe", lfm2_from_gguf, lfm2_from_folder, kLfm2Names},
    {"", "lfm2_vl", lfm2_from_gguf, lfm2_from_folder, kLfm2Names},  // with a vision tower, which stays unread
    {"cohere2", "cohere2", cohere2_from_gguf, cohere2_from_folder, kLlamaNames},
    {"nemotron", "nemotron", nemotron_from_gguf, nemotron_from_folder, kNemotronNames},
    {"gpt2", "gpt2", gpt2_from_gguf, gpt2_from_folder, kGpt2Names},
    {"bloom", "bloom", bloom_from_gguf, bloom_from_folder, kBloomNames},
    {"mpt", "mpt", mpt_from_gguf, mpt_from_folder, kMptNames},
    {"gemma2", "gemma2", gemma2_from_gguf, gemma2_from_folder, kGemma3Names},
    {"gemma4", "gemma4_text", gemma4_from_gguf, gemma4_from_folder, kGemma4Names},
    {"", "gemma4", gemma4_from_gguf, gemma4_from_folder, kGemma4Names},  // with towers, which stay unread
    {"", "gemma4_unified", gemma4_from_gguf, gemma4_from_folder, kGemma4Names},
    {"", "gemma4_unified_text", gemma4_from_gguf, gemma4_from_folder, kGemma4Names},
    {"qwen3next", "qwen3_next", qwen3next_from_gguf, qwen3next_from_folder, kLlamaNames},
    {"qwen35", "qwen3_5_text", qwen35_from_gguf, qwen3next_from_folder, kLlamaNames},
    {"qwen35moe", "qwen3_5_moe_text", qwen35_from_gguf, qwen3next_from_folder, kLlamaNames},
    {"", "qwen3_5", qwen35_from_gguf, qwen3next_from_folder, kLlamaNames},  // with a vision tower, which stays unread
    {"", "qwen3_5_moe", qwen35_from_gguf, qwen3next_from_folder, kLlamaNames},  // likewise
    {"muse-glimmer", "muse_glimmer_text", muse_glimmer_from_gguf, muse_glimmer_from_folder, kMuseGlimmerNames},
    {"", "muse_glimmer", muse_glimmer_from_gguf, muse_glimmer_from_folder, kMuseGlimmerNames},  // with a vision tower
    {"bert", "bert", bert_from_gguf, bert_from_folder, kBertNames},
}};

}  // namespace

std::span<const Architecture> architectures() { return kArchitectures; }

Result<const Architecture*> find_architecture(const ModelFile& file) {
  const bool gguf = file.container() == Container::kGguf;
  const std::string_view key = gguf ? "general.architecture" : "model_type";
  ASSIGN_OR_RETURN(std::string name, file.meta_string(key));
  std::string known;
  for (const Architecture& a : kArchitectures) {
    const std::string_view candidate = gguf ? a.gguf_name : a.folder_name;
    if (!candidate.empty() && candidate == name) return &a;
    if (!candidate.empty()) known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  return unsupported("the model's architecture is " + in_quotes(name) + "; ibid runs " + known, std::string(key));
}

}  // namespace ibid
