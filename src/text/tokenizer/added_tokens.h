// AddedTokens: texts that are cut out before anything else happens, each one token ("<|im_end|>"). Of tokens that begin
// at one place the longest wins; their flags are those of the reference's AddedToken.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer/byte_trie.h"

namespace ibid {

struct AddedToken {
  std::string content;
  TokenId id = TokenId::kNone;
  bool special = false;      // only read where special text is parsed
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for after normalization
};

class AddedTokens {
 public:
  static constexpr size_t kMaxTokens = 100'000;
  static constexpr size_t kMaxTokenBytes = 512;  // bounds the time per byte of text

  // A sentence where they are too many or too long.
  static Status check(std::span<const AddedToken> tokens);
  // Where two have the same content the last one counts. Empty contents are left out.
  static Result<AddedTokens> build(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }

  struct Match {
    size_t begin;  // with the white space that it takes
    size_t end;
    size_t text_begin;  // of the content alone
    size_t text_end;
    const AddedToken* token;
  };
  // The first match of text at or after `from` that `allowed` accepts; false where there is none. A match that a flag
  // forbids is passed over whole; one that `allowed` refuses, only its first byte.
  template <typename Allowed>
  bool find(std::string_view text, size_t from, Allowed&& allowed, Match& match) const {
    size_t at = from;
    while (next(text, at, match)) {
      if (!allowed(match)) {
        at = match.text_begin + 1;
        continue;
      }
      if (fits(text, match)) {
        take_space(text, from, match);
        return true;
      }
      at = match.text_end;
    }
    return false;
  }

 private:
  bool next(std::string_view text, size_t from, Match& match) const;
  static bool fits(std::string_view text, const Match& match);
  static void take_space(std::string_view text, size_t from, Match& match);

  std::vector<AddedToken> tokens_;
  ByteTrie trie_;
  std::array<bool, 256> begins_ = {};
};

}  // namespace ibid
