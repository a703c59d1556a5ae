// What is added to matrices of a file while it is written again: an adapter that is merged into its weights
// (model/merged_adapters.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ibid {

class RowTerms {
 public:
  virtual ~RowTerms() = default;
  // Of a tensor by its name.
  virtual bool has(std::string_view tensor) const = 0;
  // To row `row` of all rows of a tensor that has some. From any thread.
  virtual void add(std::string_view tensor, int64_t row, std::span<float> values) const = 0;
};

}  // namespace ibid
