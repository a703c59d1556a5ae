// Texts that commands read.
#pragma once

#include <string>

#include "base/result.h"

namespace ibid::cli {

// The text of a file; "-": standard input.
Result<std::string> text_of_file(const std::string& file);

}  // namespace ibid::cli
