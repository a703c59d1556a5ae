#include "format/source.h"

#include <filesystem>

#include "base/cache_folder.h"
#include "base/quoted.h"
#include "format/hub.h"
#include "format/package.h"
#include "format/registry.h"

namespace ibid {
namespace {

// Exactly one of the two is set, or `path`.
struct Source {
  const PackagedModel* packaged = nullptr;
  bool from_hub = false;
  HubModel hub = {};
  std::string path = {};
};

Result<Source> parse(std::string_view model) {
  if (model.starts_with("hf:")) {
    ASSIGN_OR_RETURN(HubModel hub, parse_hub(model.substr(3)));
    return Source{.from_hub = true, .hub = std::move(hub)};
  }
  std::error_code ignored;
  // An alias wins over a file of the same name: ./smollm2 still means the file.
  if (const PackagedModel* packaged = find_packaged(model)) return Source{.packaged = packaged};
  if (std::filesystem::exists(std::string(model), ignored)) return Source{.path = std::string(model)};
  std::string known;
  for (const PackagedModel& packaged : packaged_models()) known += std::string(packaged.alias) + ", ";
  return not_found("there is no model " + in_quotes(model) + "; name an alias (" + known +
                       "default), a .gguf file, a folder with config.json, or hf:user/repo[:FILE or tag]",
                   std::string(model));
}

}  // namespace

Result<std::string> locate_model(std::string_view model, const std::string& cache) {
  ASSIGN_OR_RETURN(Source source, parse(model));
  if (!source.path.empty()) return source.path;
  const std::string root = cache.empty() ? cache_folder() : cache;
  bool present = source.from_hub ? hub_present(source.hub, root) : packaged_present(*source.packaged, root);
  if (!present) {
    return not_found(
        "the model " + std::string(model) + " is not on this machine yet; fetch it: ibid pull " + std::string(model),
        std::string(model));
  }
  return source.from_hub ? hub_path(source.hub, root) : packaged_path(*source.packaged, root);
}

Result<int64_t> remove_model(std::string_view model, const std::string& cache) {
  ASSIGN_OR_RETURN(Source source, parse(model));
  if (!source.path.empty())
    return invalid(in_quotes(source.path) +
                       " is a file of your own; what was fetched is removed by the name that ibid "
                       "models has for it",
                   source.path);
  const std::string root = cache.empty() ? cache_folder() : cache;
  if (source.from_hub) return remove_hub(source.hub, root);
  if (!packaged_present(*source.packaged, root))
    return not_found("the model " + std::string(model) + " is not on this machine", std::string(model));
  const std::string path = packaged_path(*source.packaged, root);
  std::error_code wrong;
  const auto n_bytes = static_cast<int64_t>(std::filesystem::file_size(path, wrong));
  if (wrong || !std::filesystem::remove(path, wrong))
    return unavailable("cannot remove " + path + ": " + wrong.message(), path);
  return n_bytes;
}

Result<std::string> fetch_model(std::string_view model, const FetchOptions& options) {
  ASSIGN_OR_RETURN(Source source, parse(model));
  if (!source.path.empty()) return source.path;
  FetchOptions complete = options;
  if (complete.cache.empty()) complete.cache = cache_folder();
  const Result<std::string> there = locate_model(model, complete.cache);
  if (there && !options.checks) return there;
  return source.from_hub ? fetch_hub(source.hub, complete) : fetch_packaged(*source.packaged, complete);
}

}  // namespace ibid
