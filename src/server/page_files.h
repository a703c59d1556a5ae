// The page's files, built into the binary by module.cmake.
#pragma once

#include <span>
#include <string_view>

namespace ibid {

struct PageFile {
  std::string_view path;  // "/", "/app.js", ...
  std::string_view content_type;
  std::string_view content;
};

std::span<const PageFile> page_files();

}  // namespace ibid
