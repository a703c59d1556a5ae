// What the tests of downloads share.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "format/download.h"
#include "format/test_http_server.h"
#include "temp_folder.h"

namespace ibid {

// A body with no regularity, so that a misplaced part shows.
inline std::string body(size_t n) {
  std::string out;
  uint64_t state = n;
  while (out.size() < n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out += static_cast<char>(state >> 56);
  }
  return out;
}

inline std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class Fetching : public testing::Test {
 protected:
  FetchOptions options() {
    FetchOptions o;
    o.cache = folder_.path("cache");
    o.hub_token = token_;
    o.hub_endpoint = endpoint_;
    o.timeout_s = 5;
    o.n_retries = 3;
    o.first_pause_ms = 1;
    return o;
  }
  Status get(const TestHttpServer& server, const std::string& target = "/file") {
    return download({.url = server.address() + target, .path = place(), .authorization = ""}, options());
  }
  std::string place() { return folder_.path("file"); }
  bool nothing_left() {
    return !std::filesystem::exists(place() + ".partial") && !std::filesystem::exists(place() + ".partial.etag");
  }

  TempFolder folder_;
  std::string token_ = "none";  // so that the environment is not read
  std::string endpoint_ = "http://127.0.0.1:9";
};

}  // namespace ibid
