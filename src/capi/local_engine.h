// LocalEngine: the server's routes without sockets, for the C library (include/ibid.h). A request is a path and a body;
// its answer is pulled, or brought by the engine's dispatcher, a thread that calls callbacks.
//
// Threads: every function is safe from any thread. Ownership: a LocalRequest holds its engine's parts, and may be used
// after close(). Errors: a LocalError; what throws is std::bad_alloc alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include "base/result.h"
#include "server/request/backend.h"
#include "server/routes/front_door.h"

namespace ibid::capi {

// What ended a request, or kept it from beginning.
struct LocalError {
  int status = 500;  // as the server would have answered; 0: the engine was closed
  std::string message, field;
  std::string json;  // the body of that answer
};

class LocalRequest;
class CallersProcessor;  // local_engine.cc

// Where a request is woken: by the engine's thread, which must not wait and must not end requests.
class Bell {
 public:
  void ring();
  // Whether it has rung since the last time; waits for that until `deadline`, none: without end.
  bool wait_until(const std::optional<std::chrono::steady_clock::time_point>& deadline);

 private:
  friend class LocalEngine;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_rung_ = false;
  std::function<void()> also_;  // of a request with a callback; set before the first ring
};

// The thread that calls callbacks.
class Dispatcher {
 public:
  ~Dispatcher() { stop(); }
  void start();  // before the first push; more is nothing
  void push(std::weak_ptr<LocalRequest> request);
  void stop();  // not from its own thread
  bool is_this_thread() const;

 private:
  void run();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::weak_ptr<LocalRequest>> ready_;
  bool is_stopping_ = false;
  std::thread thread_;
};

class LocalEngine : public std::enable_shared_from_this<LocalEngine> {
 public:
  using Submitted = std::variant<std::shared_ptr<LocalRequest>, LocalError>;
  // Called with each part of an answer, and last with null: the request has ended, with `error` or without.
  using OnPart = std::function<void(const std::string* part, const LocalError* error)>;

  // `options` is JSON, as cli/options/named_options.h reads it.
  static Result<std::shared_ptr<LocalEngine>> open(std::string_view options);
  // Of a backend that is there, for tests.
  static std::shared_ptr<LocalEngine> of_backend(std::unique_ptr<Backend> backend, const ServerOptions& options,
                                                 std::unique_ptr<RequestLog> log);
  ~LocalEngine();

  // Changes `logits` in place; false ends the answer with an error.
  using OnLogits =
      std::function<bool(std::span<const TokenId> prompt, std::span<const TokenId> answer, std::span<float> logits)>;

  // `body` null: a GET. `on_logits` null: the model's own logits; else called before each draw of the request's
  // answers, one call at a time, on the engine's threads, until the request has ended or been silenced.
  Submitted submit(std::string_view path, const std::string_view* body, OnPart on_part, OnLogits on_logits = nullptr);
  void close();  // not from a callback
  bool is_callback_thread() const { return dispatcher_.is_this_thread(); }
  bool is_of_this_process() const;

 private:
  friend class LocalRequest;
  LocalEngine(std::unique_ptr<Backend> backend, const ServerOptions& options, std::unique_ptr<RequestLog> log);

  const ServerOptions options_;
  const int pid_;
  bool is_counted_ = false;  // among the engines of the process
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<RequestLog> log_;
  std::unique_ptr<FrontDoor> front_;
  std::mutex mutex_;
  std::set<LocalRequest*> requests_;  // that have not been freed
  bool is_closed_ = false;
  Dispatcher dispatcher_;
};

class LocalRequest : public std::enable_shared_from_this<LocalRequest> {
 public:
  LocalRequest(std::shared_ptr<LocalEngine> engine, std::shared_ptr<Bell> bell, WebExchange exchange,
               LocalEngine::OnPart on_part, std::shared_ptr<CallersProcessor> processor);
  ~LocalRequest();

  struct Next {
    enum class Kind { kPart, kEnd, kError, kPending };
    Kind kind = Kind::kPending;
    std::string part;
    LocalError error;
  };
  // The next part within so many milliseconds; negative: without end. Not of a request with a callback.
  Next next(int64_t timeout_ms);
  void cancel();
  bool is_stream();  // while it runs
  // No callback runs or follows after this returns, nor is the processor called, but the one that it is called from.
  void silence();
  bool has_callback() const { return on_part_ != nullptr; }
  const LocalEngine& engine() const { return *engine_; }

 private:
  friend class LocalEngine;
  friend class Dispatcher;
  void pump();                  // with mutex_ held: what there is becomes parts
  void end(const Abort* cut);   // likewise
  void fail(LocalError error);  // likewise
  void take_events(std::string_view events);
  void close();    // the engine's
  void deliver();  // on the dispatcher's thread
  void lose();     // where there was no memory for that

  const std::shared_ptr<LocalEngine> engine_;
  const std::shared_ptr<Bell> bell_;
  const LocalEngine::OnPart on_part_;
  const std::shared_ptr<CallersProcessor> processor_;  // may be null
  std::mutex mutex_;
  WebExchange exchange_;
  std::deque<std::string> parts_;
  std::optional<LocalError> error_;
  bool has_ended_ = false;
  bool is_cancelled_ = false;
  std::recursive_mutex calling_;  // while a callback runs
  bool is_silent_ = false;        // guarded by calling_
  bool has_told_end_ = false;     // likewise
};

}  // namespace ibid::capi
