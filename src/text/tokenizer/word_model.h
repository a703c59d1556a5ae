// WordModel: turns one pre-tokenized word into ids. Immutable; scratch belongs to the calling thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer/scratch.h"

namespace ibid {

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the ids of `word`, which is not empty. Invalid UTF-8 may be in it where the caller keeps bytes.
  virtual void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& out) const = 0;
};

}  // namespace ibid
