#include "server/request/model_names.h"

#include <algorithm>

#include "base/quoted.h"
#include "server/wire/api_error.h"

namespace ibid {

std::vector<std::string> model_names(const ModelInfo& model, const ServerOptions& options) {
  std::vector<std::string> names = {model.name};
  for (const std::string& alias : options.aliases) {
    if (std::ranges::find(names, alias) == names.end()) names.push_back(alias);
  }
  return names;
}

Result<std::string> answering_name(const std::string& asked, const ModelInfo& model, const ServerOptions& options) {
  const std::vector<std::string> names = model_names(model, options);
  if (std::ranges::find(names, asked) != names.end()) return asked;
  if (options.strict_model && !asked.empty()) return no_such_model(asked, model, options);
  return model.name;
}

Error no_such_model(std::string_view asked) {
  return not_found("The model " + in_quotes(asked) + " is not served here; /v1/models lists those that are.", "model");
}

Error no_such_model(std::string_view asked, const ModelInfo& model, const ServerOptions& options) {
  std::string known;
  for (const std::string& name : model_names(model, options)) known += (known.empty() ? "" : ", ") + in_quotes(name);
  return not_found("The model " + in_quotes(asked) + " is not served here; it answers to " + known + ".", "model");
}

}  // namespace ibid
