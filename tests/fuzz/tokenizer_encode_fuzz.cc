// Any bytes as a text for tokenizers of every family. Ids are in range; where a family keeps all bytes, they come back.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using namespace ibid;

// Every byte a token, and merges of what is common in the corpus.
Vocabulary byte_vocabulary(const char* pre) {
  Vocabulary v;
  v.pre_tokenizer = pre;
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    std::string token;
    utf8::append(prints ? static_cast<char32_t>(b) : next++, token);
    v.tokens.push_back(token);
  }
  const std::pair<const char*, const char*> kMerges[] = {
      {"a", "b"}, {"ab", "a"}, {"\xC4\xA0", "a"}, {"\xC4\xA0", "\xC4\xA0"}, {"q", "q"}, {"qq", "qq"}, {"1", "2"}};
  for (auto [left, right] : kMerges) {
    v.tokens.push_back(std::string(left) + right);
    v.merges.push_back(std::string(left) + " " + right);
  }
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  v.tokens.push_back("<|end|>");
  v.types.push_back(TokenType::kControl);
  v.tokens.push_back("<<");
  v.types.push_back(TokenType::kUserDefined);
  return v;
}

Vocabulary piece_vocabulary(VocabularyModel model) {
  Vocabulary v;
  v.model = model;
  v.tokens = {"<unk>", "</s>"};
  v.types = {TokenType::kUnknown, TokenType::kControl};
  for (int b = 0; b < 256; ++b) {
    const char* digits = "0123456789ABCDEF";
    v.tokens.push_back(std::string("<0x") + digits[b / 16] + digits[b % 16] + ">");
    v.types.push_back(TokenType::kByte);
  }
  for (const char* t : {"\xE2\x96\x81", "a", "b", "ab", "\xE2\x96\x81\x61", "\xE2\x96\x81\xE2\x96\x81", "\xC3\xA9"}) {
    v.tokens.push_back(t);
    v.types.push_back(TokenType::kNormal);
  }
  for (size_t i = 0; i < v.tokens.size(); ++i) v.scores.push_back(-static_cast<float>(i));
  v.unknown = TokenId{0};
  return v;
}

struct Family {
  std::shared_ptr<const Tokenizer> tokenizer;
  bool lossless;  // also of bytes that are no UTF-8, where they are kept
};

std::vector<Family> make_families() {
  std::vector<Family> all;
  for (const char* pre : {"gpt-2", "smollm", "falcon", "llama-bpe", "deepseek-llm", "deepseek-coder", "deepseek-v3",
                          "gpt-4o", "tekken", "bloom", "viking", "default"}) {
    all.push_back({*Tokenizer::from_vocabulary(byte_vocabulary(pre)), true});
  }
  all.push_back({*Tokenizer::from_vocabulary(byte_vocabulary("qwen2")), false});  // to normal form C
  all.push_back({*Tokenizer::from_vocabulary(piece_vocabulary(VocabularyModel::kSentencePieceBpe)), false});
  all.push_back({*Tokenizer::from_vocabulary(piece_vocabulary(VocabularyModel::kUnigram)), false});
  Vocabulary words;
  words.model = VocabularyModel::kWordPiece;
  words.tokens = {"[UNK]", "a", "##b", "##a", ".", "1"};
  words.unknown = TokenId{0};
  all.push_back({*Tokenizer::from_vocabulary(words), false});
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Family> kFamilies = make_families();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string storage;
  std::string_view repaired = utf8::replace_invalid(text, storage);
  TextRange plain = {size / 4, size / 2};
  for (const Family& family : kFamilies) {
    for (bool strict : {false, true}) {
      EncodeOptions options = {.parse_special = size % 2 == 1, .plain_ranges = {&plain, 1}, .strict_bytes = strict};
      std::vector<TokenId> ids = family.tokenizer->encode(text, options);
      std::string back;
      for (TokenId id : ids) {
        if (raw(id) < 0 || raw(id) >= family.tokenizer->vocab_size()) std::abort();
        back += family.tokenizer->token_bytes(id, true);
      }
      if (family.lossless && back != (strict ? text : repaired)) std::abort();
    }
  }
  return 0;
}
