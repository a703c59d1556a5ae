// quoted: a piece of a file inside a sentence for a person: in quotes, one line, not long, valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace ibid {

// Control characters become \n, \t or \xNN; what is longer than `most` bytes ends with "..." behind a whole character.
std::string quoted(std::string_view text, size_t most = 40);

}  // namespace ibid
