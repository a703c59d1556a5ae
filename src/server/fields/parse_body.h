// A request's body: one JSON value, strict and bounded. Errors name the place in it ("messages[2].content").
#pragma once

#include <string_view>

#include "base/json.h"

namespace ibid {

// A body's bytes have a bound of their own (HttpOptions).
inline constexpr JsonLimits kBodyLimits = {
    .max_bytes = static_cast<size_t>(-1), .max_depth = 32, .max_values = 400'000, .max_keys = 10'000};

// A byte order mark before it is skipped. `where` of the error is the place in the text.
Result<Json> parse_body(std::string_view text, const JsonLimits& limits = kBodyLimits);

}  // namespace ibid
