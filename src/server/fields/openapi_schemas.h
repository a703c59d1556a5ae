// The schemas of openapi.json that no table makes: answers, errors, and the bodies of the small routes.
#pragma once

#include <string_view>

namespace ibid {

// Members of components.schemas, without a comma before or after them.
extern const std::string_view kFixedSchemas;

}  // namespace ibid
