#include "format/hub.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/mapped_file.h"
#include "base/quoted.h"
#include "format/download.h"
#include "format/fetched_file.h"
#include "format/file_lock.h"
#include "format/safetensors.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kComplete = ".complete";  // in a folder of which everything came

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text[0] != '.' && text[0] != '-' &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; });
}

// Names separated by slashes.
bool is_path(std::string_view text) {
  for (size_t start = 0;;) {
    size_t end = std::min(text.find('/', start), text.size());
    if (!is_name(text.substr(start, end - start))) return false;
    if (end == text.size()) return true;
    start = end + 1;
  }
}

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Fetches single files of one repository into its folder.
class Fetcher {
 public:
  Fetcher(const HubModel& model, const FetchOptions& options, std::string folder)
      : model_(model), options_(options), folder_(std::move(folder)) {
    endpoint_ = options.hub_endpoint.empty() ? from_environment("HF_ENDPOINT") : options.hub_endpoint;
    if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    token_ = options.hub_token.empty() ? from_environment("HF_TOKEN") : options.hub_token;
  }

  Status check() const {
    bool visible = std::all_of(token_.begin(), token_.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
    if (!visible) return invalid("HF_TOKEN contains spaces or control bytes; set it to the token alone", "HF_TOKEN");
    return {};
  }

  // True where it came or was there, false where the repository does not have it.
  Result<bool> fetch(const std::string& file) const {
    std::string path = folder_ + "/" + file;
    std::error_code error;
    if (fs::exists(path, error) && is_sound(path)) return true;
    fs::create_directories(fs::path(path).parent_path(), error);
    Download what{.url = endpoint_ + "/" + model_.repository + "/resolve/" + model_.revision + "/" + file,
                  .path = path,
                  .authorization = token_.empty() ? "" : "Bearer " + token_};
    Status status = download(what, options_);
    if (status) return true;
    if (status.error().kind != ErrorKind::kNotFound) return status.error();
    fs::remove(path + ".partial", error);
    return false;
  }

  Status fetch_needed(const std::string& file, const std::string& otherwise) const {
    ASSIGN_OR_RETURN(bool there, fetch(file));
    if (there) return {};
    return not_found(model_.text() + " has no " + file + "; " + otherwise, model_.text());
  }

 private:
  bool is_sound(const std::string& path) const {
    int n_known = 0;
    return !options_.checks || check_sums(path, options_.cache, n_known).ok();
  }

  const HubModel& model_;
  const FetchOptions& options_;
  std::string folder_;
  std::string endpoint_;
  std::string token_;
};

Status fetch_folder(const Fetcher& fetcher, const std::string& folder, const FetchOptions& options) {
  TRY(fetcher.fetch_needed("config.json",
                           "a repository of GGUF files needs the file's name: hf:user/repo:model-Q4_K_M.gguf"));
  for (const char* file :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}) {
    ASSIGN_OR_RETURN(bool there, fetcher.fetch(file));
    static_cast<void>(there);
  }
  const std::string index = "model.safetensors.index.json";
  ASSIGN_OR_RETURN(bool sharded, fetcher.fetch(index));
  std::vector<std::string> weights = {"model.safetensors"};
  if (sharded) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(folder + "/" + index));
    ASSIGN_OR_RETURN(weights, shards_of_index(file.text(), folder + "/" + index));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!is_name(weights[i])) {
      return invalid(folder + "/" + index + " names the file " + in_quotes(weights[i]) + ", which is no plain name",
                     index);
    }
    TRY(fetcher.fetch_needed(weights[i], "weights are read from safetensors files only"));
    if (options.cancelled && options.cancelled()) return unavailable("cancelled", folder);
  }
  std::ofstream(folder + "/" + std::string(kComplete)) << "\n";
  return {};
}

std::string folder_of(const HubModel& model, const std::string& cache) {
  return cache + "/models/hub/" + model.repository + (model.revision == "main" ? "" : "@" + model.revision);
}

}  // namespace

std::string HubModel::text() const {
  return "hf:" + repository + (revision == "main" ? "" : "@" + revision) + (file.empty() ? "" : ":" + file);
}

Result<HubModel> parse_hub(std::string_view text) {
  HubModel model;
  std::string_view rest = text;
  if (size_t colon = rest.find(':'); colon != std::string_view::npos) {
    model.file = rest.substr(colon + 1);
    if (!is_path(model.file)) return invalid("hf:" + std::string(text) + " names no valid file after the colon");
    rest = rest.substr(0, colon);
  }
  if (size_t at = rest.find('@'); at != std::string_view::npos) {
    model.revision = rest.substr(at + 1);
    if (!is_name(model.revision)) return invalid("hf:" + std::string(text) + " names no valid revision after the @");
    rest = rest.substr(0, at);
  }
  model.repository = rest;
  if (std::count(rest.begin(), rest.end(), '/') != 1 || !is_path(rest)) {
    return invalid("hf:" + std::string(text) + " is no repository; write hf:user/repo or hf:user/repo:file");
  }
  return model;
}

std::string hub_path(const HubModel& model, const std::string& cache) {
  return folder_of(model, cache) + (model.file.empty() ? "" : "/" + model.file);
}

bool hub_present(const HubModel& model, const std::string& cache) {
  std::error_code ignored;
  std::string path = hub_path(model, cache);
  return fs::exists(model.file.empty() ? path + "/" + std::string(kComplete) : path, ignored);
}

Result<std::string> fetch_hub(const HubModel& model, const FetchOptions& options) {
  std::string folder = folder_of(model, options.cache);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable("cannot create " + folder + ": " + error.message(), folder);
  auto waiting = [&] {
    if (options.progress) options.progress({.file = model.text(), .waiting = true});
    return !options.cancelled || !options.cancelled();
  };
  ASSIGN_OR_RETURN(FileLock lock, FileLock::acquire(folder + "/.lock", waiting));
  const std::string path = hub_path(model, options.cache);
  int n_known = 0;
  const bool is_there = hub_present(model, options.cache);
  if (is_there && (!options.checks || check_sums(path, options.cache, n_known))) return path;
  Fetcher fetcher(model, options, folder);
  TRY(fetcher.check());
  if (model.file.empty()) {
    TRY(fetch_folder(fetcher, folder, options));
  } else {
    TRY(fetcher.fetch_needed(model.file, "look at the repository's list of files"));
  }
  return path;
}

}  // namespace ibid
