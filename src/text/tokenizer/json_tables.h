// The large parts of a tokenizer.json, read without a tree: the model's tables and the added tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/token_map.h"

namespace ibid::json_tables {

struct ModelSlices {
  std::string type, unknown, prefix, suffix;
  std::optional<int64_t> unknown_id, max_characters;
  std::string_view vocab, merges;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

struct Slices {
  std::string_view added_tokens, normalizer, pre_tokenizer, post_processor, decoder;
  std::optional<ModelSlices> model;
};

Result<Slices> read_top(std::string_view json);
// Puts a token at its id, one of n_tokens. Ids may leave holes, but not make a table that is mostly holes.
Status place(std::vector<std::string>& tokens, std::string_view token, int64_t id, size_t n_tokens);
Status read_vocab(std::string_view json, std::vector<std::string>& tokens);
Status read_scored_vocab(std::string_view json, std::vector<std::string>& tokens, std::vector<double>& scores);
// prefix: what continuing pieces are spelled with, left out where two are joined.
Result<std::vector<Merge>> read_merges(std::string_view json, const TokenMap& map, const std::string& prefix);
Status read_added(std::string_view json, size_t n_json_bytes, std::vector<AddedToken>& added);

}  // namespace ibid::json_tables
