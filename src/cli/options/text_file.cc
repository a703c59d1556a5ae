#include "cli/options/text_file.h"

#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

namespace ibid::cli {

Result<std::string> text_of_file(const std::string& file) {
  std::ostringstream out;
  if (file == "-") {
    out << std::cin.rdbuf();
    return std::move(out).str();
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return not_found("the text file " + file + " cannot be read");
  out << in.rdbuf();
  return std::move(out).str();
}

}  // namespace ibid::cli
