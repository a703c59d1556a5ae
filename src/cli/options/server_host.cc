#include "cli/options/server_host.h"

#include "server/request/server_memory.h"

namespace ibid::cli {

host::HostOptions host_options(const ServeOptions& options, const std::string& name) {
  host::HostOptions out = {.model = options.model,
                           .limits = {.step_tokens = options.max_tokens_per_step,
                                      .max_sequences = options.max_sequences,
                                      .max_waiting = options.max_waiting,
                                      .has_grammars = true,
                                      .makes_text = false,
                                      .kv_bytes = options.kv_bytes,
                                      .spec = options.spec},
                           .tiers = options.tiers,
                           .record = {.file = options.record, .redact = options.redact},
                           .name = name,
                           .policy = options.policy,
                           .max_itl = options.max_itl,
                           .has_digest = true};
  add_server_parts(out.beside, options.server);
  return out;
}

}  // namespace ibid::cli
