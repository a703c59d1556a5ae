// A folder's vision tower as llama.cpp's converter writes it ("mmproj"), in memory, for tests that read both.
#pragma once

#include "base/result.h"
#include "format/model_file.h"

namespace ibid::testing {

Result<ModelFile> tower_as_gguf(const ModelFile& folder);

}  // namespace ibid::testing
