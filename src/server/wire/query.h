// What stands after a path's question mark.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ibid {

std::optional<std::string_view> query_value(std::string_view query, std::string_view name);
std::string percent_decoded(std::string_view text);  // what is no escape stays as it is

}  // namespace ibid
