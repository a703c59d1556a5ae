// The values of flags that have a unit or a range: read strictly, because a wrong one must be reported, not replaced.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "host/spelling.h"

namespace ibid::cli {

// "12"; no sign but a minus, no fraction, nothing after it.
Result<int64_t> read_whole(std::string_view text, int64_t min, int64_t max);
// "4096", "16K", "1.5GiB": factors of 1024, any case. The range is in bytes.
Result<int64_t> read_bytes(std::string_view text, int64_t min, int64_t max);
// "30", "0.5": finite.
Result<double> read_seconds(std::string_view text, double min, double max);
// "50ms", "0.05s", "0.05": in seconds.
Result<double> read_duration(std::string_view text, double min, double max);

using host::bytes_text;  // what read_bytes gives back
// "30", "0.5".
std::string seconds_text(double seconds);
using host::layers_text;
using host::read_layers;

}  // namespace ibid::cli
