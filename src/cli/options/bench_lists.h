// Lists of numbers as llama-bench has them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid::cli {

// "1,2", "4-8", "8-32+8", "128-1024*2": numbers, and ranges by sums or products. At most 1000 of them.
Result<std::vector<int32_t>> read_counts(std::string_view text, int64_t min, int64_t max);

}  // namespace ibid::cli
