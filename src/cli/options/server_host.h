// The options of a server as those of its engine.
#pragma once

#include <string>

#include "cli/options/options.h"
#include "host/host_options.h"

namespace ibid::cli {

// With the memory of the server beside model and engine. `name` is the model's.
host::HostOptions host_options(const ServeOptions& options, const std::string& name);

}  // namespace ibid::cli
