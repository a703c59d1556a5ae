// Whether a body is JSON in UTF-8 by its headers. Clients send JSON under all kinds of types (curl: that of forms), so
// only a type that states another format is refused.
#pragma once

#include <optional>

#include "server/wire/api_error.h"

namespace ibid {

// 415 for a multipart body, a charset that is neither UTF-8 nor ASCII, and a Content-Encoding.
std::optional<ApiError> check_content_type(const WebRequest& request);

}  // namespace ibid
