#include "cli/terminal/exit_code.h"

#include <cstdio>
#include <string>
#include <string_view>

namespace ibid::cli {

int fail(const Error& error, int exit_code) {
  std::string sentence = error.message;
  if (sentence.empty() || std::string_view(".!?").find(sentence.back()) == std::string_view::npos) sentence += '.';
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  return exit_code;
}

}  // namespace ibid::cli
