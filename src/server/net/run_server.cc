#include "server/net/server.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

#include "base/caught.h"
#include "base/log.h"
#include "server/access/host_check.h"
#include "server/net/http_server.h"
#include "server/request/backend.h"
#include "server/routes/batches.h"
#include "server/routes/fleet.h"
#include "server/routes/request_mover.h"

namespace ibid {
namespace {

int fail(const std::string& sentence, int code) {
  std::fprintf(stderr, "ibid: %s\n", sentence.c_str());
  return code;
}

// Each source of keys has one at least: one that has none was to protect something.
Result<ApiKeys> read_keys(const ServerOptions& options) {
  std::string text;  // the file first, so that a sentence about a line has the file's number
  // A client that tries keys here is on this machine, where keys only distinguish tenants.
  const size_t min_len = is_loopback(options.host) ? 1 : ApiKeys::kMinLen;
  if (!options.api_key_file.empty()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(options.api_key_file, ignored)) {
      return invalid(
          "The file of API keys, " + options.api_key_file + ", is a folder; give a file with one key a line.",
          "api-key-file");
    }
    std::ifstream file(options.api_key_file, std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    if (!file || content.bad())
      return invalid("The file of API keys, " + options.api_key_file + ", cannot be read.", "api-key-file");
    text = content.str() + "\n";
    if (!ApiKeys::has_lines(text)) {
      return invalid("--api-key-file names a file without keys, " + options.api_key_file +
                         ": blank lines and those that begin with # are none; write one a line, as KEY or TENANT:KEY.",
                     "api-key-file");
    }
  }
  for (const std::string& key : options.api_keys) {
    if (!ApiKeys::has_lines(key))
      return invalid("--api-key is given no key: it is blank, or begins with #; give KEY or TENANT:KEY.", "api-key");
    text += key + "\n";
  }
  if (options.api_keys.empty() && options.api_key_file.empty()) return ApiKeys();
  return ApiKeys::parse(text, min_len);
}

// SIGTERM, SIGINT and SIGHUP, taken by the thread that asks; all others have them blocked.
class Signals {
 public:
  // `ends_with_terminal`: SIGHUP ends the server too. Else it makes the log reopen its file.
  explicit Signals(bool ends_with_terminal) : ends_with_terminal_(ends_with_terminal) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a log that may not grow loses lines, as on a full disk
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGHUP);
    sigaddset(&set_, kWake);
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  // A pending wake would end the process once it is let through.
  ~Signals() {
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, kWake);
    const timespec now = {};
    sigtimedwait(&wake, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  // From any thread that ends before this does: came_within() returns at once.
  void wake() const { pthread_kill(owner_, kWake); }
  // Whether the server is to end. May return early where it is not. Of the thread that made it.
  bool came_within(int milliseconds, RequestLog& log) {
    const timespec time = {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    const int signal = sigtimedwait(&set_, nullptr, &time);
    if (signal == kWake) return false;
    if (signal != SIGHUP || ends_with_terminal_) return signal > 0;
    if (const Status status = log.reopen(); !status) log.say(status.error().message + " The old one goes on.");
    return false;
  }

 private:
  static constexpr int kWake = SIGUSR2;
  const pthread_t owner_ = pthread_self();
  bool ends_with_terminal_;
  sigset_t set_, old_;
};

[[noreturn]] void end_at_once(RequestLog& log) {
  log.say("Ended at once by a second signal.");
  std::_Exit(kServeForced);
}

// A server's parts, in the order in which they are made; they end in the opposite one. Of the thread that made it. Each
// step returns the exit code where it ends the server.
class Serving {
 public:
  // `load`: of the one model; null where there is a fleet of them.
  Serving(const ServerOptions& options, const LoadBackend& load, FleetOptions several)
      : options_(options),
        load_(load),
        several_(std::move(several)),
        // Without a log file there is none to reopen, and a server that a terminal shows its log goes with that
        // terminal.
        signals_(options.log_file.empty() && (isatty(STDERR_FILENO) || isatty(STDIN_FILENO))) {}

  std::optional<int> open();
  std::optional<int> listen();
  std::optional<int> load();
  std::optional<int> start();
  void wait() {
    while (!signals_.came_within(1000, *log_)) {
    }
  }
  void drain();

 private:
  int fail(const std::string& sentence, int code) {
    log_->say_end(sentence);
    return ibid::fail(sentence, code);
  }
  void announce();
  void wait_for_connections(const std::function<bool()>& is_late);

  const ServerOptions& options_;
  const LoadBackend& load_;
  FleetOptions several_;
  Signals signals_;
  std::unique_ptr<RequestLog> log_;
  std::optional<LogTo> log_to_;
  bool has_keys_ = false;
  std::unique_ptr<SpanSender> spans_;  // outlives who sends
  std::unique_ptr<FrontDoor> front_;
  std::unique_ptr<Batches> batches_;  // null: none are served
  std::unique_ptr<Fleet> fleet_;      // null: there is one model
  std::unique_ptr<HttpServer> http_;
  std::string url_;
  std::unique_ptr<Backend> backend_;     // of the one model
  std::unique_ptr<RequestMover> mover_;  // null: nothing is moved
};

std::optional<int> Serving::open() {
  Result<std::unique_ptr<RequestLog>> log =
      RequestLog::open(options_.log_file, options_.log_json, options_.log_requests);
  if (!log) return ibid::fail(log.error().message, kServeBadOptions);
  log_ = *std::move(log);
  log_to_.emplace([this](LogLevel level, std::string_view sentence) {
    level == LogLevel::kWarning ? log_->warn(sentence) : log_->say(sentence);
  });
  Result<ApiKeys> keys = read_keys(options_);
  if (!keys) return fail(keys.error().message, kServeBadOptions);
  has_keys_ = !keys->empty();
  if (!options_.otlp_url.empty()) {
    Result<std::unique_ptr<SpanSender>> made = SpanSender::create(options_.otlp_url);
    if (!made) return fail(made.error().message, kServeBadOptions);
    spans_ = *std::move(made);
  }
  if (!options_.drain_to.empty()) {
    if (const Status status = RequestMover::check(options_.drain_to); !status)
      return fail("--drain-to: " + status.error().message, kServeBadOptions);
  }
  front_ = std::make_unique<FrontDoor>(options_, *std::move(keys), *log_);
  front_->send_spans(spans_.get());
  log_->on_lost([this] { front_->metrics().add_log_line_lost(); });
  if (!options_.files_folder.empty()) {
    Result<std::unique_ptr<Batches>> opened =
        Batches::open(options_.files_folder, options_.max_files_bytes, static_cast<size_t>(options_.max_body_bytes));
    if (!opened) return fail(opened.error().message, kServeBadOptions);
    batches_ = *std::move(opened);
    front_->set_batches(batches_.get());
  }
  if (!load_) fleet_ = std::make_unique<Fleet>(std::move(several_), *front_);
  http_ = std::make_unique<HttpServer>(options_, *front_, *log_);
  return std::nullopt;
}

std::optional<int> Serving::listen() {
  if (const Status status = http_->listen(); !status) {
    const ErrorKind kind = status.error().kind;
    return fail(status.error().message, kind == ErrorKind::kExhausted ? kServePortInUse
                                        : kind == ErrorKind::kInvalid ? kServeBadOptions
                                                                      : kServeFailed);
  }
  const std::string host = options_.host.find(':') != std::string::npos ? "[" + options_.host + "]" : options_.host;
  const std::string scheme = options_.tls_certificate_file.empty() ? "http://" : "https://";
  const std::string place = options_.unix_socket.empty() ? host + ":" + std::to_string(http_->port()) : "localhost";
  url_ = scheme + place + options_.root_path;
  if (!log_->say("Loading the model; " + url_ + "/health reports when it is ready.")) {
    return fail("The log cannot be written (is the disk full?); free some space or choose another --log-file.",
                kServeFailed);
  }
  http_->start();
  return std::nullopt;
}

// The one model, or the fleet's first, while /health already answers.
std::optional<int> Serving::load() {
  std::atomic<bool> is_loaded = false;
  Result<std::unique_ptr<Backend>> backend = std::unique_ptr<Backend>();
  Status first;  // of the fleet's first
  std::jthread loader([&] {
    if (fleet_) {
      first = caught([&]() -> Status {
        const auto use = fleet_->load(fleet_->model_for(""));
        return use ? Status() : Status(use.error());
      });
    } else {
      backend = caught(load_);
    }
    is_loaded = true;
    signals_.wake();
  });
  while (!is_loaded) {
    if (!signals_.came_within(1000, *log_)) continue;
    log_->say("Ended while the model was loading.");
    std::_Exit(kServeOk);
  }
  loader.join();
  if (!backend || !first) {
    http_->stop();
    return fail(first ? backend.error().message : first.error().message, kServeModelFailed);
  }
  backend_ = *std::move(backend);
  return std::nullopt;
}

std::optional<int> Serving::start() {
  const auto start_engine = [&]() -> Status {
    fleet_ ? front_->set_fleet(fleet_.get()) : front_->set_backend(backend_.get());
    return {};
  };
  if (const Status status = caught(start_engine); !status) {
    http_->stop();
    return fail(status.error().message, kServeModelFailed);
  }
  if (batches_) batches_->start(*front_);
  announce();
  return std::nullopt;
}

void Serving::announce() {
  std::string model = fleet_ ? "" : backend_->model().name;
  if (fleet_) {
    for (const FleetFacts& facts : fleet_->facts()) model += (model.empty() ? "" : ", ") + facts.name;
  }
  for (const std::string& alias : options_.aliases) model += ", " + alias;
  log_->say("Serving " + model + " on " + url_ + (options_.page ? " (page and API)" : " (API)") +
            (has_keys_ ? ", with API keys." : "."));
  if (!is_loopback(options_.host)) {
    log_->say(has_keys_ ? "Other machines can reach this server."
                        : "Other machines can reach this server, and it asks for no key: see --api-key-file.");
  }
}

// Until there are none, or `is_late`. A second signal ends the process.
void Serving::wait_for_connections(const std::function<bool()>& is_late) {
  while (http_->n_connections() > 0 && !is_late()) {
    if (signals_.came_within(20, *log_)) end_at_once(*log_);
  }
}

void Serving::drain() {
  log_->say("Draining: no new requests; what runs has " + std::to_string(static_cast<int>(options_.drain_timeout)) +
            " s to end.");
  front_->set_draining();
  http_->drain();
  const double deadline = steady_clock().now() + options_.drain_timeout;
  if (!options_.drain_to.empty()) {
    log_->say("Moving what runs to " + options_.drain_to + ".");
    mover_ = std::make_unique<RequestMover>(options_.drain_to, options_.api.json, front_->movable(), *log_);
  } else if (const int n = front_->movable().end_resumable(); n > 0) {
    log_->say("Ended " + std::to_string(n) + " answers that their clients can resume elsewhere.");
  }
  wait_for_connections([&] { return steady_clock().now() >= deadline; });
  if (http_->n_connections() > 0) front_->movable().end_resumable();
  mover_ = nullptr;
  if (http_->n_connections() > 0) {
    http_->cancel_all();
    int n_waits = 0;
    wait_for_connections([&] { return ++n_waits > 100; });
  }
  if (batches_) batches_->stop();
  if (fleet_) fleet_->join();  // what it does ends in connections
  http_->stop();
  if (backend_) backend_->stop();
  log_->say("Ended.");
}

Result<int> serve_until_stopped(const ServerOptions& options, const LoadBackend& load, FleetOptions several) {
  Serving serving(options, load, std::move(several));
  using Step = std::optional<int> (Serving::*)();
  for (const Step step : {&Serving::open, &Serving::listen, &Serving::load, &Serving::start}) {
    if (const std::optional<int> code = (serving.*step)()) return int{*code};
  }
  serving.wait();
  serving.drain();
  return int{kServeOk};
}

}  // namespace

int run_server(const ServerOptions& options, const LoadBackend& load) {
  const Result<int> code = caught([&] { return serve_until_stopped(options, load, {}); });
  return code ? *code : fail(code.error().message, kServeFailed);
}

int run_fleet(const ServerOptions& options, FleetOptions fleet) {
  const Result<int> code = caught([&] { return serve_until_stopped(options, nullptr, std::move(fleet)); });
  return code ? *code : fail(code.error().message, kServeFailed);
}

}  // namespace ibid
