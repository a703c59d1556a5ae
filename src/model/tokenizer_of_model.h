// The tokenizer and the texts around it that a model's file carries, whatever the container.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

// From GGUF's vocabulary, or from a folder's tokenizer.json. Refuses a tokenizer with more tokens than the model embeds
// (files without weights: no such check). A GGUF of a byte-pair vocabulary without a pre-tokenizer's name is
// read with the default one, after one warning in the log.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const ModelFile& file);

// The chat template's Jinja source; empty where the file has none. A folder's chat_template.jinja goes before
// tokenizer_config.json.
std::string chat_template_of(const ModelFile& file, const Tokenizer& tokenizer);

// Every id that ends an answer, ascending: the vocabulary's, and what config.json and generation_config.json add.
std::vector<TokenId> end_of_generation_of(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace ibid
