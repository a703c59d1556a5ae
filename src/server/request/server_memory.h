// What a server holds besides its engine, for the memory's plan: its bounds, as its options set them.
#pragma once

#include <cstdint>

#include "engine/memory_plan.h"
#include "server/request/options.h"

namespace ibid {

// With a limit for the whole process (0: none), the bounds that were left as they are by default become shares of it
// where they are larger.
void fit_server(ServerOptions& options, int64_t memory_bytes);
void add_server_parts(MemoryPlan& plan, const ServerOptions& options);

}  // namespace ibid
