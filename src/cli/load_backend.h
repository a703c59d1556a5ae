// What `ibid serve` makes of its options before it listens; for programs that answer without a socket, too.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/options/options.h"
#include "host/load_progress.h"
#include "server/request/backend.h"

namespace ibid::cli {

// The options with the values that follow from others (limits of drafts, places, shares of --memory). An error: two
// that do not go together.
Result<ServeOptions> settled(const ServeOptions& options);
// The engine of options.model, which answers to `name`; start()ed by who uses it. Takes as long as loading the model.
Result<std::unique_ptr<Backend>> load_backend(const ServeOptions& options, const std::string& name,
                                              const host::OnProgress& progress);

}  // namespace ibid::cli
