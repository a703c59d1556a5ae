// The prompt that a model's chat template makes of messages.
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/loading.h"
#include "cli/options.h"

namespace ibid::cli {
namespace {

Result<ChatInput> read_messages(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  } else {
    std::ifstream in(path, std::ios::binary);
    if (!in) return not_found("the messages file " + path + " cannot be read");
    text.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  boost::json::error_code error;
  boost::json::value value = boost::json::parse(text, error);
  if (error) return invalid("the messages are no JSON: " + error.message(), path);
  ChatInput input;
  if (value.is_array()) {
    input.messages = text;
    return input;
  }
  if (!value.is_object() || !value.as_object().contains("messages")) {
    return invalid("a list of messages, or an object with \"messages\", was expected", path);
  }
  for (const auto& [key, item] : value.as_object()) {
    std::string name(key);
    if (name == "messages")
      input.messages = boost::json::serialize(item);
    else if (name == "tools")
      input.tools = boost::json::serialize(item);
    else if (name == "documents")
      input.documents = boost::json::serialize(item);
    else if (name == "chat_template_kwargs" && item.is_object())
      for (const auto& [variable, given] : item.as_object())
        input.extra.emplace_back(std::string(variable), boost::json::serialize(given));
    else
      input.extra.emplace_back(name, boost::json::serialize(item));
  }
  return input;
}

}  // namespace

int apply_template(const TemplateOptions& options) {
  auto text = load_text(options.model);
  if (!text) return fail(text.error());
  auto chat = load_template(*text->file, *text->tokenizer);
  if (!chat) return fail(chat.error());
  auto input = read_messages(options.messages_file);
  if (!input) return fail(input.error());
  input->add_generation_prompt = options.generation_prompt;
  add_token_names(*text->tokenizer, *input);
  auto prompt = chat->render(*input);
  if (!prompt) return fail(prompt.error());
  std::fwrite(prompt->text.data(), 1, prompt->text.size(), stdout);
  return kOk;
}

}  // namespace ibid::cli
