// PictureRows: what a vision tower makes of one picture, to stand in the place of embeddings. Shared by the requests
// that show the picture. All but `values` is known before the tower has run; those are set once, on the engine's
// thread, before the first request with them begins (engine/picture_encoder.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/sha256.h"

namespace ibid {

// For tables by digest.
struct PictureHash {
  size_t operator()(const Sha256Digest& digest) const {
    size_t value = 0;
    std::memcpy(&value, digest.data(), sizeof value);
    return value;
  }
};

struct PictureRows {
  // Of the picture's pixels, of how they were made into patches, and of the tower's weights: all that the rows follow
  // from.
  Sha256Digest digest = {};
  int32_t rows = 0, columns = 0;  // of cells; a cell is a token, row by row
  int32_t row_len = 0;            // floats of a cell: C, and C more for each layer that adds some
  // [rows * columns, row_len]; null: not made yet, or only the picture's name is known, as in a record.
  std::shared_ptr<const std::vector<float>> values = nullptr;

  int32_t n_cells() const { return rows * columns; }
  // Null where there are no values.
  const float* of_cell(int32_t i) const { return values ? values->data() + int64_t{i} * row_len : nullptr; }
};

}  // namespace ibid
