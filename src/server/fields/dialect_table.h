// The table of what clients of other APIs send: fields of bodies, kinds of tools, kinds of items and blocks, beta
// headers. Each row states how one of them is handled. The readers ask it, and docs/users/apis.md is made from it, so
// that they cannot disagree. Fields of chats and completions have a table of their own (parameters.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace ibid {

enum class Dialect : uint8_t { kChat, kMessages, kResponses, kOllama, kLlama };
// kItem: an item of Responses' input, or a block or part of a message's content.
enum class DialectPart : uint8_t { kField, kTool, kItem, kHeader };
// kIgnored: left out, because the request can be answered without it.
enum class Treatment : uint8_t { kUsed, kIgnored, kRefused };

struct DialectRow {
  Dialect dialect;
  DialectPart part;
  const char* name;  // of a family of names: their beginning and a '*'
  Treatment treatment;
  const char* why;             // kUsed: what becomes of it
  const char* allowed = "[]";  // of a refused field: values that ask for nothing, as a JSON array
};

std::span<const DialectRow> dialect_rows();

// By the row of its name, else by the longest beginning. What no row names: a field, a tool or a header is ignored, an
// item is refused, since it holds a part of the conversation.
Treatment treatment_of(Dialect dialect, DialectPart part, std::string_view name);

// kUnsupported, of the first field of the body that is refused.
Status check_fields(Dialect dialect, const Json& body);

// A declaration of a tool that is not served.
struct LeftOutTool {
  std::string type, name, where;
};
// kUnsupported where nothing but such was declared, or where the request asks for one of them by its name. `choice`:
// the function that tool_choice names; empty: none.
Status check_left_out(std::span<const LeftOutTool> left_out, bool has_others, std::string_view choice);

// The tables of docs/users/apis.md, as Markdown.
std::string dialects_markdown();

}  // namespace ibid
