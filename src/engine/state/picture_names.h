// PictureNames: what the prefix cache calls the cells of pictures. A picture's cells are all one token to the model, so
// their ids are those of any picture; the cache is given an id below those of all tokens instead, one for each picture
// that was seen, by its digest. Equal prompts with equal pictures share blocks, others never do. An id is not used
// twice: a picture that was forgotten in between gets another one, and is computed again. One thread, the engine's.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "model/vision/prompt_pictures.h"

namespace ibid {

class PictureNames {
 public:
  // The prompt as the cache knows it; nullopt after 2^31 pictures. May throw std::bad_alloc.
  std::optional<std::vector<TokenId>> of(std::vector<TokenId> prompt, const PromptPictures& pictures) {
    for (const PlacedPicture& p : pictures.all()) {
      const TokenId name = of(p.rows->digest);
      if (name == TokenId::kNone) return std::nullopt;
      std::fill_n(prompt.begin() + p.first, p.rows->n_cells(), name);
    }
    return prompt;
  }

 private:
  static constexpr size_t kMost = 1 << 16;  // remembered

  TokenId of(const Sha256Digest& digest) {
    if (const auto known = names_.find(digest); known != names_.end()) return known->second;
    if (next_ == std::numeric_limits<int32_t>::min()) return TokenId::kNone;
    if (names_.size() >= kMost) names_.clear();
    return names_.emplace(digest, TokenId{next_--}).first->second;
  }

  std::unordered_map<Sha256Digest, TokenId, PictureHash> names_;
  int32_t next_ = raw(TokenId::kNone) - 1;
};

}  // namespace ibid
