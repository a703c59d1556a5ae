// Vocabulary: a model file's description of its tokenizer, as plain data. format/ fills it from GGUF metadata and
// text/ from tokenizer.json; Tokenizer::from_vocabulary checks it (it is bytes from outside).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace ibid {

enum class VocabularyModel { kBpe, kSentencePieceBpe, kUnigram, kWordPiece };

// As GGUF's tokenizer.ggml.token_type numbers them.
enum class TokenType : int8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocabulary {
  VocabularyModel model = VocabularyModel::kBpe;
  std::string pre_tokenizer;        // GGUF's tokenizer.ggml.pre ("smollm", "llama-bpe", ...; "" where none); BPE only
  std::vector<std::string> tokens;  // as spelled in the file (byte-level BPE: in the printable alphabet)
  std::vector<float> scores;        // empty or one per token (SentencePiece)
  std::vector<TokenType> types;     // empty or one per token
  // Empty in a vocabulary that came from a tokenizer.json.
  std::vector<std::string> merges;  // "left right", in order of rank (BPE)

  TokenId bos = TokenId::kNone;
  TokenId eos = TokenId::kNone;
  TokenId unknown = TokenId::kNone;
  TokenId padding = TokenId::kNone;
  TokenId separator = TokenId::kNone;
  std::vector<TokenId> end_of_generation;  // every id that ends an answer (eos, <|eot_id|>, <|im_end|> ...)
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;  // SentencePiece's dummy prefix
  bool remove_extra_whitespaces = false;
  std::string chat_template;  // Jinja source; empty where the file has none
};

// Empty if the two give every id the same spelling and end an answer with the same ids, as two models that share token
// ids must (a draft model and its target, a recorded answer and its replay). Else one sentence about the first
// difference. Merges, scores, types and chat templates may differ.
std::optional<std::string> first_difference(const Vocabulary& a, const Vocabulary& b);

}  // namespace ibid
