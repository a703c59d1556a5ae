// Members of JSON answers, and the events of streams, for tests of several APIs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace ibid {

// A member of an object; null where it is missing. Lives as long as `json`.
inline const Json& at(const Json& json, std::string_view key) {
  static const Json kNone;
  const Json* found = json.find(key);
  return found != nullptr ? *found : kNone;
}

// A member's string; empty where it is missing or no string.
inline std::string text_of(const Json& json, std::string_view key) {
  return at(json, key).string() != nullptr ? *at(json, key).string() : "";
}

// A member's array; empty where it is missing or no array. Lives as long as `json`.
inline const Json::Array& list_of(const Json& json, std::string_view key) {
  static const Json::Array kNone;
  return at(json, key).array() != nullptr ? *at(json, key).array() : kNone;
}

// The events of a stream with their types: of their `event:` lines, else of their data's member `type`. Without
// `[DONE]`; data that are not JSON fail the test and are left out.
inline std::vector<std::pair<std::string, Json>> events_of(const std::string& body) {
  std::vector<std::pair<std::string, Json>> out;
  size_t begin = 0;
  for (size_t end; (end = body.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
    const std::string event = body.substr(begin, end - begin);
    const size_t data = event.find("data: ");
    if (data == std::string::npos || event.substr(data) == "data: [DONE]") continue;
    Result<Json> json = parse_json(event.substr(data + 6));
    EXPECT_TRUE(json.ok()) << event;
    if (!json) continue;
    std::string type = event.starts_with("event: ") ? event.substr(7, event.find('\n') - 7) : text_of(*json, "type");
    out.emplace_back(std::move(type), *std::move(json));
  }
  return out;
}

}  // namespace ibid
