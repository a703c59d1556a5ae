// The prompts that benches of speculation answer (bench/prompts/speculation.txt), as a chat's.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "server/build_requests.h"

namespace ibid::bench {

struct Prompt {
  std::string kind, text;
};

inline std::vector<Prompt> read_prompts(const std::string& path) {
  std::ifstream in(path);
  CHECK(in.is_open(), "the prompts cannot be read; run it from the repository, or name the file");
  std::map<std::string, std::string> passages;
  std::vector<Prompt> out;
  std::string line, kind, number, text;
  const auto close = [&] {
    if (kind == "passage") passages[number] = text;
    if (kind != "passage" && !kind.empty())
      out.push_back({kind, number.empty() ? text : passages[number] + "\n" + text});
    text.clear();
  };
  while (std::getline(in, line)) {
    if (line.starts_with("#")) continue;
    if (!line.starts_with("== ")) {
      text += line + "\n";
      continue;
    }
    close();
    const size_t space = line.find(' ', 3);
    kind = line.substr(3, space == std::string::npos ? space : space - 3);
    number = space == std::string::npos ? "" : line.substr(space + 1);
  }
  close();
  return out;
}

inline std::vector<TokenId> prompt_of(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& text) {
  Json::Array messages;
  messages.emplace_back(Json::Object{{"role", Json(std::string("user"))}, {"content", Json(text)}});
  const RenderedPrompt prompt = render_chat(chat, tokenizer, {.messages = Json(std::move(messages))}).value();
  return encode_chat(prompt, tokenizer);
}

}  // namespace ibid::bench
