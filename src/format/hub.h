// Models of the Hugging Face hub, or of any server that answers its addresses (HF_ENDPOINT):
// ENDPOINT/user/repo/resolve/REVISION/FILE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "format/source.h"

namespace ibid {

struct HubModel {
  std::string repository;         // "user/repo"
  std::string revision = "main";  // branch, tag or commit
  std::string file;               // or a tag that means one; empty: the whole safetensors repository
  std::string text() const;       // hf:...
};

// What comes after "hf:". Names are checked so that they are safe as paths and in addresses.
Result<HubModel> parse_hub(std::string_view text);

// Its path, a file or a folder, under cache/models/hub. A tag selects among the files that are there.
std::string hub_path(const HubModel& model, const std::string& cache);
bool hub_present(const HubModel& model, const std::string& cache);

// Removes it; returns the bytes. kNotFound where it is not there, kUnavailable while another process fetches it.
Result<int64_t> remove_hub(const HubModel& model, const std::string& cache);

// Fetches it (a folder: config.json, the weights by their index, and what there is of tokenizer.json,
// tokenizer_config.json, generation_config.json and chat_template.jinja) and returns hub_path.
Result<std::string> fetch_hub(const HubModel& model, const FetchOptions& options);

}  // namespace ibid
