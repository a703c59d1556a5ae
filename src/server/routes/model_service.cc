#include "server/routes/model_service.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/insist.h"
#include "server/fields/body_parts.h"
#include "server/request/model_names.h"
#include "server/wire/random_id.h"

namespace ibid {
namespace {

// Of routes whose bodies are read with the model's vocabulary, the members of which one must be there.
struct Wanted {
  std::string_view path;
  std::array<const char*, 4> names;
};
constexpr auto kWanted = std::to_array<Wanted>({{"/predict", {"instances"}},
                                                {"/tokenize", {"content", "prompt", "messages"}},
                                                {"/detokenize", {"tokens"}},
                                                {"/apply-template", {"messages"}},
                                                {"/completion", {"prompt"}},
                                                {"/v1/embeddings", {"input", "messages"}},
                                                {"/embeddings", {"input", "content", "messages"}},
                                                {"/pooling", {"input", "messages"}},
                                                {"/embedding", {"input", "content"}},
                                                {"/v2/embed", {"texts", "images", "inputs"}},
                                                {"/v1/rerank", {"query"}},
                                                {"/v2/rerank", {"query"}},
                                                {"/rerank", {"query"}}});

}  // namespace

ModelService::ModelService(const ServerOptions& options, ServerState& state, bool may_unload)
    : options_(options), state_(state), may_unload_(may_unload), id_prefix_(random_bits()) {}

void ModelService::set_backend(Backend* backend) {
  backend->start([this, backend](std::span<Output> outputs, const EngineStats& stats) {
    router_.deliver(outputs);
    state_.metrics.add_step(stats, this);
    live_.add_step(stats, backend->clock().now());
  });
  fim_ = find_fim_tokens(backend->tokenizer());
  backend_ = backend;
}

double ModelService::now() const {
  const Backend* backend = backend_;
  return backend != nullptr ? backend->clock().now() : steady_clock().now();
}

std::vector<std::string> ModelService::names() const { return model_names(backend_.load()->model(), options_); }

std::vector<std::string> ModelService::capabilities() const {
  if (const ModelInfo& model = backend_.load()->model(); model.is_encoder) {
    std::vector<std::string> encoders = {"embedding"};
    if (model.n_labels == 1) encoders.emplace_back("rerank");
    return encoders;
  }
  std::vector<std::string> out = {"completion", "tools"};
  if (backend_.load()->pictures() != nullptr) out.emplace_back("vision");
  if (!backend_.load()->answer_format()->reasoning.is_none()) out.emplace_back("thinking");
  if (fim_.is_there()) out.emplace_back("insert");
  if (backend_.load()->model().width > 0) out.emplace_back("embedding");
  return out;
}

// The faults that the route will find, as far as that needs no model: none is unloaded for a request that is refused.
std::optional<ApiError> ModelService::fault_in_body(const WebRequest& request, const WebExchange& exchange,
                                                    bool makes_sequences, Json body, const ModelInfo& model) {
  int64_t n_sequences = 1;
  bool is_ours = false;  // so that errors have our names of fields
  const auto check = [&]() -> Status {
    const auto* wanted = std::ranges::find(kWanted, request.path(), &Wanted::path);
    if (wanted != kWanted.end() && std::ranges::none_of(wanted->names, [&](const char* name) {
          return name != nullptr && given(body, name) != nullptr;
        }))
      return invalid(std::string(wanted->names[0]) + " is missing.", wanted->names[0]);
    const bool is_any = request.path() == "/invocations" || request.path() == "/predict";
    if (is_any || !makes_sequences || !reads_unloaded(*exchange.api, body)) return {};
    ASSIGN_OR_RETURN(DialectBody own, read_dialect(exchange, std::move(body), model, nullptr));
    is_ours = true;
    if (own.answer) return {};
    ASSIGN_OR_RETURN(const ApiRequest api, read_request(*exchange.api, own, model, nullptr));
    n_sequences = sequences_of(api);
    return {};
  };
  if (const Status status = check(); !status) {
    const ApiError error = ApiError::of(status.error());
    return is_ours ? in_own_words(*exchange.api, error) : error;
  }
  return makes_sequences ? state_.quotas.refusal(exchange.tenant, n_sequences, now()) : std::nullopt;
}

void ModelService::collect(WebExchange& exchange) {
  std::vector<Output> outputs = exchange.mailbox->take();
  if (!outputs.empty() && outputs.back().finished) exchange.generation->set_resume(exchange.mailbox->take_resume());
  exchange.generation->take(std::move(outputs));
  submit_held(exchange);
  exchange.row->generated = exchange.generation->completion_tokens() - exchange.generation->resumed_tokens();
}

void ModelService::abandon(const WebExchange& exchange) {
  const Generation& generation = *exchange.generation;
  if (exchange.mailbox->keeps_tokens()) state_.movable.remove(generation.info().id);
  const auto end = [&](RequestId id) {
    router_.remove(id);
    if (!generation.finished() || generation.ends_early()) cancel(id);
  };
  for (const RequestId id : generation.info().requests) end(id);
  if (const std::optional<RequestId> source = exchange.mailbox->source()) end(*source);
}

void ModelService::cancel(const WebExchange& exchange) {
  for (const RequestId id : exchange.generation->info().requests) cancel(id);
  if (const std::optional<RequestId> source = exchange.mailbox->source()) cancel(*source);
}

// Giving up must not fail for want of memory: these blocks would never be freed.
void ModelService::cancel(RequestId id) {
  insist([&] { backend_.load()->cancel(id); });
}

}  // namespace ibid
