// The draft heads that come with ibid, for its default model, as a part of the program. How they were made:
// docs/speculation.md.
#pragma once

#include "format/model_file.h"

namespace ibid::cli {

Result<ModelFile> own_heads();

}  // namespace ibid::cli
