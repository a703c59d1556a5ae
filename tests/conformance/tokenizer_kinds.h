// The kinds of tokenizers that tools/make_tokenizers.py wrote, put together from their parts.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "source_paths.h"

namespace ibid {

inline std::filesystem::path kinds_folder() {
  return std::filesystem::path(source_dir()) / "tests/conformance/tokenizers";
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

// The tokenizer.json of a kind, with its models in place of their names.
inline std::string compose_kind(const std::string& kind) {
  std::string text = read_file(kinds_folder() / "kinds" / (kind + ".json"));
  for (const auto& model : std::filesystem::directory_iterator(kinds_folder() / "models")) {
    std::string name = "\"@" + model.path().stem().string() + "\"";
    if (size_t at = text.find(name); at != text.npos) text.replace(at, name.size(), read_file(model.path()));
  }
  return text;
}

inline std::vector<std::string> tokenizer_kinds() {
  std::vector<std::string> names;
  for (const auto& kind : std::filesystem::directory_iterator(kinds_folder() / "kinds")) {
    names.push_back(kind.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ibid
