// The text of --help and --help-all: one line a flag. Where a command has many flags, --help shows those that most
// people need, and --help-all shows all.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ibid::cli {

inline constexpr size_t kHelpWidth = 120;  // columns of a line where standard output is no terminal

// Sets the form of the help, and adds --help-all, for `app` and all commands that are added to it afterwards.
void set_up_help(CLI::App& app);
// The long names of flags that --help of this command shows, without dashes; empty: all.
std::span<const std::string_view> common_flags(std::string_view command);
// The help of the command that was parsed last, wrapped to the terminal's width.
std::string help_text(const CLI::App& app, bool all);

}  // namespace ibid::cli
