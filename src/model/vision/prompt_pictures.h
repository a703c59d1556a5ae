// PromptPictures: the pictures of a prompt and where they stand in it. Immutable; shared by a request's sequences.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/vision/picture_rows.h"

namespace ibid {

// A picture's cells are the tokens [first, end()) of the prompt, each the model's token for such (PictureTokens::cell).
struct PlacedPicture {
  int32_t first = 0;
  std::shared_ptr<const PictureRows> rows;

  int32_t end() const { return first + rows->n_cells(); }
};

class PromptPictures {
 public:
  // Ascending, none within another.
  explicit PromptPictures(std::vector<PlacedPicture> pictures) : all_(std::move(pictures)) {
    int32_t saved = 0;  // positions that pictures so far have less than tokens
    for (const PlacedPicture& p : all_) {
      saved_before_.push_back(saved);
      saved += p.rows->n_cells() - std::max(p.rows->rows, p.rows->columns);
    }
    saved_before_.push_back(saved);
  }

  std::span<const PlacedPicture> all() const { return all_; }
  // The picture that token i is a cell of; null: it is none's.
  const PlacedPicture* at(int32_t i) const {
    const size_t n = n_begun(i);
    return n > 0 && i < all_[n - 1].end() ? &all_[n - 1] : nullptr;
  }
  // What stands in the place of token i's embedding; null: nothing does.
  const float* input(int32_t i) const {
    const PlacedPicture* p = at(i);
    return p == nullptr ? nullptr : p->rows->of_cell(i - p->first);
  }
  // What M-RoPE turns token i by (Qwen2-VL, section 2.1): text counts on all axes alike; a picture has one time, and
  // its cells count rows and columns from there; what follows counts on from its longer side.
  std::array<int32_t, 3> axes(int32_t i) const {
    const size_t n = n_begun(i);
    if (n == 0) return {i, i, i};
    const PlacedPicture& p = all_[n - 1];
    if (i >= p.end()) {
      const int32_t position = i - saved_before_[n];
      return {position, position, position};
    }
    const int32_t begin = p.first - saved_before_[n - 1], cell = i - p.first;
    return {begin, begin + cell / p.rows->columns, begin + cell % p.rows->columns};
  }

 private:
  // Pictures whose first cell is at or before token i.
  size_t n_begun(int32_t i) const {
    return static_cast<size_t>(std::ranges::upper_bound(all_, i, {}, &PlacedPicture::first) - all_.begin());
  }

  std::vector<PlacedPicture> all_;
  std::vector<int32_t> saved_before_;  // before picture i, and after the last
};

}  // namespace ibid
