#include "server/wire/multipart.h"

#include "server/wire/header_text.h"

namespace ibid {
namespace {

constexpr size_t kMaxParts = 32;

// The value of NAME="..." or NAME=... after a header's first word.
std::string parameter(std::string_view header, std::string_view name) {
  for (size_t at = header.find(';'); at != std::string_view::npos;) {
    size_t begin = at + 1;
    while (begin < header.size() && (header[begin] == ' ' || header[begin] == '\t')) ++begin;
    const size_t equals = header.find('=', begin);
    if (equals == std::string_view::npos) return {};
    const bool is_it = lower_case(header.substr(begin, equals - begin)) == name;
    const bool is_quoted = equals + 1 < header.size() && header[equals + 1] == '"';
    std::string value;
    size_t end = equals + 1 + is_quoted;
    for (; end < header.size() && header[end] != (is_quoted ? '"' : ';'); ++end) {
      if (is_quoted && header[end] == '\\' && end + 1 < header.size()) ++end;
      value += header[end];
    }
    if (is_it) return value;
    at = header.find(';', end);
  }
  return {};
}

}  // namespace

Result<std::vector<FormPart>> parse_multipart(std::string_view content_type, std::string_view body) {
  const auto refused = [](const char* why) { return invalid(std::string("The form cannot be read: ") + why, "file"); };
  if (!lower_case(content_type).starts_with("multipart/form-data"))
    return refused("its Content-Type must be multipart/form-data.");
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > 70) return refused("it names no boundary of 1 to 70 characters.");
  const std::string mark = "--" + boundary, next = "\r\n" + mark;
  if (!body.starts_with(mark)) return refused("it does not begin with its boundary.");
  std::vector<FormPart> parts;
  for (size_t at = mark.size(); !body.substr(at).starts_with("--");) {
    if (!body.substr(at).starts_with("\r\n")) return refused("a boundary does not end its line.");
    const size_t blank = body.find("\r\n\r\n", at), end = body.find(next, blank == std::string_view::npos ? at : blank);
    if (blank == std::string_view::npos || end == std::string_view::npos) return refused("a part has no end.");
    if (parts.size() == kMaxParts) return refused("it has more than 32 parts.");
    FormPart& part = parts.emplace_back();
    std::string_view headers = body.substr(at + 2, blank - at);
    for (size_t line = 0; line < headers.size();) {
      const size_t line_end = std::min(headers.find("\r\n", line), headers.size());
      const std::string_view header = headers.substr(line, line_end - line);
      if (lower_case(header.substr(0, header.find(':'))) == "content-disposition") {
        part.name = parameter(header, "name");
        part.filename = parameter(header, "filename");
      }
      line = line_end + 2;
    }
    if (part.name.empty()) return refused("a part has no name.");
    part.content = end < blank + 4 ? std::string_view() : body.substr(blank + 4, end - blank - 4);
    at = end + next.size();
  }
  return parts;
}

}  // namespace ibid
