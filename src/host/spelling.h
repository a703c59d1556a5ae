// How options are spelled that both flags and errors name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid::host {

// "4-12,16-20": layers, counted from 0; ascending, each once.
Result<std::vector<int32_t>> read_layers(std::string_view text);
// The spelling that read_layers gives back, of layers that ascend: "4-12,16".
std::string layers_text(std::span<const int32_t> layers);

// The shortest spelling of so many bytes, by factors of 1024: "16K", "1M", "1000".
std::string bytes_text(int64_t n);

}  // namespace ibid::host
