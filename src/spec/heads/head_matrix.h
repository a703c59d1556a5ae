// A matrix of a head's file with its bias, and the checks that all heads share before preparing one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "format/model_file.h"
#include "tensor/stream.h"

namespace ibid {

struct HeadMatrix {
  const TensorInfo* weight = nullptr;  // in the file; null: none
  const TensorInfo* bias = nullptr;

  // `where` is the prefix of each error message: the file's path and ": ". The weight must be there; [n_outputs,
  // n_inputs].
  Status check_shape(const Stream& stream, const std::string& where, int64_t n_outputs, int64_t n_inputs) const;
  // Checks that a bias has a weight.
  Status check_bias(const std::string& where) const;
};

// Whether the type is allowed for a vector.
bool is_float(const TensorInfo& t);

}  // namespace ibid
