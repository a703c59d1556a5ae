// Published data that is no part of the repository (vocabularies, chat templates, traces): tests that read it are run
// by hand, and their suites' names begin with ByHand.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ibid {

// The folder `name` of the one that IBID_DATA names; empty where it is not there, and the test skips.
inline std::filesystem::path outside_data(const std::string& name) {
  const char* root = std::getenv("IBID_DATA");
  if (root == nullptr) return {};
  std::filesystem::path folder = std::filesystem::path(root) / name;
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace ibid
