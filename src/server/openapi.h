// openapi.json, made from the table of fields.
#pragma once

#include <string>

namespace ibid {

std::string openapi_json();

}  // namespace ibid
