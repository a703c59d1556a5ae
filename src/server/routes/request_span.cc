#include "server/routes/request_span.h"

#include <new>

#include "server/routes/web_exchange.h"

namespace ibid {

void send_span(SpanSender& to, const WebExchange& exchange, const RequestLine& line, double end) noexcept try {
  const bool is_chat = exchange.route == std::string_view("chat");
  if (!is_chat && exchange.route != std::string_view("completions")) return;
  RequestSpan span{.parent = exchange.trace,
                   .name = is_chat ? "chat" : "text_completion",
                   .begin = exchange.arrived,
                   .end = end,
                   .has_failed = line.status >= 500};
  span.texts = {{"http.request.method", exchange.method},
                {"url.path", is_chat ? "/v1/chat/completions" : "/v1/completions"},
                {"gen_ai.operation.name", span.name},
                {"ibid.request_id", exchange.request_id}};
  span.numbers = {{"http.response.status_code", line.status}};
  if (!line.finish.empty()) span.texts.emplace_back("ibid.finish", line.finish);
  if (const Generation* generation = exchange.generation.get()) {
    span.name += " " + generation->info().model;
    span.texts.emplace_back("gen_ai.request.model", generation->info().model);
    span.numbers.emplace_back("gen_ai.usage.input_tokens", line.prompt_tokens);
    span.numbers.emplace_back("gen_ai.usage.output_tokens", line.completion_tokens);
    span.numbers.emplace_back("ibid.cached_tokens", line.cached_tokens);
    span.numbers.emplace_back("ibid.preemptions", line.n_preemptions);
    for (size_t i = 0; i < kPhaseNames.size(); ++i)
      span.seconds.emplace_back(std::string("ibid.ledger.") + kPhaseNames[i], line.times.phases[i]);
    span.phases = generation->span_phases(end);
  }
  to.add(std::move(span));
} catch (const std::bad_alloc&) {
}

}  // namespace ibid
