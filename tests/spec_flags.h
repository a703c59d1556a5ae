// The flags of drafting, as a command reads them; with the same errors.
#pragma once

#include <string>

#include "cli/options/command_line.h"

namespace ibid::cli {

inline Result<SpecArgs> spec(const std::string& flags) {
  SpecArgs args;
  CLI::App app;
  add_spec_options(&app, args);
  try {
    app.parse(flags);
  } catch (const CLI::ParseError& e) {
    return invalid(e.what());
  }
  return args;
}

}  // namespace ibid::cli
