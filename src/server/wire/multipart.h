// The parts of a multipart/form-data body (RFC 7578), as clients upload files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

struct FormPart {
  std::string name, filename;
  std::string_view content;  // within the body
};

// At most 32 parts; those without a name are refused.
Result<std::vector<FormPart>> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace ibid
