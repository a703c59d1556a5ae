#include "cli/options/command_words.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/quoted.h"
#include "cli/options/suggestion.h"

namespace ibid::cli {
namespace {

// Flags of llama.cpp with several letters after one dash, and how they are spelled in full.
struct Spelling {
  std::string_view flag, full;
};
constexpr Spelling kSpellings[] = {
    {"-pg", "--prompt-gen"},
    {"-ub", "--ubatch-size"},
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-ngl", "--n-gpu-layers"},
    {"-ncmoe", "--n-cpu-moe"},
    {"-sm", "--split-mode"},
    {"-mg", "--main-gpu"},
    {"-nkvo", "--no-kv-offload"},
    {"-fa", "--flash-attn"},
    {"-ts", "--tensor-split"},
    {"-ot", "--override-tensor"},
    {"-mmp", "--mmap"},
    {"-embd", "--embeddings"},
    {"-nopo", "--no-op-offload"},
    {"-oe", "--output-err"},
    {"-rpc", "--rpc"},
    {"-dev", "--device"},
    {"-tb", "--threads-batch"},
    {"-np", "--parallel"},
    {"-cb", "--cont-batching"},
    {"-hf", "--hf-repo"},
    {"-hff", "--hf-file"},
    {"-md", "--model-draft"},
    {"-nkvo", "--no-kv-offload"},
    {"-ctkd", "--cache-type-k-draft"},
    {"-ctvd", "--cache-type-v-draft"},
    {"-ngld", "--n-gpu-layers-draft"},
    {"-cmoe", "--cpu-moe"},
    {"-sys", "--system-prompt"},
    {"-cnv", "--conversation"},
    {"-mli", "--multiline-input"},
    {"-sp", "--special"},
    {"-st", "--single-turn"},
    {"-lv", "--log-verbosity"},
    {"-dio", "--direct-io"},
};

const CLI::App* child_named(const CLI::App& app, const std::string& word) {
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (child->check_name(word)) return child;
  }
  return nullptr;
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(child->get_name());
    const auto& more = child->get_aliases();
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::string whole_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : whole_name(*app.get_parent()) + " " + app.get_name();
}

// The command that was begun, as deep as it goes.
const CLI::App& given_command(const CLI::App& app) {
  const auto said = app.get_subcommands();
  return said.empty() ? app : given_command(*said.front());
}

Error no_command(const CLI::App& app, const std::string& word) {
  const std::vector<std::string> names = names_of(app);
  const std::string meant = nearest(word, names);
  return invalid("unknown command " + in_quotes(word) + (meant.empty() ? "" : "; did you mean " + meant + "?") +
                 (meant.empty() ? "; '" : " '") + whole_name(app) + " --help' lists them.");
}

std::string spelled(const std::string& word) {
  if (word.size() < 3 || word[0] != '-' || word[1] == '-') return word;
  const size_t end = std::min(word.find('='), word.size());
  for (const Spelling& s : kSpellings) {
    if (s.flag == std::string_view(word).substr(0, end)) return std::string(s.full) + word.substr(end);
  }
  return word;
}

}  // namespace

Result<std::vector<std::string>> command_words(CLI::App& app, std::vector<std::string> words) {
  const CLI::App* command = &app;
  bool is_help = false;
  for (size_t i = 0; i < words.size() && command->get_require_subcommand_min() > 0; ++i) {
    if (words[i] == "--log-level") {
      ++i;
    } else if (words[i] == "help" && child_named(*command, "help") == nullptr) {
      is_help = true;
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i--));
    } else if (!words[i].starts_with('-')) {
      const CLI::App* child = child_named(*command, words[i]);
      if (child == nullptr) return no_command(*command, words[i]);
      command = child;
    }
  }
  if (is_help) words.emplace_back("--help");
  bool is_option = true;
  for (std::string& word : words) {
    is_option = is_option && word != "--";
    if (is_option) word = spelled(word);
  }
  return words;
}

std::string refusal(const CLI::App& app, const CLI::Error& error) {
  const CLI::App& command = given_command(app);
  const std::string help = "'" + whole_name(command) + " --help' lists the flags.";
  std::string sentence = error.what();
  if (sentence.starts_with(": ")) sentence.erase(0, 2);  // of a flag that help does not show, which has no name then
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    std::vector<std::string> known;
    for (const CLI::App* at = &command; at != nullptr; at = at->get_parent()) {
      for (const CLI::Option* option : at->get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
    }
    for (const std::string& word : app.remaining(true)) {
      if (!word.starts_with("--")) continue;
      const std::string flag = word.substr(0, word.find('='));
      if (const std::string meant = nearest(flag, known); !meant.empty())
        return "unknown flag " + flag + "; did you mean " + meant + "? " + help;
    }
  }
  while (sentence.ends_with('.') || sentence.ends_with('\n')) sentence.pop_back();
  return sentence + "; " + help;
}

}  // namespace ibid::cli
