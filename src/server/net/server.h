// The server: an OpenAI-compatible HTTP API over one engine. run_server is what `ibid serve` calls.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "server/request/options.h"

namespace ibid {

// Exit codes of run_server.
enum ServeExit : int {
  kServeOk = 0,
  kServeFailed = 1,
  kServeBadOptions = 2,
  kServePortInUse = 3,
  kServeModelFailed = 4,
  kServeForced = 5
};

// Makes the backend; called once on a thread of its own while /health already reports "loading".
using LoadBackend = std::function<Result<std::unique_ptr<Backend>>()>;

// Serves until SIGTERM or SIGINT: then takes no more requests, lets what runs end within drain_timeout, and returns. A
// second signal ends at once. SIGHUP reopens the log file; without one it ends a server that has a terminal as SIGTERM
// does, and no other. Prints one sentence on standard error why it ended if that was not asked for.
int run_server(const ServerOptions& options, const LoadBackend& load);
// The same with several models: each is loaded when it is first asked for, and unloaded where another needs its room.
int run_fleet(const ServerOptions& options, FleetOptions fleet);

}  // namespace ibid
