#include "cli/messages_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json_cursor.h"
#include "base/json_events.h"

namespace ibid::cli {
namespace {

constexpr size_t kMaxDepth = 32;
using Members = std::vector<std::pair<std::string, std::string_view>>;

// The members of an object as they are written: a parser's numbers would have lost digits.
Result<Members> members_of(std::string_view object) {
  Members members;
  JsonCursor cursor(object);
  cursor.begin_object();
  for (std::string name; cursor.next_key(name);) {
    std::string_view value;
    if (cursor.skip(&value)) members.emplace_back(name, value);
  }
  if (cursor.failed()) return cursor.error();
  return members;
}

}  // namespace

Result<ChatInput> read_chat_input(std::string_view text, const std::string& where) {
  JsonEvents unread;
  if (const std::optional<JsonFault> fault = read_json(text, kMaxDepth, unread))
    return invalid("the messages are no JSON: " + fault->message, where);
  ChatInput input;
  const char first = JsonCursor(text).peek();
  if (first == '[') {
    input.messages = text;
    return input;
  }
  ASSIGN_OR_RETURN(const auto members, first == '{' ? members_of(text) : Members());
  if (std::ranges::none_of(members, [](const auto& member) { return member.first == "messages"; }))
    return invalid("a list of messages, or an object with \"messages\", was expected", where);
  for (const auto& [name, item] : members) {
    if (name == "messages") {
      input.messages = item;
    } else if (name == "tools") {
      input.tools = item;
    } else if (name == "documents") {
      input.documents = item;
    } else if (name == "chat_template_kwargs" && item.starts_with('{')) {
      ASSIGN_OR_RETURN(const auto variables, members_of(item));
      for (const auto& [variable, given] : variables) input.extra.emplace_back(variable, given);
    } else {
      input.extra.emplace_back(name, item);
    }
  }
  return input;
}

}  // namespace ibid::cli
