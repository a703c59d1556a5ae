#include "format/gguf_vocabulary.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/end_of_generation.h"

namespace ibid {
namespace {

// A model name of its own, which stands for its pre-tokenizer too.
constexpr std::string_view kGemma4 = "gemma4";

Result<VocabularyModel> model_from_name(const std::string& name) {
  if (name == "gpt2" || name == kGemma4) return VocabularyModel::kBpe;
  if (name == "llama") return VocabularyModel::kSentencePieceBpe;
  if (name == "t5") return VocabularyModel::kUnigram;
  if (name == "bert") return VocabularyModel::kWordPiece;
  return unsupported("tokenizer.ggml.model is " + in_quotes(name) + "; gpt2, gemma4, llama, t5 and bert are supported",
                     "tokenizer.ggml.model");
}

Result<TokenId> token_id(const ModelFile& file, std::string_view key, size_t n_tokens, int64_t missing) {
  auto n = static_cast<int64_t>(n_tokens);
  if (!file.has_meta(key)) return missing >= 0 && missing < n ? static_cast<TokenId>(missing) : TokenId::kNone;
  ASSIGN_OR_RETURN(int64_t id, file.meta_int(key));
  // Converters write -1 (also as 2^32-1) for "none".
  if (id == -1 || id == 0xffffffff) return TokenId::kNone;
  if (id < 0 || id >= n) {
    return invalid(file.path() + ": key " + in_quotes(key) + " is " + std::to_string(id) +
                       ", outside the vocabulary of " + std::to_string(n) + " tokens",
                   std::string(key));
  }
  return static_cast<TokenId>(id);
}

Status read_tokens(const ModelFile& file, Vocabulary& v) {
  ASSIGN_OR_RETURN(v.tokens, file.meta_strings("tokenizer.ggml.tokens"));
  if (v.tokens.empty()) return invalid(file.path() + ": the vocabulary is empty", "tokenizer.ggml.tokens");
  if (v.tokens.size() > size_t{1} << 30) {
    return invalid(file.path() + ": a vocabulary of " + std::to_string(v.tokens.size()) + " tokens is beyond 2^30",
                   "tokenizer.ggml.tokens");
  }
  auto wrong_length = [&](std::string_view key, size_t n) {
    return invalid(file.path() + ": key " + in_quotes(key) + " has " + std::to_string(n) + " elements for " +
                       std::to_string(v.tokens.size()) + " tokens",
                   std::string(key));
  };
  if (file.has_meta("tokenizer.ggml.scores")) {
    ASSIGN_OR_RETURN(std::vector<double> scores, file.meta_floats("tokenizer.ggml.scores"));
    if (scores.size() != v.tokens.size()) return wrong_length("tokenizer.ggml.scores", scores.size());
    v.scores.reserve(scores.size());
    for (double score : scores) v.scores.push_back(static_cast<float>(score));
  }
  if (file.has_meta("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(std::vector<int64_t> types, file.meta_ints("tokenizer.ggml.token_type"));
    if (types.size() != v.tokens.size()) return wrong_length("tokenizer.ggml.token_type", types.size());
    v.types.reserve(types.size());
    for (int64_t type : types) {
      if (type < 0 || type > 6) {
        return invalid(file.path() + ": a token has the type " + std::to_string(type) + "; 1 to 6 exist",
                       "tokenizer.ggml.token_type");
      }
      v.types.push_back(type == 0 ? TokenType::kNormal : static_cast<TokenType>(type));  // 0: undefined
    }
  }
  if (file.has_meta("tokenizer.ggml.merges")) {
    ASSIGN_OR_RETURN(v.merges, file.meta_strings("tokenizer.ggml.merges"));
  }
  return {};
}

Status read_special_ids(const ModelFile& file, Vocabulary& v) {
  struct Defaults {
    int64_t bos, eos, unknown, separator, padding;
  };
  Defaults d = {-1, -1, -1, -1, -1};
  if (v.model == VocabularyModel::kSentencePieceBpe) d = {1, 2, 0, -1, -1};
  if (v.model == VocabularyModel::kUnigram) d = {-1, 1, 2, -1, 0};
  if (v.model == VocabularyModel::kWordPiece) d = {101, -1, 100, 102, 0};
  size_t n = v.tokens.size();
  ASSIGN_OR_RETURN(v.bos, token_id(file, "tokenizer.ggml.bos_token_id", n, d.bos));
  ASSIGN_OR_RETURN(v.eos, token_id(file, "tokenizer.ggml.eos_token_id", n, d.eos));
  ASSIGN_OR_RETURN(v.unknown, token_id(file, "tokenizer.ggml.unknown_token_id", n, d.unknown));
  ASSIGN_OR_RETURN(v.padding, token_id(file, "tokenizer.ggml.padding_token_id", n, d.padding));
  // The specification's own spelling of the key is "seperator".
  bool right = file.has_meta("tokenizer.ggml.separator_token_id");
  ASSIGN_OR_RETURN(v.separator, token_id(file,
                                         right ? "tokenizer.ggml.separator_token_id"  //
                                               : "tokenizer.ggml.seperator_token_id",
                                         n, d.separator));

  std::vector<TokenId> named;
  for (std::string_view key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(TokenId id, token_id(file, key, n, -1));
    if (id != TokenId::kNone) named.push_back(id);
  }
  v.end_of_generation = find_end_of_generation(v, named);
  return {};
}

Status read_rules(const ModelFile& file, Vocabulary& v) {
  bool sentence_piece = v.model == VocabularyModel::kSentencePieceBpe;
  bool unigram = v.model == VocabularyModel::kUnigram;
  bool word_piece = v.model == VocabularyModel::kWordPiece;
  constexpr std::string_view kBeginWithBos[] = {"llama3",       "llama-v3", "llama-bpe", "falcon3",
                                                "falcon-h1",    "pixtral",  "midm-2.0",  "lfm2",
                                                "jina-v5-nano", "tekken",   "chameleon"};
  bool bos = sentence_piece || word_piece ||
             (v.model == VocabularyModel::kBpe && std::find(std::begin(kBeginWithBos), std::end(kBeginWithBos),
                                                            v.pre_tokenizer) != std::end(kBeginWithBos));
  ASSIGN_OR_RETURN(v.add_bos, file.meta_bool("tokenizer.ggml.add_bos_token", bos));
  // Files of gemma-4 were converted with the opposite for a while; the model needs true.
  if (v.pre_tokenizer == kGemma4) v.add_bos = true;
  ASSIGN_OR_RETURN(v.add_eos, file.meta_bool("tokenizer.ggml.add_eos_token", unigram));
  ASSIGN_OR_RETURN(v.add_space_prefix, file.meta_bool("tokenizer.ggml.add_space_prefix", sentence_piece || unigram));
  ASSIGN_OR_RETURN(v.remove_extra_whitespaces, file.meta_bool("tokenizer.ggml.remove_extra_whitespaces", false));
  ASSIGN_OR_RETURN(v.chat_template, file.meta_string("tokenizer.chat_template", ""));
  constexpr std::string_view kCharacterMap = "tokenizer.ggml.precompiled_charsmap";
  if (file.has_meta(kCharacterMap)) {
    ASSIGN_OR_RETURN(std::vector<int64_t> map, file.meta_ints(kCharacterMap));
    if (!map.empty()) {
      return unsupported(file.path() + ": its texts go through a map of characters before they are split (key \"" +
                             std::string(kCharacterMap) + "\"), which is not supported: they would be other tokens",
                         std::string(kCharacterMap));
    }
  }
  return {};
}

}  // namespace

Result<Vocabulary> vocabulary_from_gguf(const ModelFile& file) {
  if (!file.has_meta("tokenizer.ggml.model")) {
    return invalid(file.path() + " has no vocabulary (no key \"tokenizer.ggml.model\"); choose a complete file",
                   "tokenizer.ggml.model");
  }
  Vocabulary v;
  ASSIGN_OR_RETURN(std::string model, file.meta_string("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(v.model, model_from_name(model));
  ASSIGN_OR_RETURN(v.pre_tokenizer, file.meta_string("tokenizer.ggml.pre", ""));
  if (model == kGemma4) v.pre_tokenizer = kGemma4;
  TRY(read_tokens(file, v));
  TRY(read_special_ids(file, v));
  TRY(read_rules(file, v));
  return v;
}

void put_vocabulary(const Vocabulary& v, std::map<std::string, MetaValue, std::less<>>& m) {
  const bool sentence_piece = v.model == VocabularyModel::kSentencePieceBpe;
  const bool is_gemma4 = v.model == VocabularyModel::kBpe && v.pre_tokenizer == kGemma4;
  m["tokenizer.ggml.model"] = std::string(is_gemma4                                ? kGemma4
                                          : v.model == VocabularyModel::kBpe       ? "gpt2"
                                          : sentence_piece                         ? "llama"
                                          : v.model == VocabularyModel::kWordPiece ? "bert"
                                                                                   : "t5");
  m["tokenizer.ggml.pre"] = v.model == VocabularyModel::kBpe ? v.pre_tokenizer : std::string("default");
  m["tokenizer.ggml.tokens"] = v.tokens;
  if (!v.scores.empty()) m["tokenizer.ggml.scores"] = std::vector<double>(v.scores.begin(), v.scores.end());
  std::vector<int64_t> types;
  for (const TokenType type : v.types) types.push_back(static_cast<int64_t>(type));
  if (!types.empty()) m["tokenizer.ggml.token_type"] = std::move(types);
  if (!v.merges.empty()) m["tokenizer.ggml.merges"] = v.merges;
  const std::pair<const char*, TokenId> ids[] = {{"bos", v.bos},
                                                 {"eos", v.eos},
                                                 {"unknown", v.unknown},
                                                 {"padding", v.padding},
                                                 {"seperator", v.separator}};  // as the specification spells it
  for (const auto& [name, id] : ids) {
    if (id != TokenId::kNone) m["tokenizer.ggml." + std::string(name) + "_token_id"] = int64_t{raw(id)};
  }
  m["tokenizer.ggml.add_bos_token"] = v.add_bos;
  m["tokenizer.ggml.add_eos_token"] = v.add_eos;
  if (sentence_piece) m["tokenizer.ggml.add_space_prefix"] = v.add_space_prefix;
  if (!v.chat_template.empty()) m["tokenizer.chat_template"] = v.chat_template;
}

}  // namespace ibid
