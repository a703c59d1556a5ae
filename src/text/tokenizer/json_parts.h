// The small parts of a tokenizer.json: normalizer, pre-tokenizer, post-processor, decoder. Each function reads one JSON
// value; a part of an unknown type is refused by its name.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/decoding.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/token_map.h"

namespace ibid::json_parts {

Result<std::vector<NormalizerStep>> read_normalizer(std::string_view json);

struct PreTokenizerParts {
  std::vector<PreTokenizerStep> steps;
  bool byte_level = false;  // a ByteLevel step is among them
  double growth = 1.0;      // how many times as long the steps make a text at most
};
Result<PreTokenizerParts> read_pre_tokenizer(std::string_view json);

// Ids around a text, TokenId::kNone where it goes. n_tokens: ids must be below.
Result<std::vector<TokenId>> read_post_processor(std::string_view json, size_t n_tokens);

struct DecoderParts {
  std::vector<DecoderStep> steps;
  double growth = 1.0;  // how many times as long the steps make a token at most
  bool strips_leading_space = false;
  bool strips_trailing_space = false;
};
Result<DecoderParts> read_decoder(std::string_view json);

// tokenizer_config.json. Texts are empty where absent.
struct Config {
  std::string bos, eos, unknown, padding, separator, chat_template;
};
Result<Config> read_config(std::string_view json);

}  // namespace ibid::json_parts
