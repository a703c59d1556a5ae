#include "cli/options/help.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/terminal/line_wrap.h"

namespace ibid::cli {
namespace {

constexpr size_t kColumn = 32;  // where descriptions start, unless a flag's name is longer

constexpr std::string_view kServe[] = {
    "help",          "help-all",     "for",           "model",       "models-dir",    "threads",
    "ctx",           "memory",       "kv-dtype",      "keep-packed", "host",          "port",
    "alias",         "api-key-file", "allow-host",    "root-path",   "ssl-cert-file", "ssl-key-file",
    "no-page",       "policy",       "max-sequences", "max-itl",     "kv-memory",     "cache-disk",
    "chat-template", "spec",         "temp",          "max-tokens",  "log-file",      "cache-host-bytes"};
constexpr std::string_view kRun[] = {"help",        "help-all", "model", "prompt",     "system",  "max-tokens",
                                     "raw",         "threads",  "ctx",   "memory",     "tools",   "history",
                                     "json-schema", "seed",     "temp",  "top-p",      "top-k",   "min-p",
                                     "stop",        "stats",    "spec",  "cache-disk", "kv-dtype"};

std::string names_of(const CLI::Option& option) {
  std::string out;
  for (const std::string& name : option.get_snames()) out += (out.empty() ? "-" : ",-") + name;
  for (const std::string& name : option.get_lnames()) out += (out.empty() ? "--" : ",--") + name;
  return out;
}

std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::string out = option.get_type_name();
  out.resize(std::min(out.size(), out.find(':')));  // what a validator adds
  const bool repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return (out.empty() || out == " " ? "" : " " + out) + (repeats ? " ..." : "");
}

// "Sets x; more. More of it." of the API's own table becomes "sets x; more", or "sets x" where that is too long.
std::string first_sentence(std::string text, size_t room) {
  text.resize(std::min(text.size(), text.find(". ")));
  if (text.ends_with('.')) text.pop_back();
  if (text.size() > room) text.resize(std::min(text.size(), text.find("; ")));
  const auto is_capital = [&text](size_t at) { return at < text.size() && text[at] >= 'A' && text[at] <= 'Z'; };
  if (is_capital(0) && !is_capital(1)) text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::string line_of(const CLI::Option& option, bool is_positional) {
  std::string out = "  " + (is_positional ? option.get_name(true, false) : names_of(option) + value_of(option));
  out.resize(std::max(out.size() + 2, kColumn), ' ');
  const std::string& standard = option.get_default_str();
  const bool has_default = !is_positional && option.get_type_size() != 0 && !standard.empty();
  const std::string end = has_default ? " (default: " + standard + ")" : "";
  const size_t taken = out.size() + end.size();
  return out + first_sentence(option.get_description(), kHelpWidth - std::min(kHelpWidth, taken)) + end + "\n";
}

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    HelpFormat format = *this;
    const auto common = common_flags(app->get_name());
    if (mode == CLI::AppFormatMode::Normal) format.shown_ = common;
    std::string out = format.CLI::Formatter::make_help(app, name, mode);
    for (size_t at; (at = out.find("\n\n\n")) != std::string::npos;) out.erase(at, 1);
    if (mode == CLI::AppFormatMode::Normal && !common.empty())
      out += fmt::format("'{} --help-all' lists all flags.\n", name);
    return out;
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string out;
    for (const CLI::Option* option : options) {
      if (is_positional || is_shown(*option)) out += line_of(*option, is_positional);
    }
    return out.empty() ? out : "\n" + group + ":\n" + out;
  }

 private:
  bool is_shown(const CLI::Option& option) const {
    const auto is_common = [this](const std::string& name) { return std::ranges::find(shown_, name) != shown_.end(); };
    return shown_.empty() || std::ranges::any_of(option.get_lnames(), is_common);
  }

  std::span<const std::string_view> shown_;  // empty: all
};

}  // namespace

void set_up_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
  app.set_help_flag("-h,--help", "show help and exit");
  app.set_help_all_flag("--help-all", "show all flags and exit");
}

std::span<const std::string_view> common_flags(std::string_view command) {
  if (command == "serve") return kServe;
  if (command == "run") return kRun;
  return {};
}

std::string help_text(const CLI::App& app, bool all) {
  const int width = columns_of(STDOUT_FILENO);
  const auto mode = all ? CLI::AppFormatMode::All : CLI::AppFormatMode::Normal;
  return wrapped(app.help("", mode), width > 0 ? width : static_cast<int>(kHelpWidth));
}

}  // namespace ibid::cli
