// The GGUF form of a folder's model in memory, for tests that read both containers of one golden model.
#pragma once

#include <string>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid::testing {

Result<ModelFile> as_gguf(const ModelFile& folder);

// Its bytes as a file.
std::string gguf_bytes(const ModelFile& file);

}  // namespace ibid::testing
