// A matrix of a head's file, with its bias, and what all heads ask of one before it is prepared.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "format/model_file.h"
#include "tensor/stream.h"

namespace ibid {

struct HeadMatrix {
  const TensorInfo* weight = nullptr;  // of the file; null: there is none
  const TensorInfo* bias = nullptr;

  // `where` begins each sentence: the file's path and ": ". The weight must be there; [n_outputs, n_inputs].
  Status check_shape(const Stream& stream, const std::string& where, int64_t n_outputs, int64_t n_inputs) const;
  // A bias has a weight.
  Status check_bias(const std::string& where) const;
};

// Whether a vector may be of its type.
bool is_float(const TensorInfo& t);

}  // namespace ibid
