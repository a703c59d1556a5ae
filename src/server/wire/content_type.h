// Whether a body is JSON in UTF-8 by what its headers say. Clients send JSON under all kinds of types (curl: that of
// forms), so that only what says that it is something else is refused.
#pragma once

#include <optional>

#include "server/wire/api_error.h"

namespace ibid {

// 415 for a multipart body, a charset that is neither UTF-8 nor ASCII, and a Content-Encoding.
std::optional<ApiError> check_content_type(const WebRequest& request);

}  // namespace ibid
