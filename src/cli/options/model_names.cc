#include "cli/options/model_names.h"

#include <filesystem>
#include <system_error>

#include "format/registry.h"

namespace ibid::cli {

bool is_model_name(const std::string& word) {
  std::error_code ignored;
  return word.starts_with("hf:") || word.ends_with(".gguf") || find_packaged(word) != nullptr ||
         std::filesystem::exists(word, ignored);
}

std::string served_name(const std::string& typed) {
  if (typed == "default") return std::string(kDefaultModel);
  std::error_code ignored;
  if (!std::filesystem::exists(typed, ignored)) return typed;
  const std::filesystem::path path(typed);
  return (path.has_filename() ? path : path.parent_path()).stem().string();  // of a folder, maybe with a slash
}

NamedModel named_model(const std::string& text) {
  const size_t at = text.find('=');
  std::error_code ignored;
  if (at == std::string::npos || std::filesystem::exists(text, ignored)) return {served_name(text), text};
  return {text.substr(0, at), text.substr(at + 1)};
}

}  // namespace ibid::cli
