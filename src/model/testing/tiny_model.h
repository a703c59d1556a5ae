// Tiny random models of every architecture and weight dtype, in memory or as GGUF bytes: what property tests and
// schedule tests run instead of real ones. The same options give the same bytes on every machine.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "format/model_file.h"
#include "model/config.h"

namespace ibid::testing {

struct TinyModelOptions {
  std::string_view architecture = "llama";  // one of tiny_architectures(), or an encoder: bert, bert_rank
  DType dtype = DType::kF32;                // of all matrices; norms and biases are F32
  uint64_t seed = 1;
  int64_t n_layers = 0;     // 0: the fewest that show the architecture (2 to 4)
  int64_t vocab_size = 96;  // at least 260 with a tokenizer
  int64_t context_len = 512;
  int32_t window = 24;                       // of architectures with windows
  RopeScaling scaling = RopeScaling::kNone;  // llama and qwen3; phi3 is always longrope (original context: a quarter)
  bool long_sums = false;                    // heads and F so wide that wo and w_down have eight pieces of K
  bool tokenizer = false;                    // byte-level, 256 bytes, <|endoftext|>, <|im_start|>, <|im_end|>
};

// Those that make tokens: llama, mistral, qwen2, qwen3, smollm3, phi3, gemma3; with experts qwen3moe, qwen2moe,
// glm4moe, gpt_oss; with recurrent layers lfm2, qwen35 and (with experts too) qwen3next; with latent attention
// deepseek2; and a model of each other shape or switch of the dense ones.
std::span<const std::string_view> tiny_architectures();
// Every dtype that a matrix may have.
std::span<const DType> tiny_dtypes();
// Those whose blocks are random bytes: IQ1 to IQ3, TQ, NVFP4, Q1_0, Q2_0.
std::span<const DType> low_bit_dtypes();

ModelConfig tiny_config(const TinyModelOptions& options);
std::shared_ptr<const ModelFile> tiny_model_file(const TinyModelOptions& options);
// Of a configuration that was changed. Of the options its dtype, seed and tokenizer count.
std::shared_ptr<const ModelFile> tiny_file_of(const ModelConfig& config, const TinyModelOptions& options);
std::string tiny_gguf(const TinyModelOptions& options);

}  // namespace ibid::testing
