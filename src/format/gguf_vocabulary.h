// The tokenizer's vocabulary out of GGUF metadata (keys tokenizer.ggml.*, tokenizer.chat_template).
#pragma once

#include "base/result.h"
#include "format/model_file.h"
#include "text/tokenizer/vocabulary.h"

namespace ibid {

// Checked here: the model is known by name, arrays have a length of one per token, types and ids are in range. That
// merges name tokens, that scores are finite and so on is the tokenizer's to check.
//
// Where a file is silent, the values are llama.cpp's: SentencePiece adds BOS (id 1) and a space prefix, unigram adds
// EOS (id 1) ... An id that is neither given nor inside the vocabulary is TokenId::kNone.
//
// end_of_generation holds what find_end_of_generation makes of the keys eos, eot and eom, and of the spellings.
Result<Vocabulary> vocabulary_from_gguf(const ModelFile& file);

}  // namespace ibid
