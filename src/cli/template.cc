// The prompt that a model's chat template makes of messages.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/messages_file.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"

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
  return read_chat_input(text, path);
}

}  // namespace

int apply_template(const TemplateOptions& options) {
  auto text = host::load_text(options.model, terminal_progress());
  if (!text) return fail(text.error());
  auto chat = host::load_template(*text->file, *text->tokenizer);
  if (!chat) return fail(chat.error());
  auto input = read_messages(options.messages_file);
  if (!input) return fail(input.error());
  input->add_generation_prompt = options.generation_prompt;
  name_tokens(*text->tokenizer, *input);
  auto prompt = chat->render(*input);
  if (!prompt) return fail(prompt.error());
  std::fwrite(prompt->text.data(), 1, prompt->text.size(), stdout);
  return kOk;
}

}  // namespace ibid::cli
