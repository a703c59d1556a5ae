#include "server/server.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/caught.h"
#include "base/log.h"
#include "server/backend.h"
#include "server/batches.h"
#include "server/fleet.h"
#include "server/host_check.h"
#include "server/http_server.h"

namespace ibid {
namespace {

int fail(const std::string& sentence, int code) {
  std::fprintf(stderr, "ibid: %s\n", sentence.c_str());
  return code;
}

// Each source of keys has one at least: one that has none was to protect something.
Result<ApiKeys> read_keys(const ServerOptions& options) {
  std::string text;  // the file first, so that a sentence about a line tells the file's
  // Whoever tries keys here is on this machine, where keys tell tenants apart.
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
  // A wake that nobody waited for any more would end the process once it is let through.
  ~Signals() {
    sigset_t wake;
    sigemptyset(&wake);
    sigaddset(&wake, kWake);
    const timespec now = {};
    sigtimedwait(&wake, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  // From any thread that ends before this does: whoever waits in came_within() looks up at once.
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

// `load`: of the one model; null where there is a fleet of them.
Result<int> serve_until_stopped(const ServerOptions& options, const LoadBackend& load, FleetOptions several) {
  // Without a log file there is none to reopen, and a server that a terminal shows its log goes with that terminal.
  Signals signals(options.log_file.empty() && (isatty(STDERR_FILENO) || isatty(STDIN_FILENO)));
  Result<std::unique_ptr<RequestLog>> log = RequestLog::open(options.log_file, options.log_json, options.log_requests);
  if (!log) return fail(log.error().message, kServeBadOptions);
  const LogTo to([&log](LogLevel level, std::string_view sentence) {
    level == LogLevel::kWarning ? (*log)->warn(sentence) : (*log)->say(sentence);
  });
  const auto fail = [&log](const std::string& sentence, int code) {
    (*log)->say_end(sentence);
    return ibid::fail(sentence, code);
  };
  Result<ApiKeys> keys = read_keys(options);
  if (!keys) return fail(keys.error().message, kServeBadOptions);
  const bool has_keys = !keys->empty();

  std::unique_ptr<SpanSender> spans;  // outlives who sends
  if (!options.otlp_url.empty()) {
    Result<std::unique_ptr<SpanSender>> made = SpanSender::create(options.otlp_url);
    if (!made) return fail(made.error().message, kServeBadOptions);
    spans = *std::move(made);
  }
  Service service(options, *std::move(keys), **log);
  service.send_spans(spans.get());
  (*log)->on_lost([&service] { service.metrics().add_log_line_lost(); });
  std::unique_ptr<Batches> batches;
  if (!options.files_folder.empty()) {
    Result<std::unique_ptr<Batches>> opened =
        Batches::open(options.files_folder, options.max_files_bytes, static_cast<size_t>(options.max_body_bytes));
    if (!opened) return fail(opened.error().message, kServeBadOptions);
    batches = *std::move(opened);
    service.set_batches(batches.get());
  }
  std::unique_ptr<Fleet> fleet;
  if (!load) fleet = std::make_unique<Fleet>(std::move(several), service);
  HttpServer http(options, service, **log);
  if (Status status = http.listen(); !status) {
    const ErrorKind kind = status.error().kind;
    return fail(status.error().message, kind == ErrorKind::kExhausted ? kServePortInUse
                                        : kind == ErrorKind::kInvalid ? kServeBadOptions
                                                                      : kServeFailed);
  }
  const std::string host = options.host.find(':') != std::string::npos ? "[" + options.host + "]" : options.host;
  const std::string scheme = options.tls_certificate_file.empty() ? "http://" : "https://";
  const std::string place = options.unix_socket.empty() ? host + ":" + std::to_string(http.port()) : "localhost";
  const std::string url = scheme + place + options.root_path;
  if (!(*log)->say("Loading the model; " + url + "/health says when it is ready.")) {
    return fail("The log cannot be written (is the disk full?); free some space or choose another --log-file.",
                kServeFailed);
  }
  http.start();

  std::atomic<bool> loaded = false;
  Result<std::unique_ptr<Backend>> backend = std::unique_ptr<Backend>();
  Status first;  // of the fleet's first
  std::jthread loader([&] {
    if (fleet) {
      first = caught([&]() -> Status {
        const auto use = fleet->load(fleet->model_for(""));
        return use ? Status() : Status(use.error());
      });
    } else {
      backend = caught(load);
    }
    loaded = true;
    signals.wake();
  });
  while (!loaded) {
    if (!signals.came_within(1000, **log)) continue;
    (*log)->say("Ended while the model was loading.");
    std::_Exit(kServeOk);
  }
  loader.join();
  if (!backend || !first) {
    http.stop();
    return fail(first ? backend.error().message : first.error().message, kServeModelFailed);
  }
  const auto start_engine = [&]() -> Status {
    fleet ? service.set_fleet(fleet.get()) : service.set_backend(backend->get());
    return {};
  };
  if (Status status = caught(start_engine); !status) {
    http.stop();
    return fail(status.error().message, kServeModelFailed);
  }
  if (batches) batches->start(service);
  std::string model = fleet ? "" : (*backend)->model().name;
  if (fleet) {
    for (const FleetFacts& facts : fleet->facts()) model += (model.empty() ? "" : ", ") + facts.name;
  }
  for (const std::string& alias : options.aliases) model += ", " + alias;
  (*log)->say("Serving " + model + " on " + url + (options.page ? " (page and API)" : " (API)") +
              (has_keys ? ", with API keys." : "."));
  if (!is_loopback(options.host)) {
    (*log)->say(has_keys ? "Other machines can reach this server."
                         : "Other machines can reach this server, and it asks for no key: see --api-key-file.");
  }

  while (!signals.came_within(1000, **log)) {
  }
  (*log)->say("Draining: no new requests; what runs has " + std::to_string(static_cast<int>(options.drain_timeout)) +
              " s to end.");
  service.set_draining();
  http.drain();
  const double deadline = steady_clock().now() + options.drain_timeout;
  while (http.n_connections() > 0 && steady_clock().now() < deadline) {
    if (signals.came_within(20, **log)) end_at_once(**log);
  }
  if (http.n_connections() > 0) {
    http.cancel_all();
    for (int i = 0; i < 100 && http.n_connections() > 0; ++i) {
      if (signals.came_within(20, **log)) end_at_once(**log);
    }
  }
  if (batches) batches->stop();
  if (fleet) fleet->join();  // what it does ends in connections
  http.stop();
  if (*backend) (*backend)->stop();
  (*log)->say("Ended.");
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
