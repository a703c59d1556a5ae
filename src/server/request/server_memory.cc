#include "server/request/server_memory.h"

#include <algorithm>

namespace ibid {
namespace {

// A connection's session and socket, and what it may keep of a header or of requests after the one that is answered.
constexpr int64_t kConnection = (4 << 10) + (16 << 10);
// Of one with TLS besides: two buffers of the relay, OpenSSL's and Asio's own.
constexpr int64_t kTlsConnection = 112 << 10;
int64_t connection_bytes(const ServerOptions& options) {
  return kConnection + (options.tls_certificate_file.empty() ? 0 : kTlsConnection);
}
// What reading and tokenising one body takes besides its bytes; large bodies are handled one at a time, small ones on
// each I/O thread.
constexpr int64_t kSmallBodyWork = 4 << 20;
int64_t large_body_work(const ServerOptions& options) { return 4 * options.max_body_bytes; }

// Of what a process may hold, as a divisor.
constexpr int64_t kAnswersShare = 8, kBodiesShare = 16, kConnectionsShare = 16, kBodyShare = 128, kStoredShare = 128,
                  kGrammarsShare = 16;

template <typename Int>
void shrink(Int& value, Int by_default, int64_t most) {
  if (value == by_default) value = static_cast<Int>(std::clamp<int64_t>(most, 1, value));
}

}  // namespace

void fit_server(ServerOptions& options, int64_t memory_bytes) {
  if (memory_bytes == 0) return;
  const ServerOptions by_default;
  shrink(options.max_answers_bytes, by_default.max_answers_bytes, memory_bytes / kAnswersShare);
  shrink(options.max_bodies_bytes, by_default.max_bodies_bytes, memory_bytes / kBodiesShare);
  shrink(options.max_stored_bytes, by_default.max_stored_bytes, memory_bytes / kStoredShare);
  shrink(options.max_grammars_bytes, by_default.max_grammars_bytes, memory_bytes / kGrammarsShare);
  shrink(options.max_body_bytes, by_default.max_body_bytes, memory_bytes / kBodyShare);
  shrink(options.max_connections, by_default.max_connections,
         memory_bytes / kConnectionsShare / connection_bytes(options));
  options.max_connections_per_address = std::min(options.max_connections_per_address, options.max_connections);
}

void add_server_parts(MemoryPlan& plan, const ServerOptions& options) {
  plan.add("connections", options.max_connections * connection_bytes(options));
  plan.add("bodies", options.max_bodies_bytes + large_body_work(options) + options.io_threads * kSmallBodyWork);
  plan.add("answers", options.max_answers_bytes);
  plan.add("stored responses", options.max_stored_bytes);
  plan.add("grammars", options.max_grammars_bytes);
}

}  // namespace ibid
