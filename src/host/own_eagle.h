// The EAGLE head that comes with ibid, for its default model, as a part of the program. How it was made:
// docs/users/speculation.md.
#pragma once

#include "format/model_file.h"

namespace ibid::host {

Result<ModelFile> own_eagle();

}  // namespace ibid::host
