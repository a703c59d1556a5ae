// The tokenizer's vocabulary out of GGUF metadata (keys tokenizer.ggml.*, tokenizer.chat_template).
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "format/model_file.h"
#include "text/tokenizer/vocabulary.h"

namespace ibid {

// Checked here: the model is known by name, arrays have a length of one per token, types and ids are in range. The
// tokenizer checks the rest: that merges name tokens, that scores are finite and so on.
//
// Missing keys have llama.cpp's values: SentencePiece adds BOS (id 1) and a space prefix, unigram adds EOS (id 1) ...
// An id that is neither given nor inside the vocabulary is TokenId::kNone.
//
// end_of_generation holds the result of find_end_of_generation for the keys eos, eot and eom and the spellings.
Result<Vocabulary> vocabulary_from_gguf(const ModelFile& file);

// Sets the keys of a vocabulary that Tokenizer::from_vocabulary reads; vocabulary_from_gguf gives it back.
void put_vocabulary(const Vocabulary& vocabulary, std::map<std::string, MetaValue, std::less<>>& metadata);

}  // namespace ibid
