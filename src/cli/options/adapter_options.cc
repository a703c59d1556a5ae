// The flags of adapters of low rank: vLLM's names, and llama.cpp's --lora.
#include <filesystem>

#include "base/json.h"
#include "base/quoted.h"
#include "cli/options/command_line.h"

namespace ibid::cli {
namespace {

using Named = host::AdapterArgs::Named;

// NAME=PATH, or vLLM's {"name": ..., "path": ...}.
Result<Named> read_named(const std::string& text) {
  if (text.starts_with('{')) {
    ASSIGN_OR_RETURN(const Json json, parse_json(text));
    const Json *name = json.find("name"), *path = json.find("path");
    if (name == nullptr || name->string() == nullptr || path == nullptr || path->string() == nullptr)
      return invalid(R"(expected {"name": "NAME", "path": "PATH"})");
    return Named{*name->string(), *path->string()};
  }
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return invalid("unknown value " + in_quotes(text) + "; expected NAME=PATH");
  return Named{text.substr(0, at), text.substr(at + 1)};
}

}  // namespace

void add_lora_option(CLI::App* command, AdapterArgs& o, const char* help, std::string* name) {
  command
      ->add_option_function<std::string>(
          "--lora",
          [&o, name](const std::string& path) {
            std::filesystem::path file(path);
            if (file.filename().empty()) file = file.parent_path();
            o.named.push_back({file.stem().string(), path});
            if (name != nullptr) *name = o.named.back().name;
          },
          help)
      ->allow_extra_args(false)
      ->trigger_on_parse()
      ->type_name("PATH");
}

void add_lora_modules(CLI::App* command, AdapterArgs& o) {
  command
      ->add_option_function<std::vector<std::string>>(
          "--lora-modules",
          [&o](const std::vector<std::string>& all) {
            for (const std::string& text : all) o.named.push_back(*read_named(text));
          },
          "adapters (LoRA) that requests name as their model: PEFT folders or GGUF files; repeatable")
      ->check(CLI::Validator(
          [](std::string& text) {
            const Result<Named> named = read_named(text);
            return named ? std::string() : named.error().message;
          },
          ""))
      ->type_name("NAME=PATH");
}

void add_lora_limits(CLI::App* command, AdapterArgs& o, bool& lora_updates) {
  command->add_flag("--enable-lora", o.may_load, "make room for adapters that are loaded later");
  command->add_flag_callback(
      "--lora-updates", [&o, &lora_updates] { lora_updates = o.may_load = true; },
      "let clients load and unload adapters: /v1/load_lora_adapter, /v1/unload_lora_adapter");
  add_read(command, "--max-loras", o.max_adapters, "N", "32", "maximum adapters loaded at once",
           [](std::string_view text) { return read_whole(text, 1, kMaxAdapters); });
  add_read(command, "--max-lora-rank", o.max_rank, "N", "64", "maximum rank of an adapter",
           [](std::string_view text) { return read_whole(text, 1, kMaxAdapterRank); });
  add_read(command, "--lora-memory", o.memory_bytes, "BYTES", "what --lora-modules take, 256M more with --enable-lora",
           "memory for adapters", [](std::string_view text) { return read_bytes(text, 1 << 20, int64_t{1} << 50); });
}

}  // namespace ibid::cli
