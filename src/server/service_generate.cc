// Service, from a request's body to sequences in the engine: whose API it is of, what it may take, and its begin.
#include <algorithm>
#include <string>
#include <tuple>

#include "base/json.h"
#include "kernels/arithmetic_version.h"
#include "server/build_requests.h"
#include "server/dialects.h"
#include "server/file_store.h"
#include "server/model_names.h"
#include "server/parse_body.h"
#include "server/random_id.h"
#include "server/service.h"
#include "server/trace_json.h"

namespace ibid {
namespace {

std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

// In the words by which clients know it, OpenAI's and llama.cpp's.
ApiError too_long(int64_t n_tokens, const ModelInfo& model, std::string field, bool makes_vectors) {
  const int32_t context_len = model.context_len;
  const std::string most = "This model's maximum context length is " + std::to_string(context_len) + " tokens; ";
  ApiError error{400,
                 makes_vectors ? most + "this text has " + std::to_string(n_tokens) + " and is too large to be read."
                               : most + "the prompt has " + std::to_string(n_tokens) +
                                     " and exceeds the available context size, of which the answer wants one at least.",
                 std::move(field), "context_length_exceeded"};
  error.n_prompt_tokens = n_tokens;
  error.n_ctx = n_tokens > context_len ? context_len : context_len - 1;  // the answer wants one at least
  if (n_tokens < model.trained_context_len) {
    error.hint = "The model itself reads up to " + std::to_string(model.trained_context_len) +
                 " tokens: ibid serve --ctx N gives so many, where memory allows it.";
    error.message += " " + error.hint;
  }
  return error;
}

Status mend_fields(std::initializer_list<std::string_view> names, MixedPrompts kind, const Tokenizer& tokenizer,
                   Json& body) {
  if (body.object() == nullptr) return {};
  for (auto& [name, value] : *body.object()) {
    if (std::ranges::find(names, std::string_view(name)) != names.end()) TRY(mend_prompts(tokenizer, kind, value));
  }
  return {};
}

// SageMaker has one path for all that a model does: which API a body is of, by the field that none of the others has.
std::pair<ApiStyle, const char*> invoked(const Json& body, const ModelInfo& model) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return given(body, name) != nullptr; });
  };
  if (body.object() == nullptr) return {ApiStyle::kChat, "chat"};
  if (model.is_encoder && has({"messages"})) return {ApiStyle::kEmbeddings, "embeddings"};
  if (has({"messages"})) return {ApiStyle::kChat, "chat"};
  if (has({"query"})) return {ApiStyle::kRerank, "rerank"};
  if (has({"text_1", "text_2", "queries", "data_1", "data_2"})) return {ApiStyle::kScore, "rerank"};
  if (has({"texts"})) return {ApiStyle::kCohereEmbed, "embeddings"};
  if (has({"input"})) return {ApiStyle::kEmbeddings, "embeddings"};
  if (has({"prompt"})) return {ApiStyle::kCompletions, "completions"};
  return {ApiStyle::kChat, "chat"};
}

// The events of a response that fails before it has begun.
WebResponse failed_stream(GenerationInfo info, const Tokenizer& tokenizer, Metrics& metrics) {
  std::vector<Output> outputs(1);
  outputs[0].request = info.requests[0];
  outputs[0].usage.prompt_tokens = info.prompt_lens[0];
  outputs[0].fail(invalid(info.refusal->message));
  Generation generation(std::move(info), tokenizer, metrics);
  generation.take(std::move(outputs));
  WebResponse response;
  response.content_type = generation.stream_type();
  response.headers.emplace_back("Cache-Control", "no-cache");
  generation.write_events(response.body);
  return response;
}

// OpenAI's form has no vectors of tokens, and llama.cpp's path without the version has: it answers them there alone.
bool wants_each_token(const Json& body, const ModelInfo& model) {
  const std::string* pooling = text_at(body, "pooling");
  return pooling != nullptr ? *pooling == pooling_name(Pooling::kEach) : model.pooling == Pooling::kEach;
}

}  // namespace

// Enough to fill steps, no more than half of a small queue, and what the tenant's terms let in.
int64_t Service::texts_at_once(const std::string& tenant) const {
  const int64_t by_terms = quotas_.terms_of(tenant).sequences;
  return std::clamp<int64_t>(options_.n_places / 2, 1, by_terms > 0 ? std::min<int64_t>(by_terms, 64) : 64);
}

// A body of any API in the words of ours.
Result<DialectBody> Service::read_dialect(const WebExchange& exchange, Json body, const ModelInfo& model,
                                          const Tokenizer* tokenizer) {
  switch (exchange.style) {
    case ApiStyle::kMessages:
      return body_of_messages(body);
    case ApiStyle::kResponses:
      return body_of_response(body, [&](std::string_view id) { return stored_.find(id, exchange.tenant, now()); });
    case ApiStyle::kOllamaChat:
    case ApiStyle::kOllamaGenerate:
      return body_of_ollama(body, exchange.style == ApiStyle::kOllamaGenerate, model,
                            is_of_fleet_ || fleet_ != nullptr);
    case ApiStyle::kLlama:
      return body_of_completion(body, *tokenizer);
    case ApiStyle::kInfill:
      return body_of_infill(body, *tokenizer, fim_);
    case ApiStyle::kEmbeddings:
    case ApiStyle::kOllamaEmbed:
    case ApiStyle::kOllamaEmbeddings:
    case ApiStyle::kLlamaEmbedding:
    case ApiStyle::kCohereEmbed:
    case ApiStyle::kPooling:
      TRY(mend_fields({"input", "content", "prompt"}, MixedPrompts::kList, *tokenizer, body));
      return body_of_embeddings(body, exchange.style, model, options_.api);
    case ApiStyle::kRerank:
    case ApiStyle::kScore:
      return body_of_rank(body, exchange.style, model, *tokenizer, options_.api);
    case ApiStyle::kChatBatch:
      return body_of_chat_batch(std::move(body));
    case ApiStyle::kChat:
    case ApiStyle::kCompletions:
      break;
  }
  DialectBody out;
  out.endpoint = exchange.style == ApiStyle::kCompletions ? Endpoint::kCompletions : Endpoint::kChat;
  out.body = std::move(body);
  if (exchange.style == ApiStyle::kCompletions) TRY(mend_fields({"prompt"}, MixedPrompts::kOne, *tokenizer, out.body));
  return out;
}

Status Service::check_choices(ApiStyle style, const ApiRequest& api) {
  if (api.n == 1 || style == ApiStyle::kChat || style == ApiStyle::kCompletions) return {};
  return unsupported("n is " + std::to_string(api.n) + "; this API has one choice.", "n");
}

int64_t Service::sequences_of(const ApiRequest& api) {
  return int64_t{std::max({api.n, api.best_of, api.search.width})} *
         std::max<int64_t>(1 + std::ssize(api.more_chats), std::ssize(api.prompts));
}

WebResponse Service::generate(const WebRequest& request, WebExchange& exchange, std::function<void()> wake) {
  if (draining_) return error_response({503, "The server is shutting down.", "", "shutting_down", 5});
  Backend& backend = *backend_.load();
  Result<Json> body = parse_body(request.body, options_.api.json);
  if (!body) return error_response(ApiError::of(body.error()));
  if (request.path() == "/invocations") std::tie(exchange.style, exchange.route) = invoked(*body, backend.model());
  if (request.path() == "/embeddings" && wants_each_token(*body, backend.model()))
    exchange.style = ApiStyle::kLlamaEmbedding;
  Result<DialectBody> own = read_dialect(exchange, *std::move(body), backend.model(), &backend.tokenizer());
  if (!own) return error_response(ApiError::of(own.error()));
  exchange.is_ours = true;
  if (own->answer) {
    const std::string* asked = text_at(own->body, "model");
    const Result<std::string> known = answering_name(asked != nullptr ? *asked : "", backend.model(), options_);
    if (!known) return error_response(ApiError::of(known.error()));
    WebResponse response;
    response.body = *std::move(own->answer);
    return response;
  }
  const Endpoint endpoint = own->endpoint;
  const ModelInfo& model = backend.model();
  const bool makes_vectors = own->embedding.pooling != Pooling::kNone;
  if (model.is_encoder && !makes_vectors)
    return error_response(ApiError::of(
        unsupported("This model is an encoder: it makes vectors of texts (/v1/embeddings) and no answers.", "model")));
  ApiLimits limits = options_.api;
  if (makes_vectors) limits.max_prompts = limits.max_choices = limits.max_inputs;
  limits.max_tool_name = max_tool_name(exchange.style);
  Result<ApiRequest> api = parse_api_request(endpoint, own->body, limits, model.sampling);
  if (!api) return error_response(ApiError::of(api.error()));
  if (Status filled = fill_in(*api, backend.tokenizer(), fim_); !filled)
    return error_response(ApiError::of(filled.error()));
  if (Status more = add_conversations(*api, own->conversations, own->body, limits); !more)
    return error_response(ApiError::of(more.error()));
  own->conversations.clear();
  if (makes_vectors) api->echo = false, api->max_tokens = 0, api->prompt_name = own->prompt_name;
  if (!own->rank.pairs.empty()) api->prompts = std::exchange(own->rank.pairs, {});
  const bool is_llama = exchange.style == ApiStyle::kLlama || exchange.style == ApiStyle::kInfill;
  api->keeps_prompt = is_llama;
  if (const Status status = check_choices(exchange.style, *api); !status)
    return error_response(ApiError::of(status.error()));
  Result<std::string> name = answering_name(api->model, model, options_);
  if (!name) return error_response(ApiError::of(name.error()));
  // Many texts are under way a few at a time.
  const int64_t at_once = makes_vectors ? texts_at_once(exchange.tenant) : INT64_MAX;
  const int64_t n_sequences = std::min(at_once, sequences_of(*api));
  if (backend.is_full()) {
    return error_response(
        {429, "The queue is full; try again later.", "", "queue_full", quotas_.retry_after(n_sequences, now())});
  }
  if (const std::optional<ApiError> refusal = quotas_.enter(exchange.tenant, n_sequences, now()))
    return error_response(*refusal);
  exchange.n_sequences = n_sequences;
  own->body = Json();
  if (!api->has_seed) api->sampling.seed = random_bits() >> 11;  // a number that every JSON reader gives back
  Result<BuiltRequests> built = build_requests(*api, backend, exchange.tenant);
  if (!built) return error_response(ApiError::of(built.error()));

  GenerationInfo info;
  // Clients of Responses know a prompt that is too long by an event of the stream that they asked for.
  const bool fails_in_stream = exchange.style == ApiStyle::kResponses && api->stream;
  const TenantTerms& terms = quotas_.terms_of(exchange.tenant);
  for (Request& r : built->requests) {
    r.weight = static_cast<float>(terms.weight);
    r.max_wait = static_cast<float>(terms.max_wait);
    r.pooling = own->embedding.pooling;
    if (!own->rank.second_text.empty()) r.second_text = own->rank.second_text[info.requests.size()];
    const auto len = static_cast<int64_t>(r.prompt.size());
    if (len >= model.context_len && !(len == model.context_len && r.max_tokens == 0)) {
      const ApiError refusal =
          too_long(len, model, endpoint == Endpoint::kChat ? "messages" : api->prompt_name, makes_vectors);
      if (!fails_in_stream) return error_response(refusal);
      info.refusal = std::make_shared<const ApiError>(refusal);
    }
    r.id = backend.next_id();
    info.requests.push_back(r.id);
    info.prompt_lens.push_back(static_cast<int32_t>(len));
    if ((endpoint == Endpoint::kCompletions && api->echo && api->want_logprobs) || api->return_token_ids)
      info.prompt_ids.push_back(r.prompt);
  }
  info.style = exchange.style;
  info.id = std::string(id_prefix_of(info.style)) + hex(id_prefix_ ^ static_cast<uint64_t>(info.requests[0]));
  // Whoever knows this one may read the answer.
  if (exchange.style == ApiStyle::kResponses) info.id = "resp_" + hex(random_bits()) + hex(random_bits());
  info.model = *std::move(name);
  const size_t n_prompts = info.requests.size();
  info.fingerprint = "ibid-" IBID_VERSION "-" + arithmetic_id() + "-" + model.digest.substr(0, 12);
  info.created = unix_seconds();
  info.seed = api->sampling.seed;
  info.n = std::max(api->n, api->best_of);
  info.n_told = api->n;
  info.searches = api->search.kind != SearchKind::kNone;
  info.stream = api->stream;
  info.include_usage = api->include_usage;
  info.continuous_usage = api->continuous_usage;
  info.echo = api->echo;
  info.want_logprobs = api->want_logprobs;
  info.processed_logprobs = api->sampling.processed_logprobs;
  info.prompt_logprobs = api->prompt_logprobs >= 0;
  info.tells_reasoning = api->tells_reasoning;
  info.parallel_calls = api->parallel_calls;
  info.n_indent = api->n_indent;
  info.t_max_predict_ms = api->t_max_predict_ms;
  if (const grammar::Matcher* matcher = built->requests[0].grammar.get()) info.not_held = matcher->notes();
  info.parser = std::move(built->parser);
  info.reasoning = std::move(built->reasoning);
  info.llama = std::move(own->llama);
  info.embedding = own->embedding;
  info.embedding_len = model.width;
  info.rank = std::move(own->rank);
  if (is_llama) info.settings = settings_json(*api, backend.tokenizer().vocabulary());
  info.call_forms = std::move(own->call_forms);
  info.repeated = std::move(own->echo);
  info.stored = std::move(own->stored);
  if (info.stored) info.stored->id = info.id, info.stored->tenant = exchange.tenant;
  if (own->is_stored) info.keeper = &stored_;
  if (api->trace)
    info.trace = trace_facts(built->requests[0].sampling, api->sources, model, built->requests[0].grammar.get());
  info.return_token_ids = api->return_token_ids;
  info.ledger = api->ledger;
  info.tokens_as_ids = api->tokens_as_ids;
  info.timings = api->timings;
  info.verbose = api->verbose;
  info.rendered = std::move(built->rendered);
  info.tells_drafts = api->tells_drafts;
  info.verifier = api->verifier;
  info.clock = &backend.clock();
  info.prompt_texts = std::move(built->prompt_texts);
  info.arrived = request.arrived;
  info.submitted = now();

  if (info.refusal != nullptr) return failed_stream(std::move(info), backend.tokenizer(), metrics_);

  const int64_t most = Generation::most_bytes(info, built->requests, model.context_len, options_.max_stream_backlog);
  const std::string field = makes_vectors ? api->prompt_name : "max_tokens";
  if (const std::optional<ApiError> refusal = promise(exchange, most, field)) return error_response(*refusal);

  exchange.mailbox = std::make_shared<Mailbox>(std::move(wake));
  exchange.row = live_.add_row();
  exchange.row->route = exchange.route;
  exchange.row->n_choices = info.n * static_cast<int32_t>(n_prompts);
  exchange.row->stream = info.stream;
  exchange.row->arrived = request.arrived;
  for (const int32_t len : info.prompt_lens) exchange.row->prompt_tokens += len;
  exchange.generation = std::make_unique<Generation>(std::move(info), backend.tokenizer(), metrics_);
  const auto n_first = static_cast<size_t>(std::min<int64_t>(at_once, std::ssize(built->requests)));
  exchange.held.assign(std::make_move_iterator(built->requests.rbegin()),
                       std::make_move_iterator(built->requests.rend() - static_cast<std::ptrdiff_t>(n_first)));
  if (Status status = submit(std::span(built->requests).first(n_first), exchange.mailbox); !status) {
    exchange.generation = nullptr;
    exchange.held.clear();
    ApiError error = ApiError::of(status.error());
    if (error.status == 429) error.retry_after_s = quotas_.retry_after(n_sequences, now());
    return error_response(error);
  }
  metrics_.add_tokens(exchange.row->prompt_tokens, 0, 0);
  quotas_.charge(exchange.tenant, exchange.row->prompt_tokens, now());
  WebResponse head;
  if (!makes_vectors) head.headers.emplace_back("Ibid-Seed", std::to_string(api->sampling.seed));
  if (api->stream) {
    head.content_type = exchange.generation->stream_type();
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");
  }
  return head;
}

// Memory for an answer that may come to hold so many bytes, before it is begun.
std::optional<ApiError> Service::promise(WebExchange& exchange, int64_t bytes, const std::string& field) {
  if (bytes > answers_.most()) {
    return ApiError{400,
                    "This answer might come to hold " + mebibytes(bytes) + " and the server has " +
                        mebibytes(answers_.most()) + " for all of them (--max-answers-bytes): " +
                        (field == "max_tokens" ? "fewer tokens, choices or log-probabilities, or a stream, would do."
                                               : "fewer or shorter texts would do."),
                    field, "answer_too_large"};
  }
  exchange.promised = answers_.take(bytes);
  if (exchange.promised) return std::nullopt;
  return ApiError{429, "The answers under way have all of the server's memory for them; try again later.", "",
                  "memory_full", 1};
}

// An answer that was made at once: whoever reads slowly holds it for long, and however many ask at the same time.
WebResponse Service::counted(WebResponse response, WebExchange& exchange) {
  constexpr int64_t kUncounted = 64 << 10;  // about what a connection may hold by itself
  const auto bytes = static_cast<int64_t>(response.body.capacity());
  if (bytes <= kUncounted || exchange.promised) return response;
  const std::optional<ApiError> refusal = promise(exchange, bytes, "");
  return refusal ? error_response(*refusal) : std::move(response);
}

// All or none, also where memory runs out in between.
Status Service::submit(std::span<Request> requests, const std::shared_ptr<Mailbox>& mailbox) {
  struct Undo {
    Service& service;
    std::vector<RequestId> ids;
    ~Undo() {
      for (const RequestId id : ids) {
        service.router_.remove(id);
        service.cancel(id);
      }
    }
  } undo = {*this, {}};
  undo.ids.reserve(requests.size());
  for (Request& request : requests) {
    undo.ids.push_back(request.id);
    router_.add(request.id, mailbox);  // before submit: the answer may come while submit returns
    TRY(backend_.load()->submit(std::move(request)));
  }
  undo.ids.clear();
  return {};
}

// The next of many texts, as those before them are done.
void Service::submit_held(WebExchange& exchange) {
  Generation& generation = *exchange.generation;
  const auto n_under_way = [&] {
    return std::ssize(generation.info().requests) - std::ssize(exchange.held) -
           static_cast<int64_t>(generation.n_finished());
  };
  while (!exchange.held.empty() && n_under_way() < texts_at_once(exchange.tenant)) {
    Request next = exchange.held.back();
    Status status = draining_ ? Status(unavailable("The server is shutting down.")) : Status();
    if (status && !generation.has_failed()) status = submit({&next, 1}, exchange.mailbox);
    if (!status && status.error().kind == ErrorKind::kExhausted && n_under_way() > 0) return;  // when one of those ends
    if (status && !generation.has_failed()) {
      exchange.held.pop_back();
      continue;
    }
    std::vector<Output> ended;
    for (const Request& held : exchange.held) {
      Output& output = ended.emplace_back();
      output.request = held.id;
      output.fail(status ? unavailable("Another text of the request failed.") : status.error());
    }
    exchange.held.clear();
    generation.take(std::move(ended));
  }
}

}  // namespace ibid
