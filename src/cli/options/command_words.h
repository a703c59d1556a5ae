// What a command line is made of before it is parsed: the commands' names, their help, flags as other engines spell
// them, and what may have been meant by a wrong one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace ibid::cli {

// The words after the program's name as the parser takes them: "help" is --help, and flags of llama.cpp with one dash
// and several letters have two ("-ctk" would be read as -c with the value "tk"). An error: a command that is not there,
// with the one that may have been meant.
Result<std::vector<std::string>> command_words(CLI::App& app, std::vector<std::string> words);

// The sentence after "error: " for a line that the parser has refused, and the fix: a flag that may have been meant,
// and whose --help has more.
std::string refusal(const CLI::App& app, const CLI::Error& error);

}  // namespace ibid::cli
