// ModelService: one model's part of the server: reads the bodies of requests that are for the model, builds sequences
// of them, submits those to its engine, and answers what the model alone is asked (tokens, templates, slots). It knows
// no other model, no path and no socket; the FrontDoor has checked who asks, and ends each exchange.
//
// Threads: every function is safe from any thread; an exchange belongs to one at a time. A caller of one that needs
// the model (all but those marked) holds it: the one model's backend is never dropped, and one of several is held by a
// ModelUse. Ownership: the state and the backend outlive the service's use of them. Errors: a refusal is a response or
// an ApiError whose status HTTP has; what throws is std::bad_alloc alone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/dialects/dialects.h"
#include "server/observe/live_view.h"
#include "server/request/backend.h"
#include "server/request/mailbox.h"
#include "server/request/options.h"
#include "server/routes/server_state.h"
#include "server/routes/web_exchange.h"
#include "server/wire/web_message.h"

namespace ibid {

class ModelService {
 public:
  // `may_unload`: a client may ask for it.
  ModelService(const ServerOptions& options, ServerState& state, bool may_unload);

  // The model is there; start()s the backend.
  void set_backend(Backend* backend);
  void drop_backend() { backend_ = nullptr; }  // nothing uses it any more
  // Null: the model is not loaded. Needs no model.
  const Backend* backend() const { return backend_; }
  // From now on nothing new begins. Needs no model.
  void set_draining() { draining_ = true; }
  std::vector<std::string> names() const;             // its own first
  std::vector<std::string> capabilities() const;      // as Ollama names them
  size_t n_active() const { return router_.size(); }  // sequences under way; needs no model
  double now() const;                                 // on the backend's clock, or the steady one; needs no model

  // The faults in a body that generate() would find, as far as that needs no model; `makes_sequences`: it goes there.
  // Needs no model: `model` is what is known of it.
  std::optional<ApiError> fault_in_body(const WebRequest& request, const WebExchange& exchange, bool makes_sequences,
                                        Json body, const ModelInfo& model);
  // A body of any API in the words of ours. `tokenizer`: null where the model is not loaded; then of bodies that
  // reads_unloaded(), and needs no model.
  Result<DialectBody> read_dialect(const WebExchange& exchange, Json body, const ModelInfo& model,
                                   const Tokenizer* tokenizer);
  // Begins the exchange's generation, or returns what refuses it, or puts it off. `wake` is called on the engine's
  // thread when the mailbox has something.
  WebResponse generate(const WebRequest& request, WebExchange& exchange, std::function<void()> wake, Effort effort);
  // Of an exchange with a generation: moves what the mailbox has into it, and submits the next of its sequences.
  void collect(WebExchange& exchange);
  // Asks the engine to end it.
  void cancel(const WebExchange& exchange);
  // The same, whatever its state, and forgets it; never fails.
  void abandon(const WebExchange& exchange);

  // Routes that answer at once.
  WebResponse response_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse chat_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse count_tokens(const WebRequest& request, WebExchange& exchange);
  WebResponse tokenize(const WebRequest& request, WebExchange& exchange);
  WebResponse detokenize(const WebRequest& request, WebExchange& exchange);
  WebResponse apply_template(const WebRequest& request, WebExchange& exchange);
  WebResponse tokenizer_info(const WebRequest& request, WebExchange& exchange);
  WebResponse ollama_show(const WebRequest& request, WebExchange& exchange);
  WebResponse props(const WebRequest& request, WebExchange& exchange);
  WebResponse slots(const WebRequest& request, WebExchange& exchange);
  WebResponse load(const WebRequest& request, WebExchange& exchange);
  WebResponse engine_view(const WebRequest& request, WebExchange& exchange);

 private:
  struct Asked;  // a request on its way to the engine
  // The request in such a body, of which it takes what is large.
  Result<ApiRequest> read_request(const ApiDialect& api, DialectBody& own, const ModelInfo& model,
                                  const Tokenizer* tokenizer) const;
  // The name by which who asks for `asked` is answered, and the adapter that it means (null: none).
  Result<std::string> answering(const std::string& asked, std::shared_ptr<const PlacedAdapter>& adapter) const;
  // generate()'s parts, in their order. Each refusal is the first that holds.
  Status read(const WebRequest& request, WebExchange& exchange, Asked& asked);
  Status take_fetched(const WebRequest& request, WebExchange& exchange, Asked& asked) const;
  std::optional<ApiError> admit(WebExchange& exchange, Asked& asked);
  std::optional<ApiError> build(const WebRequest& request, WebExchange& exchange, Asked& asked);
  Status resume(Asked& asked) const;
  bool may_move(const Asked& asked, const ApiDialect& api) const;
  void add_movable(const WebRequest& request, const WebExchange& exchange, const Asked& asked);
  Status go_on(const MovableRequest& movable, const std::string& body);
  void describe(const WebRequest& request, const WebExchange& exchange, Asked& asked);
  std::optional<ApiError> begin(const WebRequest& request, WebExchange& exchange, Asked& asked,
                                std::function<void()> wake);
  static int64_t sequences_of(const ApiRequest& api);  // that its choices, prompts and conversations come to
  Status submit(std::span<Request> requests, const std::shared_ptr<Mailbox>& mailbox);
  void submit_held(WebExchange& exchange);
  int64_t texts_at_once(const std::string& tenant) const;
  void cancel(RequestId id);

  const ServerOptions options_;
  ServerState& state_;
  const bool may_unload_;
  OutputRouter router_;
  FimTokens fim_;  // of the backend's model
  LiveView live_;
  std::atomic<Backend*> backend_ = nullptr;
  std::atomic<bool> draining_ = false;
  const uint64_t id_prefix_;
};

}  // namespace ibid
