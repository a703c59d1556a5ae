// safetensors: folders as Hugging Face publishes models. config.json, one or more *.safetensors (the shards of
// model.safetensors.index.json where that is there), and, where they are there, tokenizer.json, tokenizer_config.json,
// generation_config.json and chat_template.jinja.
//
// A safetensors file is a length (8 bytes), a JSON header of at most 16 MiB that gives each tensor's dtype, shape and
// place, and data without holes. F32, F16, BF16, F64, F8 and integers are read, all else is refused by name. All of
// it is bytes from outside: places and sizes are checked with overflow in mind, the header is bounded (see
// base/json.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

// A folder with config.json and weights.
Result<ModelFile> open_safetensors_folder(const std::string& folder);

// The tensors of one mapped file, in the order of their data. Data that is not aligned to its elements is copied to
// `copies`; all other views point into the mapping.
Status read_safetensors(const MappedFile& file, std::vector<TensorInfo>& tensors,
                        std::vector<std::unique_ptr<std::byte[]>>& copies);

// The files that an index (the text of model.safetensors.index.json) names, sorted, each once, all plain file names.
Result<std::vector<std::string>> shards_of_index(std::string_view index_json, std::string_view where);

// A safetensors file of these tensors (contiguous; F32, F16, BF16, F64 or integers); for tests.
std::string safetensors_bytes(std::span<const TensorInfo> tensors);

}  // namespace ibid
