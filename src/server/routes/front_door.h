// FrontDoor: what exists once per server, in front of its models: the paths, the gates (names of hosts, origins, keys,
// methods, types of bodies), quotas, the count of bodies' bytes, the request log, metrics, the page, files and batches.
// It finds the model of a request and calls that model's ModelService; it knows no sockets.
//
// A server has one model (set_backend()) or a fleet of several (set_fleet()). Until either is there it answers what
// needs no model, and refuses the rest with 503.
//
// Threads: every function is safe from any thread, but set_fleet(), set_batches() and send_spans(), which come before
// the first request; an exchange belongs to one thread at a time. Ownership: it owns the service of the one model;
// the fleet owns those of several, and dies before the front door. Errors: a refusal is a response like any other, in
// the form of the API that asked; what throws is std::bad_alloc alone, and then nothing of the request is left.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/access/api_keys.h"
#include "server/access/host_check.h"
#include "server/observe/otlp.h"
#include "server/observe/request_log.h"
#include "server/request/backend.h"
#include "server/request/options.h"
#include "server/routes/fleet.h"
#include "server/routes/model_service.h"
#include "server/routes/server_state.h"
#include "server/routes/web_exchange.h"
#include "server/wire/web_message.h"

namespace ibid {

class Batches;

class FrontDoor {
 public:
  FrontDoor(const ServerOptions& options, ApiKeys keys, RequestLog& log);
  // The service of one of several models; uses this object's ServerState. `has_aliases`: it answers to the options'
  // aliases.
  std::unique_ptr<ModelService> make_service(bool has_aliases);
  // From now on requests go to the models of a fleet, which outlives the front door's use of it.
  void set_fleet(Fleet* fleet) { fleet_ = fleet; }
  // Outlives the front door's use of it. Null: there are no files and no batches.
  void set_batches(Batches* batches) { batches_ = batches; }
  // Outlives the front door's use of it. Null: no spans are sent.
  void send_spans(SpanSender* spans) { spans_ = spans; }
  // The one model is there. `backend` outlives the front door's use of it; start()s it.
  void set_backend(Backend* backend) { model_.set_backend(backend); }
  // From now on nothing new begins.
  void set_draining();
  bool draining() const { return draining_; }
  bool ready() const { return health_word() == std::string_view("ready"); }

  // Of a fleet: the model that a request is for, noted in it. False: it is not loaded, and wait_for_model() must be
  // called, by what is given to post_to_loader() for request.model_name and request.tenant.
  bool choose_model(WebRequest& request);
  void wait_for_model(WebRequest& request);
  void post_to_loader(const std::string& model, const std::string& tenant, std::function<void()> work);

  // The tenant whose turn a request's work is, and the tenant's weight.
  std::pair<std::string, double> turn_of(const WebRequest& request) const;
  // Whether its header has a key of the server, or none is needed.
  bool has_key(const WebRequest& request) const;
  // Whether its path, method, key or content type is all that is looked at.
  bool is_answered_at_door(const WebRequest& request) const;
  // `wake` is called on the engine's thread when the exchange's mailbox has something. With kBrief it takes as long as
  // the body is large, or is put off.
  WebExchange handle(const WebRequest& request, std::function<void()> wake, Effort effort = Effort::kWhole);
  // What is known of a request that is not handled, for finish().
  WebExchange unhandled(const WebRequest& request);
  // A client whose request is not handled yet has gone.
  void on_gone();
  int64_t n_gone() const { return n_gone_; }  // of those, since the start
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
  double now() const { return model_.now(); }  // seconds; the clock of WebRequest::arrived
  // Whether a key names it, or there are no keys and it is the one without a name.
  bool has_tenant(const std::string& tenant) const { return state_.quotas.knows(tenant); }
  Metrics& metrics() { return state_.metrics; }
  MovableRequests& movable() { return state_.movable; }
  void on_connections(int64_t n) { connections_ = n; }
  // Of bodies that arrive or wait to be handled, all together; returns how many there are now.
  int64_t add_body_bytes(int64_t n) { return body_bytes_ += n; }

 private:
  // One of the handlers is set, or neither: then the path's API makes sequences of the body. A model's service is
  // needed unless the front door itself handles it.
  struct Route {
    using Handler = WebResponse (FrontDoor::*)(const WebRequest&, WebExchange&);
    using ModelHandler = WebResponse (ModelService::*)(const WebRequest&, WebExchange&);
    const char* method;
    const char* path;
    const char* name;  // label in metrics and log
    Handler handler = nullptr;
    ModelHandler of_model = nullptr;
    bool takes_rest = false;          // also path + "/..."
    const ApiDialect* api = nullptr;  // in routes() never null
    bool needs_model() const { return handler == nullptr; }
    bool makes_sequences() const { return handler == nullptr && of_model == nullptr; }
  };
  // The route of a path, and the methods that the path takes. Null: there is no such path; of one that does not take
  // the request's method: any of the path's routes.
  struct Found {
    const Route* route = nullptr;
    std::string methods = {};
  };
  // A model that is served, loaded or not.
  struct ListedModel {
    ModelInfo info;
    std::vector<std::string> names, capabilities;
    bool is_loaded = true;
    std::vector<std::string> tags = {};
  };
  // What choose_model() comes to.
  struct Choice {
    std::optional<ApiError> refusal = std::nullopt;
    bool must_load = false;
  };
  static std::span<const Route> handled_routes();  // those that are no API's own
  static const std::vector<Route>& routes();       // of all paths but the page's
  static Found find_route(const WebRequest& request);
  ModelService& service_of(const std::shared_ptr<ModelUse>& model) { return model ? *model->service : model_; }

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
  bool allowed_origin(const WebRequest& request) const;
  void add_cors(const WebRequest& request, WebResponse& response) const;

  // choose_model()'s parts: which model the request names, and what becomes of it there.
  Choice name_model(Fleet& fleet, WebRequest& request, const WebExchange& exchange, const Route& route);
  Choice check_named(Fleet& fleet, WebRequest& request, const WebExchange& exchange, const Route& route, Json body);
  // Whether the model is unloaded after its last use.
  bool let_go(Fleet& fleet, const WebRequest& request) const;
  static const std::string* model_of_instances(const Json& body);  // that the first one names; null: none

  WebResponse dispatch(const WebRequest& request, WebExchange& exchange, std::function<void()> wake, Effort effort);
  WebResponse predict(const WebRequest& request, WebExchange& exchange, const std::function<void()>& wake);
  // The response, or a refusal where there is no memory for it.
  WebResponse counted(WebResponse response, WebExchange& exchange);
  std::string new_request_id();
  void write(const RequestLine& line);
  std::string_view health_word() const;
  EngineStats stats() const;  // of all models
  std::vector<ListedModel> listed() const;

  WebResponse health(const WebRequest& request, WebExchange& exchange);
  WebResponse version(const WebRequest& request, WebExchange& exchange);
  WebResponse models(const WebRequest& request, WebExchange& exchange);
  WebResponse change_model(const WebRequest& request, WebExchange& exchange);
  WebResponse change_adapter(const WebRequest& request, WebExchange& exchange);
  WebResponse lora_adapters(const WebRequest& request, WebExchange& exchange);
  WebResponse response_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse response_input(const WebRequest& request, WebExchange& exchange);
  WebResponse delete_response(const WebRequest& request, WebExchange& exchange);
  WebResponse cancel_response(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_tags(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_version(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_manage(const WebRequest& request, WebExchange& exchange);
  WebResponse kv_event_sources(const WebRequest& request, WebExchange& exchange);
  WebResponse server_info(const WebRequest& request, WebExchange& exchange);
  WebResponse move_request(const WebRequest& request, WebExchange& exchange);
  WebResponse create_file(const WebRequest& request, WebExchange& exchange);
  WebResponse list_files(const WebRequest& request, WebExchange& exchange);
  WebResponse file_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse delete_file(const WebRequest& request, WebExchange& exchange);
  WebResponse file_content(const WebRequest& request, WebExchange& exchange);
  WebResponse create_batch(const WebRequest& request, WebExchange& exchange);
  WebResponse list_batches(const WebRequest& request, WebExchange& exchange);
  WebResponse batch_by_id(const WebRequest& request, WebExchange& exchange);
  WebResponse cancel_batch(const WebRequest& request, WebExchange& exchange);
  WebResponse metrics_text(const WebRequest& request, WebExchange& exchange);
  WebResponse openapi(const WebRequest& request, WebExchange& exchange);
  WebResponse page(const WebRequest& request, WebExchange& exchange);

  const ServerOptions options_;
  const ApiKeys keys_;
  HostCheck hosts_;
  RequestLog& log_;
  ServerState state_;
  ModelService model_;                   // the one; without a backend until it is loaded, and where there is a fleet
  std::atomic<Fleet*> fleet_ = nullptr;  // null: there is one model
  Batches* batches_ = nullptr;           // null: none are served
  SpanSender* spans_ = nullptr;          // null: none are sent
  std::atomic<bool> draining_ = false;
  std::atomic<int64_t> connections_ = 0, body_bytes_ = 0;
  std::atomic<uint64_t> n_requests_ = 0;
  std::atomic<int64_t> n_gone_ = 0;
  const uint64_t id_prefix_;
  const double started_;
};

}  // namespace ibid
