// What a backend of this process needs to show pictures to its model.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/picture_encoder.h"
#include "host/loading.h"
#include "server/request/picture_reader.h"

namespace ibid::cli {

struct PictureParts {
  std::shared_ptr<const PictureReader> reader;
  std::unique_ptr<PictureEncoder> encoder;  // refers to the tower and the stream of what was loaded
};
// Both null where the model has no vision tower. kUnsupported: its vocabulary has no tokens for pictures.
Result<PictureParts> picture_parts(const host::Loaded& loaded, const host::PictureArgs& args);

}  // namespace ibid::cli
