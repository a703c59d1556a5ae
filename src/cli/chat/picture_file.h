// A picture of a file, as a part of a message.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace ibid::cli {

// {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}, with the file's own bytes. They are decoded
// once, so that what is no picture is refused here, by the file's name.
Result<Json> read_picture_part(const std::string& path);

}  // namespace ibid::cli
