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
#include "format/gguf.h"
#include "format/http_client.h"
#include "format/hub_files.h"
#include "format/safetensors.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kComplete = ".complete";  // in a folder of which everything came
constexpr size_t kMostListed = 8 << 20;              // bytes of the hub's answer about a repository
constexpr size_t kMostNamed = 20;                    // files in a sentence

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
                  .authorization = authorization()};
    Status status = download(what, options_);
    if (status) return true;
    if (status.error().kind != ErrorKind::kNotFound) return status.error();
    fs::remove(path + ".partial", error);
    return false;
  }

  // The names of all its files.
  Result<std::vector<std::string>> list() const {
    const std::string url = endpoint_ + "/api/models/" + model_.repository + "/revision/" + model_.revision;
    HttpRequest request{.url = url, .authorization = authorization(), .timeout_s = options_.timeout_s};
    request.cancelled = options_.cancelled;
    std::string answer;
    TRY(http_get(request, {.on_head = [&](const std::vector<HttpHead>& heads) -> Status {
                             const int status = heads.back().status;
                             if (status == 200) return {};
                             return unavailable(url + " answered " + std::to_string(status), url);
                           },
                           .on_body = [&](std::string_view bytes) -> Status {
                             if (answer.size() + bytes.size() > kMostListed) return invalid(url + " is too long", url);
                             answer += bytes;
                             return {};
                           }}));
    return hub_file_names(answer, url);
  }

  Status fetch_needed(const std::string& file, const std::string& otherwise) const {
    ASSIGN_OR_RETURN(bool there, fetch(file));
    if (there) return {};
    return not_found(model_.text() + " has no " + file + "; " + otherwise, model_.text());
  }

 private:
  std::string authorization() const { return token_.empty() ? "" : "Bearer " + token_; }
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

// For a sentence: the GGUF files of a repository, as far as the hub lists them.
std::string gguf_choice(const Fetcher& fetcher, const HubModel& model) {
  const auto names = fetcher.list();
  const std::vector<std::string> files = names ? gguf_models(*names) : std::vector<std::string>();
  if (files.empty())
    return "a repository of GGUF files needs the file's name: hf:" + model.repository + ":model-Q4_K_M.gguf";
  std::string out =
      "name one of its GGUF files, or a tag as " + HubModel{model.repository, model.revision, "Q4_K_M"}.text() + ":";
  for (size_t i = 0; i < std::min(files.size(), kMostNamed); ++i) out += (i > 0 ? ", " : " ") + shown(files[i], 128);
  if (files.size() > kMostNamed) out += " and " + std::to_string(files.size() - kMostNamed) + " more";
  return out;
}

// The model with the file that its tag means.
Result<HubModel> with_file(const Fetcher& fetcher, const HubModel& model) {
  HubModel out = model;
  if (!is_tag(model.file)) return out;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fetcher.list());
  if (std::ranges::find(names, model.file) != names.end()) return out;
  out.file = file_of_tag(names, model.file);
  if (out.file.empty())
    return not_found(model.text() + ": no file of " + in_quotes(model.file) + "; " + gguf_choice(fetcher, model),
                     model.text());
  if (!is_path(out.file))
    return invalid(model.text() + " means the file " + in_quotes(out.file) + ", which is no plain name", model.text());
  return out;
}

Status fetch_folder(const Fetcher& fetcher, const HubModel& model, const std::string& folder,
                    const FetchOptions& options) {
  ASSIGN_OR_RETURN(const bool is_folder, fetcher.fetch("config.json"));
  if (!is_folder) return not_found(model.text() + " has no config.json; " + gguf_choice(fetcher, model), model.text());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
                           "quantize_config.json", "quant_config.json", "hf_quant_config.json"}) {
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

// A tag becomes the file that is there; empty where there is none.
std::string file_there(const HubModel& model, const std::string& folder) {
  std::error_code error;
  if (!is_tag(model.file) || fs::exists(folder + "/" + model.file, error)) return model.file;
  std::vector<std::string> names;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(fs::relative(it->path(), folder, error).generic_string());
  return file_of_tag(names, model.file);
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
    return invalid("hf:" + std::string(text) +
                   " is no repository; write hf:user/repo, hf:user/repo:FILE or hf:user/repo:Q4_K_M");
  }
  return model;
}

std::string hub_path(const HubModel& model, const std::string& cache) {
  const std::string folder = folder_of(model, cache), file = file_there(model, folder);
  return folder + (file.empty() ? "" : "/" + file);
}

bool hub_present(const HubModel& model, const std::string& cache) {
  std::error_code ignored;
  const std::string folder = folder_of(model, cache);
  if (model.file.empty()) return fs::exists(folder + "/" + std::string(kComplete), ignored);
  const std::string file = file_there(model, folder);
  return !file.empty() && fs::exists(folder + "/" + file, ignored);
}

Result<int64_t> remove_hub(const HubModel& model, const std::string& cache) {
  const std::string folder = folder_of(model, cache);
  std::error_code error;
  if (!fs::is_directory(folder, error)) return not_found(model.text() + " is not on this machine", model.text());
  ASSIGN_OR_RETURN(const FileLock lock, FileLock::acquire(folder + "/.lock", [] { return false; }));
  const std::string file = file_there(model, folder);
  const std::vector<std::string> of_model = split_files(file);
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = fs::relative(it->path(), folder, error).generic_string();
    if (!it->is_regular_file(error) || name == ".lock") continue;
    // GGUF files of the repository are models of their own.
    const bool is_gguf = name.find(".gguf") != std::string::npos;
    const auto is_of = [&](const std::string& f) {
      return name == f || name == f + ".sha256" || name.starts_with(f + ".partial");
    };
    if (model.file.empty() ? !is_gguf : std::ranges::any_of(of_model, is_of)) files.push_back(it->path());
  }
  if (files.empty() || (!model.file.empty() && file.empty()))
    return not_found(model.text() + " is not on this machine", model.text());
  int64_t n_bytes = 0;
  // Remove the mark of completeness first.
  std::ranges::partition(files, [](const fs::path& path) { return path.filename() == kComplete; });
  for (const fs::path& path : files) {
    n_bytes += static_cast<int64_t>(fs::file_size(path, error));
    if (!fs::remove(path, error)) return unavailable("cannot remove " + path.string() + ": " + error.message(), path);
  }
  return n_bytes;
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
    TRY(fetch_folder(fetcher, model, folder, options));
    return hub_path(model, options.cache);
  }
  ASSIGN_OR_RETURN(const HubModel named, with_file(fetcher, model));
  // The named file is there last, so that the others are there where it is.
  for (const std::string& file : split_files(named.file)) {
    if (file != named.file) TRY(fetcher.fetch_needed(file, "it is one of the files of a split model"));
  }
  ASSIGN_OR_RETURN(const bool has_it, fetcher.fetch(named.file));
  if (!has_it) return not_found(named.text() + " is not there; " + gguf_choice(fetcher, model), named.text());
  return hub_path(named, options.cache);
}

}  // namespace ibid
