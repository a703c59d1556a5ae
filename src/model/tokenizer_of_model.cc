#include "model/tokenizer_of_model.h"

#include <algorithm>

#include "base/log.h"
#include "format/gguf_vocabulary.h"
#include "model/config.h"

namespace ibid {
namespace {

Result<std::shared_ptr<const Tokenizer>> read(const ModelFile& file) {
  if (file.container() == Container::kGguf) {
    ASSIGN_OR_RETURN(Vocabulary vocabulary, vocabulary_from_gguf(file));
    if (vocabulary.model == VocabularyModel::kBpe && vocabulary.pre_tokenizer.empty()) {
      log_warn(
          file.path() +
          " names no pre-tokenizer (tokenizer.ggml.pre): words are cut by the default expression, which few models "
          "were trained with, and answers may be worse; a file converted again has the name");
    }
    return Tokenizer::from_vocabulary(std::move(vocabulary));
  }
  if (file.tokenizer_json().empty()) {
    return invalid(file.path() + " has no tokenizer.json; expected a folder with one, or a GGUF file",
                   "tokenizer.json");
  }
  return Tokenizer::from_json(file.tokenizer_json(), file.tokenizer_config_json());
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const ModelFile& file) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, read(file));
  if (file.tensors().empty()) return tokenizer;
  ASSIGN_OR_RETURN(ModelConfig config, read_config(file));
  if (tokenizer->vocab_size() > config.vocab_size) {
    return invalid(file.path() + ": the tokenizer has " + std::to_string(tokenizer->vocab_size()) +
                       " tokens but the model embeds " + std::to_string(config.vocab_size) +
                       "; they do not belong together",
                   "vocabulary");
  }
  return tokenizer;
}

std::string chat_template_of(const ModelFile& file, const Tokenizer& tokenizer) {
  return file.chat_template().empty() ? tokenizer.vocabulary().chat_template : file.chat_template();
}

std::vector<TokenId> end_of_generation_of(const ModelFile& file, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids = tokenizer.vocabulary().end_of_generation;
  if (ids.empty() && tokenizer.vocabulary().eos != TokenId::kNone) ids.push_back(tokenizer.vocabulary().eos);
  for (const char* key : {"eos_token_id", "text_config.eos_token_id", "generation_config.eos_token_id"}) {
    if (file.container() != Container::kSafetensors || !file.has_meta(key)) continue;
    Result<std::vector<int64_t>> found = file.meta_ints(key);
    if (!found) continue;
    for (int64_t id : *found) {
      if (id >= 0 && id < tokenizer.vocab_size()) ids.push_back(TokenId{static_cast<int32_t>(id)});
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace ibid
