#include "format/hub_files.h"

#include <algorithm>
#include <cctype>

#include "base/json.h"

namespace ibid {
namespace {

constexpr std::string_view kSuffix = ".gguf";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "-00001-of-00003" at the end.
bool is_part(std::string_view stem) {
  constexpr std::string_view kForm = "-00000-of-00000";
  if (stem.size() < kForm.size()) return false;
  stem.remove_prefix(stem.size() - kForm.size());
  return std::ranges::equal(stem, kForm, [](char c, char form) {
    return form == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == form;
  });
}

bool has_word(std::string_view stem, std::string_view word) {
  constexpr std::string_view kBefore = "-._/", kAfter = "-.";
  for (size_t at = 0; (at = stem.find(word, at)) != std::string_view::npos; ++at) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || kBefore.find(stem[at - 1]) != std::string_view::npos;
    if (begins && (end == stem.size() || kAfter.find(stem[end]) != std::string_view::npos)) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> hub_file_names(std::string_view answer, const std::string& where) {
  ASSIGN_OR_RETURN(const Json reply, parse_json(answer, where));
  const Json* list = reply.find("siblings");
  if (list == nullptr || list->array() == nullptr) return invalid(where + " lists no files", where);
  std::vector<std::string> names;
  for (const Json& file : *list->array()) {
    const Json* name = file.find("rfilename");
    if (name != nullptr && name->string() != nullptr) names.push_back(*name->string());
  }
  return names;
}

std::vector<std::string> gguf_models(std::span<const std::string> names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const std::string small = lower(name);
    if (!small.ends_with(kSuffix) || small.find("mmproj") != std::string::npos) continue;
    if (!is_part(std::string_view(small).substr(0, small.size() - kSuffix.size()))) out.push_back(name);
  }
  return out;
}

std::string file_of_tag(std::span<const std::string> names, std::string_view tag) {
  std::string best;
  const std::string word = lower(tag);
  for (const std::string& name : gguf_models(names)) {
    if (!has_word(lower(std::string_view(name).substr(0, name.size() - kSuffix.size())), word)) continue;
    const bool is_better = best.empty() || name.size() < best.size() || (name.size() == best.size() && name < best);
    if (is_better) best = name;
  }
  return best;
}

bool is_tag(std::string_view word) {
  return !word.empty() && word.find('/') == std::string_view::npos && !lower(word).ends_with(kSuffix);
}

}  // namespace ibid
