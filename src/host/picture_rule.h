// How pictures are cut for a vision tower, as its file or folder describes it.
#pragma once

#include "base/result.h"
#include "format/model_file.h"
#include "image/patches.h"
#include "model/vision/tower_config.h"

namespace ibid::host {

// Of a folder its preprocessor_config.json, or processor_config.json; of a GGUF file its clip.vision.* keys, with the
// family's own values where there are none. No picture has more than `max_patches` patches: larger ones are shrunk
// where the tower takes any size.
Result<PatchRule> picture_rule(const ModelFile& file, const TowerConfig& tower, int64_t max_patches);

}  // namespace ibid::host
