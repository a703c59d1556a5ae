// The files of a hub's repository, and which of its GGUF files a tag ("Q4_K_M") means.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

// The names of the hub's answer about a repository: {"siblings": [{"rfilename": "model-Q4_K_M.gguf"}, ..]}.
Result<std::vector<std::string>> hub_file_names(std::string_view answer, const std::string& where);
// Those of them that are whole models in one GGUF file: no part of a split model, no image projector.
std::vector<std::string> gguf_models(std::span<const std::string> names);
// The file whose name contains the tag as a word, in any letter case; the shortest of several. Empty where there is
// none.
std::string file_of_tag(std::span<const std::string> names, std::string_view tag);
// A word after the colon of hf:user/repo:WORD that names no file.
bool is_tag(std::string_view word);

}  // namespace ibid
