// The values of flags that have a unit or a range: read strictly, because a wrong one must be reported, not replaced.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid::cli {

// "12"; no sign but a minus, no fraction, nothing after it.
Result<int64_t> read_whole(std::string_view text, int64_t min, int64_t max);
// "4096", "16K", "1.5GiB": factors of 1024, any case. The range is in bytes.
Result<int64_t> read_bytes(std::string_view text, int64_t min, int64_t max);
// "30", "0.5": finite.
Result<double> read_seconds(std::string_view text, double min, double max);
// "50ms", "0.05s", "0.05": in seconds.
Result<double> read_duration(std::string_view text, double min, double max);

// "4-12,16-20": layers, counted from 0; ascending, each once.
Result<std::vector<int32_t>> read_layers(std::string_view text);

// The shortest spelling that read_bytes gives back: "16K", "1M", "1000".
std::string bytes_text(int64_t n);
// "30", "0.5".
std::string seconds_text(double seconds);
// The spelling that read_layers gives back, of layers that ascend: "4-12,16".
std::string layers_text(std::span<const int32_t> layers);

}  // namespace ibid::cli
