// A tokenizer.json as the vocabulary that GGUF describes: the inverse of what Tokenizer::from_vocabulary reads.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/tokenizer/vocabulary.h"

namespace ibid {

// Reads what Tokenizer::from_json reads. Byte-level BPE gets merges and the name of its pre-tokenizer, BPE over
// characters the scores of SentencePiece (a token's is minus the rank of its first merge), WordPiece the marks of its
// first pieces; ids without a token are spelled [PAD<id>]. Before it returns, the tokenizer of the result has given the
// bytes of the original's every token, and its ids for texts of many scripts and for the vocabulary's own pieces. What
// GGUF cannot express (other normalizers and pre-tokenizers, Unigram models) is an error that names it. Any thread.
Result<Vocabulary> vocabulary_from_json(std::string_view tokenizer_json, std::string_view tokenizer_config_json);

}  // namespace ibid
