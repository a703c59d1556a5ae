#include "capi/local_engine.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/caught.h"
#include "base/json.h"
#include "base/thread_name.h"
#include "cli/load_backend.h"
#include "cli/options/named_options.h"
#include "kernels/isa.h"
#include "sample/logits_processor.h"
#include "server/wire/api_error.h"

namespace ibid::capi {
namespace {

// Models are loaded one after the other, and those that run beside each other are packed for one instruction set
// (host/host.h).
struct Process {
  std::mutex mutex;
  int n_open = 0;
};
Process& process() {
  static Process one;
  return one;
}

Status use_isa_of_process(cli::ServeOptions& options) {
  if (process().n_open == 0) return {};
  if (options.model.isa && *options.model.isa != selected_isa())
    return invalid("engines of one process have one instruction set, and it is " +
                       std::string(isa_name(selected_isa())) + " while another engine is open",
                   "cpu-isa");
  options.model.isa = selected_isa();
  return {};
}

LocalError error_of(const WebResponse& response) {
  LocalError out{.status = response.status, .message = "The request was refused.", .json = response.body};
  if (response.error != nullptr) {
    out.message = response.error->message;
    out.field = response.error->param;
    return out;
  }
  // Of an answer that failed on its way, there is only the body.
  const Result<Json> body = parse_json(response.body);
  const Json* error = body ? body->find("error") : nullptr;
  const Json* message = error != nullptr && error->object() != nullptr ? error->find("message") : error;
  if (message != nullptr && message->string() != nullptr) out.message = *message->string();
  return out;
}

LocalError closed() { return {.status = 0, .message = "The engine was closed.", .json = ""}; }

LocalError error_of(const ApiError& error) { return error_of(error_response(error)); }

bool is_answered(const WebExchange& exchange) { return !exchange.generation && exchange.instances.empty(); }

}  // namespace

// The engine may hold it for a step longer than the caller holds the request.
class CallersProcessor final : public LogitsProcessor {
 public:
  explicit CallersProcessor(LocalEngine::OnLogits on_logits) : on_logits_(std::move(on_logits)) {}
  Status process(std::span<const TokenId> prompt, std::span<const TokenId> answer, std::span<float> logits) override {
    const std::lock_guard lock(calling_);
    if (!is_silent_ && on_logits_(prompt, answer, logits)) return {};
    return invalid("The logits processor failed.");
  }
  void silence() {
    const std::lock_guard lock(calling_);
    is_silent_ = true;
  }

 private:
  const LocalEngine::OnLogits on_logits_;
  std::mutex calling_;
  bool is_silent_ = false;
};

// ---- Bell ----------------------------------------------------------------------------------------------------------

void Bell::ring() {
  {
    const std::lock_guard lock(mutex_);
    has_rung_ = true;
  }
  changed_.notify_all();
  if (also_) also_();
}

bool Bell::wait_until(const std::optional<std::chrono::steady_clock::time_point>& deadline) {
  std::unique_lock lock(mutex_);
  const auto has_rung = [this] { return has_rung_; };
  deadline ? static_cast<void>(changed_.wait_until(lock, *deadline, has_rung)) : changed_.wait(lock, has_rung);
  return std::exchange(has_rung_, false);
}

// ---- Dispatcher ----------------------------------------------------------------------------------------------------

void Dispatcher::start() {
  const std::lock_guard lock(mutex_);
  if (is_stopping_ || thread_.joinable()) return;
  thread_ = std::thread([this] {
    name_thread("ibid-callbacks");
    run();
  });
}

void Dispatcher::push(std::weak_ptr<LocalRequest> request) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  ready_.push_back(std::move(request));
  changed_.notify_one();
}

void Dispatcher::stop() {
  std::thread ended;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    ended = std::move(thread_);
    changed_.notify_one();
  }
  if (ended.joinable()) ended.join();
}

bool Dispatcher::is_this_thread() const {
  const std::lock_guard lock(mutex_);
  return thread_.get_id() == std::this_thread::get_id();
}

void Dispatcher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || !ready_.empty(); });
    if (ready_.empty()) return;  // what has rung before the end is delivered
    const std::weak_ptr<LocalRequest> next = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    if (const std::shared_ptr<LocalRequest> request = next.lock()) {
      try {
        request->deliver();
      } catch (const std::bad_alloc&) {
        request->lose();
        request->deliver();
      }
    }
    lock.lock();
  }
}

// ---- LocalEngine ---------------------------------------------------------------------------------------------------

Result<std::shared_ptr<LocalEngine>> LocalEngine::open(std::string_view text) {
  return caught([&]() -> Result<std::shared_ptr<LocalEngine>> {
    ASSIGN_OR_RETURN(cli::ServeOptions options, cli::read_named_options(text));
    ASSIGN_OR_RETURN(const cli::OneModel model, cli::one_model(options));
    options.model.model = model.typed;
    options.server.max_connections = 1;  // of which the plan of memory has a part for each
    options.server.page = false;
    if (options.server.log_file.empty()) options.server.log_requests = false;
    ASSIGN_OR_RETURN(options, cli::settled(options));
    ASSIGN_OR_RETURN(std::unique_ptr<RequestLog> log,
                     RequestLog::open(options.server.log_file, options.server.log_json, options.server.log_requests));
    const std::lock_guard lock(process().mutex);
    TRY(use_isa_of_process(options));
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, cli::load_backend(options, model.name, {}));
    std::shared_ptr<LocalEngine> engine = of_backend(std::move(backend), options.server, std::move(log));
    engine->is_counted_ = true;
    ++process().n_open;
    return engine;
  });
}

std::shared_ptr<LocalEngine> LocalEngine::of_backend(std::unique_ptr<Backend> backend, const ServerOptions& options,
                                                     std::unique_ptr<RequestLog> log) {
  std::shared_ptr<LocalEngine> engine(new LocalEngine(std::move(backend), options, std::move(log)));
  engine->front_->set_backend(engine->backend_.get());
  return engine;
}

LocalEngine::LocalEngine(std::unique_ptr<Backend> backend, const ServerOptions& options,
                         std::unique_ptr<RequestLog> log)
    : options_(options),
      pid_(getpid()),
      backend_(std::move(backend)),
      log_(std::move(log)),
      front_(std::make_unique<FrontDoor>(options_, ApiKeys(), *log_)) {}

LocalEngine::~LocalEngine() { close(); }

bool LocalEngine::is_of_this_process() const { return pid_ == getpid(); }

LocalEngine::Submitted LocalEngine::submit(std::string_view path, const std::string_view* body, OnPart on_part,
                                           OnLogits on_logits) {
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return closed();
  }
  if (body != nullptr && static_cast<int64_t>(body->size()) > options_.max_body_bytes)
    return error_of(ApiError{413, "The body is larger than --max-body-bytes allows.", "", "body_too_large"});
  WebRequest request;
  request.method = body != nullptr ? "POST" : "GET";
  request.target = path;
  if (body != nullptr) {
    request.headers = {{"content-type", "application/json"}};
    request.body = *body;
  }
  request.as_tenant = "";
  std::shared_ptr<CallersProcessor> processor;
  if (on_logits) request.processor = processor = std::make_shared<CallersProcessor>(std::move(on_logits));
  request.arrived = front_->now();
  if (on_part) dispatcher_.start();
  const auto bell = std::make_shared<Bell>();
  // A request that is refused never exists; one with a callback is found by its bell once it does.
  const auto found = std::make_shared<std::weak_ptr<LocalRequest>>();
  const auto found_mutex = std::make_shared<std::mutex>();
  if (on_part) {
    bell->also_ = [this, found, found_mutex] {
      std::weak_ptr<LocalRequest> one;
      {
        const std::lock_guard lock(*found_mutex);
        one = *found;
      }
      if (!one.expired()) dispatcher_.push(std::move(one));
    };
  }
  WebExchange exchange = front_->handle(request, [bell] { bell->ring(); });
  if (is_answered(exchange) && exchange.response.status != 200) {
    LocalError error = error_of(exchange.response);
    front_->finish(exchange, nullptr);
    return error;
  }
  auto made = std::make_shared<LocalRequest>(shared_from_this(), bell, std::move(exchange), std::move(on_part),
                                             std::move(processor));
  {
    const std::lock_guard lock(mutex_);
    requests_.insert(made.get());
    if (is_closed_) made->close();
  }
  {
    const std::lock_guard lock(*found_mutex);
    *found = made;
  }
  bell->ring();  // for what came meanwhile
  return made;
}

void LocalEngine::close() {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    front_->set_draining();
    for (LocalRequest* request : requests_) request->close();
  }
  dispatcher_.stop();  // when it has delivered the ends
  backend_->stop();
  if (!is_counted_) return;
  const std::lock_guard lock(process().mutex);
  --process().n_open;
}

// ---- LocalRequest --------------------------------------------------------------------------------------------------

LocalRequest::LocalRequest(std::shared_ptr<LocalEngine> engine, std::shared_ptr<Bell> bell, WebExchange exchange,
                           LocalEngine::OnPart on_part, std::shared_ptr<CallersProcessor> processor)
    : engine_(std::move(engine)),
      bell_(std::move(bell)),
      on_part_(std::move(on_part)),
      processor_(std::move(processor)),
      exchange_(std::move(exchange)) {}

LocalRequest::~LocalRequest() {
  {
    const std::lock_guard lock(engine_->mutex_);
    engine_->requests_.erase(this);
  }
  const std::lock_guard lock(mutex_);
  const Abort cause = Abort::kClientGone;
  if (!has_ended_) end(&cause);
}

LocalRequest::Next LocalRequest::next(int64_t timeout_ms) {
  std::optional<std::chrono::steady_clock::time_point> deadline;
  constexpr int64_t kLongest = int64_t{1000} * 3600 * 24 * 365;
  if (timeout_ms >= 0)
    deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::min(timeout_ms, kLongest));
  for (bool is_last = false;;) {
    {
      const std::lock_guard lock(mutex_);
      if (parts_.empty() && !has_ended_) pump();
      if (!parts_.empty()) {
        Next out{.kind = Next::Kind::kPart, .part = std::move(parts_.front()), .error = {}};
        parts_.pop_front();
        return out;
      }
      if (error_) return {.kind = Next::Kind::kError, .part = {}, .error = *error_};
      if (has_ended_) return {.kind = Next::Kind::kEnd, .part = {}, .error = {}};
    }
    if (is_last) return {};
    is_last = !bell_->wait_until(deadline);  // looks once more
  }
}

void LocalRequest::cancel() {
  const std::lock_guard lock(mutex_);
  if (has_ended_ || is_answered(exchange_)) return;
  is_cancelled_ = true;
  engine_->front_->cancel(exchange_);
}

bool LocalRequest::is_stream() {
  const std::lock_guard lock(mutex_);
  return exchange_.generation && exchange_.generation->info().asked.stream;
}

void LocalRequest::silence() {
  if (processor_ != nullptr) processor_->silence();
  const std::lock_guard lock(calling_);
  is_silent_ = true;
}

void LocalRequest::close() {
  {
    const std::lock_guard lock(mutex_);
    if (has_ended_) return;
    const Abort cause = Abort::kShutdown;
    end(&cause);
    error_ = closed();
  }
  bell_->ring();
}

void LocalRequest::end(const Abort* cut) {
  has_ended_ = true;
  engine_->front_->finish(exchange_, cut);
  exchange_ = {};
}

void LocalRequest::fail(LocalError error) {
  // The server's sentence is of one that shuts down.
  if (is_cancelled_ && error.status == 503) error.message = "The request was cancelled.";
  error_ = std::move(error);
  end(nullptr);
}

// "data: {...}\n\n" is an event, and so is a line of JSON alone; what is neither keeps the stream open, or ends it.
void LocalRequest::take_events(std::string_view events) {
  while (!events.empty()) {
    const size_t n = std::min(events.find('\n'), events.size());
    std::string_view line = events.substr(0, n);
    events.remove_prefix(std::min(n + 1, events.size()));
    if (line.starts_with("data: ")) line.remove_prefix(6);
    if (line.starts_with('{')) parts_.emplace_back(line);
  }
}

void LocalRequest::pump() {
  FrontDoor& front = *engine_->front_;
  const auto take_whole = [this](WebResponse& response) {
    if (response.status != 200) return fail(error_of(response));
    parts_.push_back(std::move(response.body));
    end(nullptr);
  };
  if (is_answered(exchange_)) return take_whole(exchange_.response);
  const auto has_lost = [](const WebExchange& exchange) { return exchange.mailbox && exchange.mailbox->lost(); };
  bool is_lost = has_lost(exchange_);
  for (const WebExchange& instance : exchange_.instances) is_lost |= has_lost(instance);
  if (is_lost) {
    const Abort cause = Abort::kNoMemory;
    error_ = error_of(ApiError::of(out_of_memory()));
    return end(&cause);
  }
  front.collect(exchange_);
  if (!exchange_.instances.empty()) {
    if (!FrontDoor::are_predicted(exchange_)) return;
    WebResponse response = FrontDoor::predictions(exchange_);
    return take_whole(response);
  }
  Generation& generation = *exchange_.generation;
  if (generation.info().asked.stream) {
    std::string events;
    generation.write_events(events);
    take_events(events);
    if (generation.done()) end(nullptr);
    return;
  }
  if (!generation.finished()) return;
  WebResponse response = generation.response();
  while (response.status == 200 && !generation.done()) generation.write_part(response.body);
  exchange_.response.status = response.status;
  take_whole(response);
}

// Once for each ring: what comes after its pump() rings again.
void LocalRequest::deliver() {
  std::deque<std::string> parts;
  std::optional<LocalError> error;
  bool has_ended = false;
  {
    const std::lock_guard lock(mutex_);
    if (!has_ended_) pump();
    parts = std::exchange(parts_, {});
    error = error_;
    has_ended = has_ended_;
  }
  const std::lock_guard lock(calling_);
  for (const std::string& part : parts) {
    if (is_silent_) return;
    on_part_(&part, nullptr);
  }
  if (is_silent_ || !has_ended || std::exchange(has_told_end_, true)) return;
  on_part_(nullptr, error ? &*error : nullptr);
}

void LocalRequest::lose() {
  const std::lock_guard lock(mutex_);
  const Abort cause = Abort::kNoMemory;
  if (!has_ended_) end(&cause);
  parts_.clear();
  error_ = LocalError{.status = 503};
  error_->message = out_of_memory().message;  // which allocates nothing
}

}  // namespace ibid::capi
