// ModelService, from a request's body to sequences in the engine: whose API it is of, what it may take, and its begin.
#include <algorithm>
#include <string>

#include "base/quoted.h"
#include "engine/state/answer.h"
#include "kernels/arithmetic_version.h"
#include "server/answer/trace_json.h"
#include "server/fields/body_parts.h"
#include "server/fields/parse_body.h"
#include "server/request/build_grammar.h"
#include "server/request/build_requests.h"
#include "server/request/model_names.h"
#include "server/request/picture_fetcher.h"
#include "server/routes/file_store.h"
#include "server/routes/model_service.h"
#include "server/wire/random_id.h"

namespace ibid {
namespace {

// In the words by which clients know it, OpenAI's and llama.cpp's.
ApiError too_long(int64_t n_tokens, const ModelInfo& model, std::string field, bool makes_vectors) {
  const int32_t context_len = model.context_len;
  const std::string most = "This model's maximum context length is " + std::to_string(context_len) + " tokens; ";
  ApiError error{400,
                 makes_vectors ? most + "this text has " + std::to_string(n_tokens) + " and is too large to be read."
                               : most + "the prompt has " + std::to_string(n_tokens) +
                                     " and exceeds the available context size, of which the answer needs one at least.",
                 std::move(field), "context_length_exceeded"};
  error.n_prompt_tokens = n_tokens;
  error.n_ctx = n_tokens > context_len ? context_len : context_len - 1;  // the answer needs one at least
  if (n_tokens < model.trained_context_len) {
    error.hint = "The model itself reads up to " + std::to_string(model.trained_context_len) +
                 " tokens: ibid serve --ctx N gives so many, where memory allows it.";
    error.message += " " + error.hint;
  }
  return error;
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

// The answer's outputs as they are: what a client asked of its form is done by the replica that has the client.
void as_outputs(GenerationInfo& info) {
  info.api = &dialect_of(ApiStyle::kOutputs);
  info.asked.return_token_ids = true;  // so that tokens are kept
  info.asked.n_indent = 0;
  info.asked.t_max_predict_ms = -1;
  info.parser.reset();
  info.reasoning.reset();
  info.trace = nullptr;
  info.stored = nullptr;
}

// OpenAI's form has no vectors of tokens, and llama.cpp's path without the version has: it answers them there alone.
bool wants_each_token(const Json& body, const ModelInfo& model) {
  const std::string* pooling = text_at(body, "pooling");
  return pooling != nullptr ? *pooling == pooling_name(Pooling::kEach) : model.pooling == Pooling::kEach;
}

}  // namespace

// Enough to fill steps, no more than half of a small queue, and what the tenant's terms let in.
int64_t ModelService::texts_at_once(const std::string& tenant) const {
  const int64_t by_terms = state_.quotas.terms_of(tenant).sequences;
  return std::clamp<int64_t>(options_.n_places / 2, 1, by_terms > 0 ? std::min<int64_t>(by_terms, 64) : 64);
}

struct ModelService::Asked {
  DialectBody own;
  ApiRequest api;
  std::string name;  // the model's, as the answer has it
  std::shared_ptr<const PlacedAdapter> adapter;
  int64_t at_once = INT64_MAX;  // of its texts, that the engine has at a time
  int64_t n_sequences = 0;      // that count for the tenant
  BuiltRequests built;
  std::optional<Output> resumed;  // the first part of the answer
  GenerationInfo info;
  bool makes_vectors() const { return own.embedding.pooling != Pooling::kNone; }
};

// A body of any API in the words of ours.
Result<DialectBody> ModelService::read_dialect(const WebExchange& exchange, Json body, const ModelInfo& model,
                                               const Tokenizer* tokenizer) {
  return exchange.api->read(
      std::move(body),
      {.model = model,
       .tokenizer = tokenizer,
       .fim = fim_,
       .limits = options_.api,
       .find_response = [&](std::string_view id) { return state_.stored.find(id, exchange.tenant, now()); },
       .may_unload = may_unload_});
}

Result<ApiRequest> ModelService::read_request(const ApiDialect& dialect, DialectBody& own, const ModelInfo& model,
                                              const Tokenizer* tokenizer) const {
  const bool makes_vectors = own.embedding.pooling != Pooling::kNone;
  ApiLimits limits = options_.api;
  if (makes_vectors) limits.max_prompts = limits.max_choices = limits.max_inputs;
  limits.max_tool_name = dialect.max_tool_name;
  ASSIGN_OR_RETURN(ApiRequest api, parse_api_request(own.endpoint, own.body, limits, model.sampling));
  if (tokenizer != nullptr) TRY(fill_in(api, *tokenizer, fim_));
  TRY(add_conversations(api, own.conversations, own.body, limits));
  if (makes_vectors) api.echo = false, api.max_tokens = 0, api.prompt_name = own.prompt_name;
  if (!own.rank.pairs.empty()) api.prompts = std::exchange(own.rank.pairs, {});
  api.keeps_prompt = dialect.repeats_request;
  if (api.n != 1 && !dialect.has_choices)
    return unsupported("n is " + std::to_string(api.n) + "; this API has one choice.", "n");
  own.conversations = {};
  own.body = Json();
  return api;
}

int64_t ModelService::sequences_of(const ApiRequest& api) {
  return int64_t{std::max({api.n, api.best_of, api.search.width})} *
         std::max<int64_t>(1 + std::ssize(api.more_chats), std::ssize(api.prompts));
}

WebResponse ModelService::generate(const WebRequest& request, WebExchange& exchange, std::function<void()> wake,
                                   Effort effort) {
  if (draining_) return error_response({503, "The server is shutting down.", "", "shutting_down", 5});
  Asked asked;
  if (const Status status = read(request, exchange, asked); !status)
    return error_response(ApiError::of(status.error()));
  WebResponse response;
  if (asked.own.answer) {
    response.body = *std::move(asked.own.answer);
    return response;
  }
  const Backend& backend = *backend_.load();
  if (backend.pictures() != nullptr) {
    if (const Status status = take_fetched(request, exchange, asked); !status)
      return error_response(ApiError::of(status.error()));
    if (exchange.is_put_off) return response;
  }
  if (effort == Effort::kBrief && needs_grammar(asked.api, *backend.answer_format())) {
    exchange.is_put_off = true;
    return response;
  }
  if (const std::optional<ApiError> refusal = admit(exchange, asked)) return error_response(*refusal);
  if (const std::optional<ApiError> refusal = build(request, exchange, asked)) return error_response(*refusal);
  if (asked.info.refusal != nullptr) return failed_stream(std::move(asked.info), backend.tokenizer(), state_.metrics);
  int64_t most = Generation::most_bytes(asked.info, asked.built.requests, backend.model().context_len,
                                        options_.max_stream_backlog);
  // What moving it needs: its body, which grows by the ids of the answer as JSON.
  if (may_move(asked, *exchange.api)) {
    const int64_t n_left = backend.model().context_len - asked.info.prompt_lens.front();
    most += 2 * std::ssize(request.body) +
            16 * (asked.api.max_tokens < 0 ? n_left : std::min<int64_t>(n_left, asked.api.max_tokens));
  }
  const std::string field = asked.makes_vectors() ? asked.api.prompt_name : "max_tokens";
  if (const std::optional<ApiError> refusal = state_.reserve(exchange, most, field)) return error_response(*refusal);
  if (const std::optional<ApiError> refusal = begin(request, exchange, asked, std::move(wake)))
    return error_response(*refusal);
  if (!asked.makes_vectors()) response.headers.emplace_back("Ibid-Seed", std::to_string(asked.api.sampling.seed));
  if (asked.api.stream) {
    response.content_type = exchange.generation->stream_type();
    response.headers.emplace_back("Cache-Control", "no-cache");
    response.headers.emplace_back("X-Accel-Buffering", "no");
  }
  return response;
}

// Reads the body, for a model that is there and of a kind that can serve it.
Status ModelService::read(const WebRequest& request, WebExchange& exchange, Asked& asked) {
  const Backend& backend = *backend_.load();
  const ModelInfo& model = backend.model();
  ASSIGN_OR_RETURN(Json body, parse_body(request.body, options_.api.json));
  if (request.path() == "/invocations") {
    exchange.api = &dialect_of_invocation(body, model);
    exchange.route = exchange.api->route;
  }
  if (request.path() == "/embeddings" && wants_each_token(body, model))
    exchange.api = &dialect_of(ApiStyle::kLlamaEmbedding);
  ASSIGN_OR_RETURN(asked.own, read_dialect(exchange, std::move(body), model, &backend.tokenizer()));
  exchange.is_ours = true;
  if (asked.own.answer) {
    const std::string* name = text_at(asked.own.body, "model");
    ASSIGN_OR_RETURN(asked.name, answering_name(name != nullptr ? *name : "", model, options_));
    return {};
  }
  if (model.is_encoder && !asked.makes_vectors())
    return unsupported("This model is an encoder: it makes vectors of texts (/v1/embeddings) and no answers.", "model");
  ASSIGN_OR_RETURN(asked.api, read_request(*exchange.api, asked.own, model, &backend.tokenizer()));
  ASSIGN_OR_RETURN(asked.name, answering(asked.api.model, asked.adapter));
  return {};
}

Result<std::string> ModelService::answering(const std::string& asked,
                                            std::shared_ptr<const PlacedAdapter>& adapter) const {
  const Backend& backend = *backend_.load();
  const AdapterShelf* shelf = backend.adapters();
  if (shelf == nullptr) return answering_name(asked, backend.model(), options_);
  adapter = shelf->find(asked);
  if (adapter != nullptr) return asked;
  if (!options_.default_adapter.empty()) adapter = shelf->find(options_.default_adapter);
  return answering_name(asked, backend.model(), options_);
}

// Pictures that the request names by address; it is put off until they are fetched.
Status ModelService::take_fetched(const WebRequest& request, WebExchange& exchange, Asked& asked) const {
  for (PictureUrl& picture : asked.api.pictures) {
    if (!is_picture_address(picture.url) || !request.may_fetch) continue;
    if (asked.api.resume) {
      return unsupported(picture.where +
                             " is an address, whose picture may have changed since the answer began; a request "
                             "with resume has pictures as data URLs.",
                         picture.where);
    }
    if (request.fetched == nullptr) {
      exchange.is_put_off = true;
      exchange.to_fetch.push_back(picture.url);
      continue;
    }
    picture.fetched = &request.fetched->by_url.at(picture.url);
  }
  return {};
}

// Whether there is a place for it in the queue, and by the tenant's terms.
std::optional<ApiError> ModelService::admit(WebExchange& exchange, Asked& asked) {
  // Many texts are under way a few at a time.
  if (asked.makes_vectors()) asked.at_once = texts_at_once(exchange.tenant);
  asked.n_sequences = std::min(asked.at_once, sequences_of(asked.api));
  if (backend_.load()->is_full()) {
    const int seconds = state_.quotas.retry_after(asked.n_sequences, now());
    return ApiError{429, "The queue is full; try again later.", "", "queue_full", seconds};
  }
  if (std::optional<ApiError> refusal = state_.quotas.enter(exchange.tenant, asked.n_sequences, now())) return refusal;
  exchange.n_sequences = asked.n_sequences;  // it is in, and finish() takes it out
  return std::nullopt;
}

// The engine's requests, each of which the model can read, and what the answer has to know of them.
std::optional<ApiError> ModelService::build(const WebRequest& request, WebExchange& exchange, Asked& asked) {
  Backend& backend = *backend_.load();
  ApiRequest& api = asked.api;
  GenerationInfo& info = asked.info;
  if (!api.has_seed) api.sampling.seed = random_bits() >> 11;  // a number that every JSON reader gives back
  Result<BuiltRequests> built = build_requests(api, backend, exchange.tenant);
  if (!built) return ApiError::of(built.error());
  asked.built = *std::move(built);
  const TenantTerms& terms = state_.quotas.terms_of(exchange.tenant);
  const bool is_completion = asked.own.endpoint == Endpoint::kCompletions;
  const int32_t context_len = backend.model().context_len;
  for (Request& r : asked.built.requests) {
    r.adapter = asked.adapter;
    r.processor = request.processor;
    r.weight = static_cast<float>(terms.weight);
    r.max_wait = static_cast<float>(terms.max_wait);
    r.pooling = asked.own.embedding.pooling;
    if (!asked.own.rank.second_text.empty()) r.second_text = asked.own.rank.second_text[info.requests.size()];
    const auto len = static_cast<int64_t>(r.prompt.size());
    if (len >= context_len && !(len == context_len && r.max_tokens == 0)) {
      const std::string field = is_completion ? api.prompt_name : "messages";
      const ApiError refusal = too_long(len, backend.model(), field, asked.makes_vectors());
      // Some APIs' clients know it by an event of the stream that they asked for.
      if (!exchange.api->fails_in_stream || !api.stream) return refusal;
      info.refusal = std::make_shared<const ApiError>(refusal);
    }
    r.id = backend.next_id();
    info.requests.push_back(r.id);
    info.prompt_lens.push_back(static_cast<int32_t>(len));
    if ((is_completion && api.echo && api.want_logprobs) || api.return_token_ids) info.prompt_ids.push_back(r.prompt);
  }
  describe(request, exchange, asked);
  if (api.resume) {
    if (const Status status = resume(asked); !status) return ApiError::of(status.error());
  }
  return std::nullopt;
}

// Compares the replica that began the answer with this one, and reads that beginning as the engine will.
Status ModelService::resume(Asked& asked) const {
  const ResumeFields& fields = *asked.api.resume;
  const Backend& backend = *backend_.load();
  const auto is_other = [](const std::string& name, const std::string& given, const std::string& own) {
    return unsupported("resume." + name + " is " + in_quotes(given, 80) + ", and this replica's is " + in_quotes(own) +
                           ": what follows would have other bytes here. Resume the answer on a replica with the same.",
                       "resume." + name);
  };
  const std::string& digest = backend.model().digest;
  if (!fields.model_digest.empty() && fields.model_digest != digest)
    return is_other("model_digest", fields.model_digest, digest);
  if (!fields.fingerprint.empty() && fields.fingerprint != asked.info.fingerprint)
    return is_other("system_fingerprint", fields.fingerprint, asked.info.fingerprint);
  if (fields.token_ids.empty()) return {};
  for (size_t i = 0; i < fields.token_ids.size(); ++i) {
    if (raw(fields.token_ids[i]) < backend.tokenizer().vocab_size()) continue;
    const std::string where = "resume.token_ids[" + std::to_string(i) + "]";
    return invalid(where + " is " + std::to_string(raw(fields.token_ids[i])) + "; the model's ids go from 0 to " +
                       std::to_string(backend.tokenizer().vocab_size() - 1) + ".",
                   where);
  }
  Request& request = asked.built.requests.front();
  request.resume = {.tokens = fields.token_ids, .mirostat_mu = fields.mirostat_mu};
  const std::span<const TokenId> ends = backend.tokenizer().vocabulary().end_of_generation;
  const std::shared_ptr<const Tokenizer> tokenizer(std::shared_ptr<void>(), &backend.tokenizer());  // it is not kept
  asked.resumed = replay_answer(std::make_shared<const Request>(request), tokenizer, ends);
  if (asked.resumed->finished && asked.resumed->reason == FinishReason::kError)
    return invalid(asked.resumed->error().message, "resume.token_ids");
  return {};
}

// What the answer has to know besides of the request, which is built.
void ModelService::describe(const WebRequest& request, const WebExchange& exchange, Asked& asked) {
  const Backend& backend = *backend_.load();
  const ModelInfo& model = backend.model();
  const std::string adapter = asked.adapter != nullptr ? asked.adapter->adapter->digest() : std::string();
  const ApiRequest& api = asked.api;
  BuiltRequests& built = asked.built;
  DialectBody& own = asked.own;
  GenerationInfo& info = asked.info;
  info.api = exchange.api;
  info.asked = api;
  info.id =
      info.api->id_prefix + (info.api->has_secret_ids ? hex(random_bits()) + hex(random_bits())
                                                      : hex(id_prefix_ ^ static_cast<uint64_t>(info.requests[0])));
  info.model = std::move(asked.name);
  info.fingerprint = "ibid-" IBID_VERSION "-" + arithmetic_id() + "-" + model.digest.substr(0, 12) +
                     (adapter.empty() ? "" : "+" + adapter.substr(0, 12));
  info.created = unix_seconds();
  info.seed = api.sampling.seed;
  info.n = std::max(api.n, api.best_of);
  info.uses_mirostat = api.sampling.mirostat != 0;
  info.searches = api.search.kind != SearchKind::kNone;
  info.processed_logprobs = api.sampling.processed_logprobs;
  const grammar::Matcher* grammar = built.requests[0].grammar.get();
  if (grammar != nullptr) info.not_held = grammar->notes();
  info.parser = std::move(built.parser);
  info.reasoning = std::move(built.reasoning);
  info.llama = std::move(own.llama);
  info.embedding = own.embedding;
  info.embedding_len = model.width;
  info.rank = std::move(own.rank);
  if (info.api->repeats_request) info.settings = settings_json(api, backend.tokenizer().vocabulary());
  info.call_forms = std::move(own.call_forms);
  info.repeated = std::move(own.echo);
  info.stored = std::move(own.stored);
  if (info.stored) info.stored->id = info.id, info.stored->tenant = exchange.tenant;
  if (own.is_stored && !api.resume) info.keeper = &state_.stored;  // of a resumed one the rest alone would be kept
  if (api.trace)
    info.trace =
        trace_facts(built.requests[0].sampling, api.sources, model, grammar, adapter, built.requests[0].kv_eviction);
  info.rendered = std::move(built.rendered);
  info.clock = &backend.clock();
  info.prompt_texts = std::move(built.prompt_texts);
  info.arrived = request.arrived;
  info.submitted = now();
  if (api.resume && api.resume->as_outputs) as_outputs(info);
}

// Hands it to the engine; it lives in the exchange then.
std::optional<ApiError> ModelService::begin(const WebRequest& request, WebExchange& exchange, Asked& asked,
                                            std::function<void()> wake) {
  GenerationInfo& info = asked.info;
  std::vector<Request>& requests = asked.built.requests;
  const bool is_movable = may_move(asked, *exchange.api);
  exchange.mailbox = std::make_shared<Mailbox>(std::move(wake), is_movable);
  exchange.row = live_.add_row();
  exchange.row->route = exchange.route;
  exchange.row->n_choices = info.n * static_cast<int32_t>(requests.size());
  exchange.row->stream = info.asked.stream;
  exchange.row->arrived = info.arrived;
  for (const int32_t len : info.prompt_lens) exchange.row->prompt_tokens += len;
  exchange.generation = std::make_unique<Generation>(std::move(info), backend_.load()->tokenizer(), state_.metrics);
  if (asked.resumed) exchange.generation->resume(*std::move(asked.resumed));
  if (is_movable) add_movable(request, exchange, asked);
  const auto n_first = static_cast<size_t>(std::min<int64_t>(asked.at_once, std::ssize(requests)));
  exchange.held.assign(std::make_move_iterator(requests.rbegin()),
                       std::make_move_iterator(requests.rend() - static_cast<std::ptrdiff_t>(n_first)));
  if (const Status status = submit(std::span(requests).first(n_first), exchange.mailbox); !status) {
    if (is_movable) state_.movable.remove(exchange.generation->info().id);
    exchange.generation = nullptr;
    exchange.held.clear();
    ApiError error = ApiError::of(status.error());
    if (error.status == 429) error.retry_after_s = state_.quotas.retry_after(asked.n_sequences, now());
    return error;
  }
  state_.metrics.add_tokens(exchange.row->prompt_tokens, 0, 0);
  state_.quotas.charge(exchange.tenant, exchange.row->prompt_tokens, now());
  return std::nullopt;
}

// One answer that is drawn token by token, of an API whose bodies may have `resume`.
bool ModelService::may_move(const Asked& asked, const ApiDialect& api) const {
  const ApiRequest& r = asked.api;
  const bool is_wanted = options_.allow_moves || !options_.drain_to.empty() || r.is_resumable;
  return is_wanted && api.resumes && asked.built.requests.size() == 1 && std::max(r.n, r.best_of) == 1 &&
         r.search.kind == SearchKind::kNone && !asked.makes_vectors() && !pins_drafts(r.verifier) &&
         std::ranges::all_of(r.pictures, [](const PictureUrl& p) { return p.fetched == nullptr; });
}

void ModelService::add_movable(const WebRequest& request, const WebExchange& exchange, const Asked& asked) {
  const GenerationInfo& info = exchange.generation->info();
  const ResumeFields resumed = asked.api.resume.value_or(ResumeFields());
  const Backend& backend = *backend_.load();
  const Request& first = asked.built.requests.front();
  const int32_t n_left = backend.model().context_len - info.prompt_lens.front();
  const int32_t most = first.max_tokens < 0 ? n_left : std::min(n_left, first.max_tokens);
  std::vector<std::pair<std::string, std::string>> keys;
  for (const char* name : {"authorization", "x-api-key"}) {
    if (const std::string_view value = request.header(name); !value.empty()) keys.emplace_back(name, value);
  }
  state_.movable.add(
      {.id = info.id,
       .request_id = exchange.request_id,
       .tenant = exchange.tenant,
       .path = exchange.api->paths.front(),
       .body = request.body,
       .keys = std::move(keys),
       .has_options = exchange.api->has_options,
       .is_resumable = asked.api.is_resumable && asked.api.stream,
       .may_leave = options_.allow_moves,
       .seed = info.seed,
       .fingerprint = info.fingerprint,
       .digest = backend.model().digest,
       .resumed = resumed.token_ids,
       .uses_mirostat = info.uses_mirostat,
       .mirostat_mu = resumed.mirostat_mu.value_or(0),
       .scores_prompt = first.prompt_logprobs >= 0,
       .max_tokens = most - static_cast<int32_t>(resumed.token_ids.size()),
       .vocab_size = backend.tokenizer().vocab_size(),
       .n_top = 1 + std::max(first.sampling.logprobs, static_cast<int32_t>(first.sampling.logprob_tokens.size())),
       .request = info.requests.front(),
       .mailbox = exchange.mailbox,
       .cancel =
           [this](RequestId id) {
             router_.remove(id);
             cancel(id);
           },
       .next_id = [this] { return backend_.load()->next_id(); },
       .now = [this] { return now(); },
       .begin_here = [this](const MovableRequest& movable, const std::string& body) { return go_on(movable, body); }});
}

// A snapshot's request as another replica would read it, whose outputs are the mailbox's from then on.
Status ModelService::go_on(const MovableRequest& movable, const std::string& body) {
  const auto is_of_path = [&](const ApiDialect& api) { return api.resumes && api.paths.front() == movable.path; };
  const WebRequest request = {.method = "POST", .target = movable.path, .body = body, .arrived = now()};
  WebExchange exchange;
  exchange.tenant = movable.tenant;
  exchange.api = &*std::ranges::find_if(api_dialects(), is_of_path);
  Asked asked;
  TRY(read(request, exchange, asked));
  if (const std::optional<ApiError> refusal = build(request, exchange, asked)) return unavailable(refusal->message);
  Request& next = asked.built.requests.front();
  next.max_wait = next.ttft_target = 0;  // it has been admitted
  const RequestId id = next.id;
  if (!movable.mailbox->hand_over(movable.request, id)) return {};
  router_.add(id, movable.mailbox);
  Status status = backend_.load()->submit(std::move(next));
  if (!status) router_.remove(id);
  return status;
}

// All or none, also where memory runs out in between.
Status ModelService::submit(std::span<Request> requests, const std::shared_ptr<Mailbox>& mailbox) {
  struct Undo {
    ModelService& service;
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
void ModelService::submit_held(WebExchange& exchange) {
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
