#include "cli/messages_file.h"

#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "text/tokenizer/json_cursor.h"

namespace ibid::cli {
namespace {

namespace json = boost::json;

// The members of an object as they are written: a parser's numbers would have lost digits.
Result<std::vector<std::pair<std::string, std::string_view>>> members_of(std::string_view object) {
  std::vector<std::pair<std::string, std::string_view>> members;
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
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (error) return invalid("the messages are no JSON: " + error.message(), where);
  ChatInput input;
  if (value.is_array()) {
    input.messages = text;
    return input;
  }
  if (!value.is_object() || !value.as_object().contains("messages"))
    return invalid("a list of messages, or an object with \"messages\", was expected", where);
  ASSIGN_OR_RETURN(const auto members, members_of(text));
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
