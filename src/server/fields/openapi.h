// The description of the API for programs: OpenAPI 3.1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/fields/api_request.h"

namespace ibid {

// With the bounds that this server keeps and the defaults that its requests have; `max_token`: the model's last id;
// `root_path`: before every path, where the server is behind a proxy.
std::string openapi_json(const ApiLimits& limits, int32_t max_token = INT32_MAX, const SamplingDefaults& defaults = {},
                         std::string_view root_path = {});

}  // namespace ibid
