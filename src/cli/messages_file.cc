#include "cli/messages_file.h"

#include <boost/json.hpp>

namespace ibid::cli {
namespace {

namespace json = boost::json;

constexpr std::string_view kSpaces = " \t\r\n";

// The byte after the value that begins at `i`. `text` is JSON, so brackets and quotes are in order.
size_t end_of_value(std::string_view text, size_t i) {
  int depth = 0;
  bool in_string = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if ((c == ']' || c == '}') && --depth < 0) {
      break;
    } else if (depth == 0 && (c == ',' || c == ':')) {
      break;
    }
  }
  return i;
}

// The members of an object as they are written: a parser's numbers would have lost digits.
std::vector<std::pair<std::string, std::string_view>> members_of(std::string_view object) {
  std::vector<std::pair<std::string, std::string_view>> members;
  size_t i = object.find('{') + 1;
  while ((i = object.find_first_not_of(kSpaces, i)) < object.size() && object[i] == '"') {
    const size_t colon = end_of_value(object, i);
    const size_t end = end_of_value(object, colon + 1);
    members.emplace_back(json::value_to<std::string>(json::parse(object.substr(i, colon - i))),
                         object.substr(colon + 1, end - colon - 1));
    i = end + 1;
  }
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
  for (const auto& [name, item] : members_of(text)) {
    if (name == "messages") {
      input.messages = item;
    } else if (name == "tools") {
      input.tools = item;
    } else if (name == "documents") {
      input.documents = item;
    } else if (name == "chat_template_kwargs" && item.substr(item.find_first_not_of(kSpaces)).starts_with('{')) {
      for (const auto& [variable, given] : members_of(item)) input.extra.emplace_back(variable, given);
    } else {
      input.extra.emplace_back(name, item);
    }
  }
  return input;
}

}  // namespace ibid::cli
