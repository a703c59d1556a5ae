// An importance matrix in llama.cpp's GGUF form: of each matrix's inputs, the sum of their squares over tokens. A
// quantiser weighs errors by it. general.type is "imatrix"; of a matrix NAME of K inputs there are two F32 tensors,
// NAME.in_sum2 [n, K] and NAME.counts [n, 1], where n is the number of its experts, else 1. imatrix.datasets,
// imatrix.chunk_count and imatrix.chunk_size name what was run.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

class Importance {
 public:
  struct Sums {
    int64_t n_inputs = 0;        // K
    std::vector<float> squares;  // [n, K]
    std::vector<float> counts;   // [n], tokens
  };
  std::map<std::string, Sums, std::less<>> of;  // by the matrix's name: "blk.0.attn_q.weight"
  std::vector<std::string> datasets;
  int64_t n_chunks = 0, chunk_len = 0;

  // The error is a sentence about the file: no imatrix, a sum without a count, other shapes, a number that is negative
  // or not finite.
  static Result<Importance> open(const std::string& path);
  // Appears once complete; the same bytes for the same sums.
  Status write(const std::string& path) const;
  // Adds another's sums, counts and chunks. Error: a matrix of another shape.
  Status add(const Importance& other);

  // The mean squares [n, K] of a matrix's inputs; of one that no token reached ones. Empty: the file has none of it.
  // Error: the file's matrix has other inputs or experts.
  Result<std::vector<float>> weights(std::string_view name, int64_t n_matrices, int64_t n_inputs) const;
};

}  // namespace ibid
