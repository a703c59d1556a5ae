// ServerState: what exists once per server and the services of all its models use. Safe from any thread; outlives them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/access/api_keys.h"
#include "server/access/quotas.h"
#include "server/dialects/stored_responses.h"
#include "server/observe/metrics.h"
#include "server/request/movable_requests.h"
#include "server/request/options.h"
#include "server/routes/web_exchange.h"
#include "server/wire/api_error.h"
#include "server/wire/byte_budget.h"

namespace ibid {

struct ServerState {
  ServerState(const ServerOptions& options, const ApiKeys& keys)
      : quotas(keys.terms(), options.n_places),
        answers(options.max_answers_bytes),
        stored(options.max_stored_bytes, options.max_stored_age) {}
  Quotas quotas;
  Metrics metrics;
  ByteBudget answers;  // bytes that the answers under way may come to hold
  StoredResponses stored;
  MovableRequests movable;

  // Reserves memory for an answer that may come to hold so many bytes, before it begins; the exchange keeps it.
  // Returns the refusal where there is none; `field` is the one that it names.
  std::optional<ApiError> reserve(WebExchange& exchange, int64_t bytes, const std::string& field);
};

}  // namespace ibid
