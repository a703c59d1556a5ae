// Service: every route, as functions from a request to an answer; knows no sockets. A route that needs the engine hands
// back a Generation, which its connection feeds from the mailbox. Safe from any thread; a Generation belongs to one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/access/api_keys.h"
#include "server/access/host_check.h"
#include "server/access/quotas.h"
#include "server/answer/api_dialects.h"
#include "server/answer/generation.h"
#include "server/dialects/dialects.h"
#include "server/observe/live_view.h"
#include "server/observe/metrics.h"
#include "server/observe/otlp.h"
#include "server/observe/request_log.h"
#include "server/request/backend.h"
#include "server/request/mailbox.h"
#include "server/request/options.h"
#include "server/routes/fleet.h"
#include "server/wire/byte_budget.h"
#include "server/wire/web_message.h"

namespace ibid {

// An HTTP request under way.
class Batches;

struct WebExchange {
  std::shared_ptr<ModelUse> model;            // of several; let go after all that refers to it
  std::optional<ByteBudget::Share> promised;  // of what the answer may come to hold
  WebResponse response;                       // complete, unless there is a generation
  std::unique_ptr<Generation> generation;     // null: the response is complete
  std::shared_ptr<Mailbox> mailbox;
  std::vector<WebExchange> instances;  // of /predict; there is no generation then, and the response is made of theirs
  std::vector<Request> held;           // texts that the engine gets when those before them are done; the next one last
  std::shared_ptr<ActiveRow> row;
  std::string request_id;
  std::string tenant;
  std::string method;
  const char* route = "other";
  const ApiDialect* api = &dialect_of(ApiStyle::kChat);  // whose form the answer has, and its errors
  bool is_ours = false;  // the body has been read as one of ours, so that errors have our names of fields
  double arrived = 0;
  int64_t n_sequences = 0;  // that count for the tenant
  std::optional<TraceParent> trace;
};

class Service {
 public:
  Service(const ServerOptions& options, ApiKeys keys, RequestLog& log);
  // One of several after this one, with a backend of its own, sharing all that users share. `has_aliases`: it answers
  // to the options' aliases.
  std::unique_ptr<Service> make_service(bool has_aliases);
  // From now on requests go to the models of a fleet, which outlives the service's use of it.
  void set_fleet(Fleet* fleet);
  // Before the first request; outlives the service's use of it. Null: there are no files and no batches.
  void set_batches(Batches* batches) { batches_ = batches; }

  // The model is there. `backend` outlives the service's use of it; start()s it.
  void set_backend(Backend* backend);
  void drop_backend() { backend_ = nullptr; }     // it is not in use any more
  std::vector<std::string> capabilities() const;  // of the model, as Ollama names them
  void set_draining();
  bool draining() const { return draining_; }
  bool ready() const { return health_word() == std::string_view("ready"); }

  // Of several models the one that a request is for, noted in it. False: it is not loaded, and wait_for_model() must be
  // called, by what is given to post_to_loader() for request.model_name and
  // request.tenant.
  bool choose_model(WebRequest& request);
  void wait_for_model(WebRequest& request);
  void post_to_loader(const std::string& model, const std::string& tenant, std::function<void()> work);
  // Whose turn a request's work is, and by which weight.
  std::pair<std::string, double> turn_of(const WebRequest& request) const;
  // What is known of a request that is not handled, for finish().
  WebExchange unhandled(const WebRequest& request);
  // A client whose request is not handled yet has gone.
  void on_gone();
  int64_t n_gone() const { return n_gone_; }  // of those, since the start
  // Whether its path, method, key or content type is all that is looked at.
  bool is_answered_at_door(const WebRequest& request) const;
  // `wake` is called on the engine's thread when the mailbox has something.
  WebExchange handle(const WebRequest& request, std::function<void()> wake);
  // Of what is known of a request before its body is.
  bool has_key(const WebRequest& request) const;
  // A request that HTTP itself refused (too large, malformed, too slow), which began to come at `arrived`.
  WebResponse refuse(int status, std::string message, std::string code, double arrived);
  // Moves what the mailbox has into the generation.
  void collect(WebExchange& exchange);
  // Of an exchange with instances: whether all have ended; then its answer, once.
  static bool are_predicted(const WebExchange& exchange);
  static WebResponse predictions(WebExchange& exchange);
  // Asks the engine to end it; the answer then ends by itself.
  void cancel(WebExchange& exchange);
  // The end of an exchange, whatever it was: logs, counts, forgets. `cut` where our side or the client ended it early:
  // cancels.
  void finish(WebExchange& exchange, const Abort* cut);

  size_t n_active() const;
  double now() const;
  // Whether a key names it, or there are no keys and it is the one without a name.
  bool has_tenant(const std::string& tenant) const { return quotas_.knows(tenant); }
  Metrics& metrics() { return metrics_; }
  // Before the first request; outlives the service's use of it.
  void send_spans(SpanSender* spans) { spans_ = spans; }
  void on_connections(int64_t n) { connections_ = n; }
  // Of bodies that arrive or wait to be handled, all together; returns how many there are now.
  int64_t add_body_bytes(int64_t n) { return body_bytes_ += n; }

 private:
  struct Route {
    enum class Needs : uint8_t { kModel, kNothing };
    const char* method;
    const char* path;
    const char* name;                                                  // label in metrics and log
    WebResponse (Service::*handler)(const WebRequest&, WebExchange&);  // null: a generation
    Needs needs = Needs::kModel;
    bool takes_rest = false;          // also path + "/..."
    const ApiDialect* api = nullptr;  // in routes() never null
    bool needs_model() const { return needs == Needs::kModel; }
  };
  // The route of a path, and the methods that the path takes. Null: there is no such path; of one that does not take
  // the request's method: any of the path's routes.
  struct Found {
    const Route* route = nullptr;
    std::string methods = {};
  };
  struct Asked;  // a request on its way to the engine
  // What all models of a server share.
  struct Shared {
    Shared(const ServerOptions& options, const ApiKeys& keys)
        : quotas(keys.terms(), options.n_places),
          answers(options.max_answers_bytes),
          stored(options.max_stored_bytes, options.max_stored_age) {}
    Quotas quotas;
    Metrics metrics;
    ByteBudget answers;
    StoredResponses stored;
  };
  // A model that is served, loaded or not.
  struct ListedModel {
    ModelInfo info;
    std::vector<std::string> names, capabilities;
    bool is_loaded = true;
    std::vector<std::string> tags = {};
  };
  Service(const ServerOptions& options, ApiKeys keys, RequestLog& log, std::shared_ptr<Shared> shared);
  static const std::vector<Route>& routes();
  static Found find_route(const WebRequest& request);
  std::vector<ListedModel> listed() const;
  // What a request is for and from whom, noted in the exchange; the answer of one that needs no more: of a path,
  // method, key or content type that is refused.
  std::optional<WebResponse> answer_at_door(const WebRequest& request, WebExchange& exchange,
                                            const Route*& route) const;
  // What answer_at_door() looks at, in its order: each answers what it refuses.
  std::optional<WebResponse> check_site(const WebRequest& request, const Found& found, WebExchange& exchange) const;
  std::optional<WebResponse> answer_preflight(const WebRequest& request, const Found& found,
                                              WebExchange& exchange) const;
  std::optional<WebResponse> check_key(const WebRequest& request, const Found& found, WebExchange& exchange) const;
  std::optional<WebResponse> check_path(const WebRequest& request, const Found& found, WebExchange& exchange) const;
  // What a body is refused for that no model is needed to see. Of a model that is not loaded.
  std::optional<ApiError> fault_in_body(const WebRequest& request, const WebExchange& exchange, const Route& route,
                                        Json body, const ModelInfo& model);
  EngineStats stats() const;  // of all models

  std::string_view health_word() const;
  WebResponse dispatch(const WebRequest& request, WebExchange& exchange, std::function<void()> wake);
  bool allowed_origin(const WebRequest& request) const;
  void add_cors(const WebRequest& request, WebResponse& response) const;
  WebResponse generate(const WebRequest& request, WebExchange& exchange, std::function<void()> wake);
  WebResponse predict(const WebRequest& request, WebExchange& exchange, const std::function<void()>& wake);
  static const std::string* model_of_instances(const Json& body);  // that the first one names; null: none

  std::string new_request_id();
  void write(const RequestLine& line);
  void cancel(RequestId id);
  void abandon(const Generation& generation);
  // `field`: that a refusal names.
  std::optional<ApiError> promise(WebExchange& exchange, int64_t bytes, const std::string& field);
  // The response, or a refusal where there is no memory for it.
  WebResponse counted(WebResponse response, WebExchange& exchange);
  // `tokenizer`: null where the model is not loaded; then of bodies that reads_unloaded().
  Result<DialectBody> read_dialect(const WebExchange& exchange, Json body, const ModelInfo& model,
                                   const Tokenizer* tokenizer);
  // The request in such a body, of which it takes what is large.
  Result<ApiRequest> read_request(const ApiDialect& api, DialectBody& own, const ModelInfo& model,
                                  const Tokenizer* tokenizer) const;
  // generate()'s parts, in their order. Each refusal is the first that holds.
  Status read(const WebRequest& request, WebExchange& exchange, Asked& asked);
  std::optional<ApiError> admit(WebExchange& exchange, Asked& asked);
  std::optional<ApiError> build(const WebRequest& request, WebExchange& exchange, Asked& asked);
  void describe(const WebRequest& request, const WebExchange& exchange, Asked& asked);
  std::optional<ApiError> begin(WebExchange& exchange, Asked& asked, std::function<void()> wake);
  static int64_t sequences_of(const ApiRequest& api);  // that its choices, prompts and conversations come to
  Status submit(std::span<Request> requests, const std::shared_ptr<Mailbox>& mailbox);
  void submit_held(WebExchange& exchange);
  int64_t texts_at_once(const std::string& tenant) const;

  WebResponse health(const WebRequest& request, WebExchange& exchange);
  WebResponse version(const WebRequest& request, WebExchange& exchange);
  WebResponse models(const WebRequest& request, WebExchange& exchange);
  WebResponse response_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse response_input(const WebRequest& request, WebExchange& exchange);
  WebResponse response_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse delete_response(const WebRequest& request, WebExchange& exchange);
  WebResponse cancel_response(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_tags(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_version(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_manage(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_show(const WebRequest& request, WebExchange& exchange);
  WebResponse props(const WebRequest& request, WebExchange& exchange);
  WebResponse slots(const WebRequest& request, WebExchange& exchange);
  WebResponse create_file(const WebRequest& request, WebExchange& exchange);
  WebResponse list_files(const WebRequest& request, WebExchange& exchange);
  WebResponse file_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse delete_file(const WebRequest& request, WebExchange& exchange);
  WebResponse file_content(const WebRequest& request, WebExchange& exchange);
  WebResponse create_batch(const WebRequest& request, WebExchange& exchange);
  WebResponse list_batches(const WebRequest& request, WebExchange& exchange);
  WebResponse batch_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse cancel_batch(const WebRequest& request, WebExchange& exchange);
  WebResponse load(const WebRequest& request, WebExchange& exchange);
  WebResponse tokenizer_info(const WebRequest& request, WebExchange& exchange);
  WebResponse change_model(const WebRequest& request, WebExchange& exchange);
  WebResponse chat_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse count_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse tokenize(const WebRequest& request, WebExchange& exchange);
  WebResponse detokenize(const WebRequest& request, WebExchange& exchange);
  WebResponse apply_template(const WebRequest& request, WebExchange& exchange);
  WebResponse metrics_text(const WebRequest& request, WebExchange& exchange);
  WebResponse engine_view(const WebRequest& request, WebExchange& exchange);
  WebResponse openapi(const WebRequest& request, WebExchange& exchange);
  WebResponse page(const WebRequest& request, WebExchange& exchange);

  ServerOptions options_;
  ApiKeys keys_;
  const std::shared_ptr<Shared> shared_;
  Quotas& quotas_;
  HostCheck hosts_;
  RequestLog& log_;
  Metrics& metrics_;
  ByteBudget& answers_;
  OutputRouter router_;
  StoredResponses& stored_;
  FimTokens fim_;  // of the backend's model
  LiveView live_;
  Batches* batches_ = nullptr;   // null: none are served
  SpanSender* spans_ = nullptr;  // null: none are sent
  std::atomic<Backend*> backend_ = nullptr;
  std::atomic<Fleet*> fleet_ = nullptr;  // null: there is one model
  bool is_of_fleet_ = false;             // it serves one of several, which may be unloaded
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> connections_ = 0, body_bytes_ = 0;
  std::atomic<uint64_t> n_requests_ = 0;
  std::atomic<int64_t> n_gone_ = 0;
  uint64_t id_prefix_;
  double started_;
};

}  // namespace ibid
