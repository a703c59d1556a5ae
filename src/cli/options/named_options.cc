#include "cli/options/named_options.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/json.h"
#include "base/quoted.h"
#include "cli/options/command_line.h"
#include "cli/options/command_words.h"
#include "cli/options/model_names.h"

namespace ibid::cli {
namespace {

// What protects or limits connections would be silently without effect where there are none.
constexpr auto kOfServers = std::to_array<std::string_view>({"host",
                                                             "port",
                                                             "uds",
                                                             "ssl-cert-file",
                                                             "ssl-certfile",
                                                             "ssl-key-file",
                                                             "ssl-keyfile",
                                                             "root-path",
                                                             "api-prefix",
                                                             "api-key",
                                                             "api-key-file",
                                                             "cors-origin",
                                                             "allow-host",
                                                             "no-page",
                                                             "models-dir",
                                                             "models-max",
                                                             "no-models-autoload",
                                                             "files-dir",
                                                             "max-files-bytes",
                                                             "drain-timeout",
                                                             "io-threads",
                                                             "max-connections",
                                                             "max-connections-per-address",
                                                             "max-header-bytes",
                                                             "max-bodies-bytes",
                                                             "header-timeout",
                                                             "body-timeout",
                                                             "idle-timeout",
                                                             "write-timeout",
                                                             "send-buffer",
                                                             "otlp"});

Result<std::string> flag_of(const std::string& key) {
  std::string name = key.substr(std::min(key.find_first_not_of('-'), key.size()));
  std::ranges::replace(name, '_', '-');
  const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!is_name) return invalid("unknown option " + in_quotes(key) + "; options have the names of flags of ibid serve");
  if (std::ranges::find(kOfServers, name) != kOfServers.end())
    return unsupported("the option " + in_quotes(name) + " is of a server; the library listens nowhere");
  return (name.size() == 1 ? "-" : "--") + name;
}

// Appends the flag with this value, as the parser takes it.
void add_word(const std::string& flag, const Json& value, std::vector<std::string>& words) {
  const std::string text = value.string() != nullptr ? *value.string() : value.text();
  if (flag.starts_with("--")) {
    words.push_back(flag + "=" + text);
  } else {
    words.push_back(flag);
    words.push_back(text);
  }
}

Status add_member(const Json::Member& member, std::vector<std::string>& words) {
  const auto& [key, value] = member;
  ASSIGN_OR_RETURN(const std::string flag, flag_of(key));
  if (value.is_null()) return {};
  if (const bool* is_set = value.boolean()) {
    if (*is_set) words.push_back(flag);
    return {};
  }
  if (const std::string* text = value.string(); text != nullptr && text->empty())
    return invalid("the option " + in_quotes(key) + " has an empty value");
  if (value.array() == nullptr) return add_word(flag, value, words), Status();
  for (const Json& item : *value.array()) {
    if (item.string() == nullptr && !item.is_number())
      return invalid("the option " + in_quotes(key) + " must be an array of texts or numbers");
    if (item.string() != nullptr && item.string()->empty())
      return invalid("the option " + in_quotes(key) + " has an empty value");
    add_word(flag, item, words);
  }
  return {};
}

Status parse_words(std::vector<std::string> words, ServeOptions& out) {
  CLI::App app{"", "ibid serve"};
  app.option_defaults()->always_capture_default(false);
  app.set_help_flag("");
  add_serve_options(&app, out);
  std::ranges::reverse(words);  // as the parser takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success&) {  // a list of names, as of --spec help
    return invalid("an option asks for help; 'ibid serve --help' lists the flags");
  } catch (const CLI::ParseError& e) {
    return invalid(refusal(app, e));
  }
  return {};
}

}  // namespace

Result<ServeOptions> read_named_options(std::string_view json) {
  ASSIGN_OR_RETURN(const Json read, parse_json(json, "the options"));
  if (read.object() == nullptr) return invalid("the options are " + std::string(read.kind()) + ", not an object");
  ServeOptions out;
  std::vector<std::string> words;
  for (const Json::Member& member : *read.object()) {
    if (Status status = add_member(member, words); !status) {
      Error error = status.error();
      error.where = member.first;
      return error;
    }
  }
  TRY(parse_words(std::move(words), out));
  return out;
}

Result<OneModel> one_model(const ServeOptions& options) {
  if (options.named_models.size() + options.more_models.size() > 1)
    return invalid("the options name several models; an engine has one", "model");
  if (options.named_models.empty()) return OneModel{served_name(options.model.model), options.model.model};
  NamedModel model = named_model(options.named_models.front());
  return OneModel{std::move(model.name), std::move(model.typed)};
}

}  // namespace ibid::cli
