// What is refused of a command line before any flag is read: values that are none.
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "cli/options/command_line.h"

namespace ibid::cli {
namespace {

// What a value names, by the unit that --help shows of it.
const std::map<std::string, std::string>& named_things() {
  static const std::map<std::string, std::string> things = {
      {"FILE", "file"},   {"DIR", "folder"}, {"PATH", "path"},   {"JSON|FILE", "file"},     {"STORE", "file"},
      {"MODEL", "model"}, {"KEY", "key"},    {"URL", "address"}, {"[NAME=]MODEL", "model"}, {"ORIGIN", "origin"}};
  return things;
}

std::string check_value(const std::string& value, const std::string& thing) {
  if (value.empty()) return "'' names no " + thing + "; is a variable of the shell unset?";
  if (!value.starts_with("--") || value.size() == 2) return "";
  return "'" + value + "' is a flag and names no " + thing + "; is a variable of the shell unset? (./" + value +
         " would be a file of that name)";
}

}  // namespace

void refuse_empty_values(CLI::App* command, Refusing what) {
  for (CLI::Option* option : command->get_options()) {
    if (option->get_type_size() == 0 || option->get_expected_min() == 0) continue;  // it takes no value
    const auto found = named_things().find(option->get_type_name());
    const bool is_path = found != named_things().end();
    if (!is_path && what == Refusing::kPaths) continue;
    const std::string thing = is_path ? found->second : "value";
    option->check(CLI::Validator([thing](const std::string& value) { return check_value(value, thing); }, ""));
  }
}

std::string flag_without_value(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return "";
}

void check_variables(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const char* value = option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
    if (option->count() > 0 || value == nullptr || *value != '\0') continue;
    throw CLI::ValidationError(option->get_envname(), "the variable is set and empty, and stands for " +
                                                          option->get_name() + "; unset it, or give it a value");
  }
}

}  // namespace ibid::cli
