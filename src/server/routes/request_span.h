// The span of an exchange that asked for an answer, whatever came of it; nothing of what users wrote.
#pragma once

#include "server/observe/otlp.h"
#include "server/observe/request_log.h"

namespace ibid {

struct WebExchange;

// Other exchanges have none. Without memory for it, it is lost.
void send_span(SpanSender& to, const WebExchange& exchange, const RequestLine& line, double end) noexcept;

}  // namespace ibid
