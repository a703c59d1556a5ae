// The names under which the model is served: its own, and those that the operator gave it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "server/request/backend.h"
#include "server/request/options.h"

namespace ibid {

// Its own name first.
std::vector<std::string> model_names(const ModelInfo& model, const ServerOptions& options);

// The name by which the model answers who asks for `asked`: that one where it is one of its names, else its own. With
// strict_model a name that is none of its names is an error (kNotFound); none at all never is.
Result<std::string> answering_name(const std::string& asked, const ModelInfo& model, const ServerOptions& options);

// The sentence of that error: which names there are.
Error no_such_model(std::string_view asked, const ModelInfo& model, const ServerOptions& options);
Error no_such_model(std::string_view asked);  // the same where a list has them

}  // namespace ibid
