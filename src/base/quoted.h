// A piece of a file, or of a client's text, inside a sentence for a person or a line of a log: one line, not long,
// valid UTF-8, whatever the bytes are.
#pragma once

#include <string>
#include <string_view>

namespace ibid {

// The first `most` bytes, and "..." after a whole character where there are more. Control characters become \n, \t or
// \xNN, as do bytes that are no UTF-8; a quote or backslash gets a backslash before it.
std::string shown(std::string_view text, size_t most = 80);

// The same within quotes.
inline std::string in_quotes(std::string_view text, size_t most = 80) { return '"' + shown(text, most) + '"'; }

}  // namespace ibid
