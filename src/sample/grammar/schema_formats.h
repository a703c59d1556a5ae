// The texts of JSON Schema's `format`, as expressions. RFC 3339 (dates with leap days), 4122, 3986, 2673, 4291 and the
// usual ones: narrower than some validators are, never wider.
#pragma once

#include <string_view>

namespace ibid::grammar {

// Null for formats without an expression here.
const char* format_expression(std::string_view format);
// Whether the expression is exactly what the format allows, so that its complement is exact too.
bool format_is_exact(std::string_view format);

}  // namespace ibid::grammar
