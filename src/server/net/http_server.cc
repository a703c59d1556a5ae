#include "server/net/http_server.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <thread>

#include "base/insist.h"
#include "base/quoted.h"
#include "base/thread_name.h"
#include "format/file_lock.h"
#include "server/net/http_session.h"
#include "server/net/tls_relay.h"

namespace ibid {

namespace net = boost::asio;
using tcp = net::ip::tcp;
using UnixProtocol = net::local::stream_protocol;
using Acceptor = net::basic_socket_acceptor<StreamProtocol>;
using boost::system::error_code;

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  State(const ServerOptions& options, FrontDoor& front, RequestLog& log)
      : shared(std::make_shared<HttpShared>(options, front, log, heavy)),
        acceptor(net::make_strand(io)),
        backoff(acceptor.get_executor()) {
    for (size_t i = 0; i < kStrands; ++i) strands.push_back(net::make_strand(io));
  }

  // Connections share strands that are made once: Asio (1.81) crashes when there is no memory to make one.
  static constexpr size_t kStrands = 64;

  static constexpr double kLogAgain = 60;  // seconds

  struct Waiting;
  void accept();
  bool on_accept(error_code ec, StreamSocket socket);
  bool take_place(const net::ip::address& address);
  void run();
  template <typename Action>
  void each(Action action);

  net::io_context io;
  FairQueue heavy{thread_seconds};
  std::shared_ptr<HttpShared> shared;
  std::unique_ptr<TlsIdentity> tls;  // null: connections are plain
  Acceptor acceptor;
  net::steady_timer backoff;
  std::vector<net::strand<net::io_context::executor_type>> strands;
  size_t n_accepted = 0;
  std::vector<std::thread> threads;
  int port = 0;
  std::optional<FileLock> socket_lock;    // of the path of options.unix_socket, as long as the file there is ours
  double exhaustion_logged = -kLogAgain;  // when
  std::atomic<bool> accept_lost = false;
};

namespace {

// Each connection is a descriptor.
void raise_descriptor_limit(int64_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto target = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(wanted));
  if (limit.rlim_cur >= target) return;
  limit.rlim_cur = target;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

HttpServer::HttpServer(const ServerOptions& options, FrontDoor& front, RequestLog& log)
    : state_(std::make_shared<State>(options, front, log)) {}

HttpServer::~HttpServer() { stop(); }

namespace {

// Of who connects over TCP; else the unspecified one.
net::ip::address address_of(const StreamSocket& socket) {
  error_code ignored;
  const StreamProtocol::endpoint peer = socket.remote_endpoint(ignored);
  tcp::endpoint endpoint;
  const int family = peer.data()->sa_family;
  if ((family != AF_INET && family != AF_INET6) || peer.size() > endpoint.capacity()) return {};
  std::memcpy(endpoint.data(), peer.data(), peer.size());
  endpoint.resize(peer.size());
  return endpoint.address();
}

Result<StreamProtocol::endpoint> tcp_endpoint(const ServerOptions& options) {
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  error_code ec;
  const net::ip::address address = net::ip::make_address(host, ec);
  if (ec)
    return invalid("The host \"" + options.host + "\" is no address; give one such as 127.0.0.1, 0.0.0.0 or ::1.",
                   "host");
  if (options.port < 0 || options.port > 65535)
    return invalid("The port " + std::to_string(options.port) + " must be from 0 to 65535.", "port");
  return StreamProtocol::endpoint(tcp::endpoint(address, static_cast<uint16_t>(options.port)));
}

// The socket of a server that was killed is removed; another's stays: one that answers, one that is about to (it has
// the lock beside it), or one that cannot be tested.
Result<StreamProtocol::endpoint> unix_endpoint(net::io_context& io, const std::string& path,
                                               std::optional<FileLock>& lock) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return invalid("The socket's path " + in_quotes(path) + " is too long; " +
                       std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes are the most.",
                   "--uds");
  const UnixProtocol::endpoint endpoint(path);
  struct stat found = {};
  if (::lstat(path.c_str(), &found) == 0 && !S_ISSOCK(found.st_mode))
    return invalid("There is a file at " + in_quotes(path) + " that is no socket.", "--uds");
  const std::string lock_path = path + ".lock";
  Result<FileLock> taken = FileLock::acquire(lock_path, [] { return false; });
  if (!taken && ::access(lock_path.c_str(), W_OK) == 0)
    return exhausted("Another server answers at " + in_quotes(path) + "; choose another path with --uds.", "--uds");
  if (!taken) return unavailable("The socket " + in_quotes(path) + " cannot be served: " + taken.error().message + ".");
  lock.emplace(*std::move(taken));
  if (::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) {
    UnixProtocol::socket other(io);
    error_code ec;
    other.connect(endpoint, ec);
    if (ec != net::error::connection_refused)
      return exhausted("Another server answers at " + in_quotes(path) + "; choose another path with --uds.", "--uds");
    ::unlink(path.c_str());
  }
  return StreamProtocol::endpoint(endpoint);
}

}  // namespace

Status HttpServer::listen() {
  const ServerOptions& options = state_->shared->options;
  const bool is_unix = !options.unix_socket.empty();
  if (!options.tls_certificate_file.empty()) {
    ASSIGN_OR_RETURN(state_->tls, TlsIdentity::open(options));
  }
  ASSIGN_OR_RETURN(
      const StreamProtocol::endpoint endpoint,
      is_unix ? unix_endpoint(state_->io, options.unix_socket, state_->socket_lock) : tcp_endpoint(options));
  raise_descriptor_limit(options.max_connections * (state_->tls ? 3 : 1) + 256);
  Acceptor& acceptor = state_->acceptor;
  error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec && !is_unix) acceptor.set_option(net::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(1024, ec);
  if (ec == net::error::address_in_use) {
    return exhausted("Port " + std::to_string(options.port) +
                         " is in use by another program; stop it, or choose another with --port.",
                     "port");
  }
  if (ec) {
    const std::string place = is_unix ? "The socket " + in_quotes(options.unix_socket)
                                      : "Port " + std::to_string(options.port) + " on " + options.host;
    return unavailable(place + " cannot be served: " + ec.message() + ".", is_unix ? "--uds" : "port");
  }
  if (is_unix) return {};
  const StreamProtocol::endpoint bound = acceptor.local_endpoint(ec);
  tcp::endpoint local;
  std::memcpy(local.data(), bound.data(), bound.size());
  local.resize(bound.size());
  state_->port = local.port();
  return {};
}

int HttpServer::port() const { return state_->port; }
int64_t HttpServer::n_connections() const { return state_->shared->n_connections; }

void HttpServer::start() {
  net::post(state_->acceptor.get_executor(), [state = state_] { state->accept(); });
  for (int i = 0; i < std::max(1, state_->shared->options.io_threads); ++i) {
    state_->threads.emplace_back([state = state_.get()] {
      name_thread("ibid-io");
      state->run();
    });
  }
  state_->threads.emplace_back([state = state_.get()] {
    name_thread("ibid-heavy");
    give_way();
    while (!state->heavy.is_stopped()) {
      try {
        state->heavy.run();
      } catch (const std::exception&) {  // as in run()
      }
    }
  });
}

void HttpServer::State::run() {
  const auto guard = net::make_work_guard(io);
  while (!io.stopped()) {
    try {
      if (accept_lost) {
        net::dispatch(acceptor.get_executor(), [this] {
          if (accept_lost && acceptor.is_open()) accept();
        });
      }
      io.run();
    } catch (const std::exception&) {
      // A failed allocation in one handler: its connection has gone with it, the others go on.
    }
  }
}

// Travels with a wait for a connection. Asio drops a handler uncalled when an allocation of its own fails, and lets the
// exception out of run(), which then takes the waiting up again.
struct HttpServer::State::Waiting {
  explicit Waiting(State& s) : state(&s) {}
  Waiting(Waiting&& other) noexcept : state(std::exchange(other.state, nullptr)) {}
  ~Waiting() {
    if (state != nullptr) state->accept_lost = true;
  }
  State* state;
};

void HttpServer::State::accept() {
  accept_lost = false;
  Waiting waiting(*this);
  acceptor.async_accept(strands[n_accepted++ % kStrands], [self = shared_from_this(), waiting = std::move(waiting)](
                                                              error_code ec, StreamSocket socket) mutable {
    waiting.state = nullptr;
    bool again = true;
    try {
      again = self->on_accept(ec, std::move(socket));
    } catch (const std::exception&) {  // no memory for this connection; it is closed
    }
    if (again && self->acceptor.is_open()) self->accept();
  });
}

bool HttpServer::State::take_place(const net::ip::address& address) {
  const std::lock_guard lock(shared->mutex);
  int& count = shared->per_address[address];
  if (shared->n_connections >= shared->options.max_connections ||
      count >= shared->options.max_connections_per_address) {
    if (count == 0) shared->per_address.erase(address);
    return false;
  }
  ++count;
  shared->front.on_connections(++shared->n_connections);
  return true;
}

// True: accept the next one now.
bool HttpServer::State::on_accept(error_code ec, StreamSocket socket) {
  if (ec == net::error::operation_aborted) return false;
  if (ec == net::error::no_descriptors || ec == net::error::no_memory || ec == net::error::no_buffer_space ||
      ec == boost::system::errc::too_many_files_open_in_system) {
    // Connections that come and go at the limit bring this every tenth of a second.
    if (const double now = steady_clock().now(); now - exhaustion_logged > kLogAgain) {
      exhaustion_logged = now;
      shared->log.say("No more connections for now: the system has no descriptor or memory left (raise `ulimit -n`).");
    }
    backoff.expires_after(std::chrono::milliseconds(100));
    backoff.async_wait([self = shared_from_this()](error_code e) {
      if (!e && self->acceptor.is_open()) self->accept();
    });
    return false;
  }
  if (ec) return true;
  error_code ignored;
  const net::ip::address address = address_of(socket);
  if (!take_place(address)) {
    shared->front.metrics().add_connection_refused();
    static constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: "
        "application/json\r\nContent-Length: 120\r\n\r\n"
        R"({"error":{"message":"There are too many connections.","type":"server_error","param":null,"code":"too_many_connections"}})";
    socket.non_blocking(true, ignored);
    socket.write_some(net::buffer(kFull), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    return true;
  }
  socket.set_option(tcp::no_delay(true), ignored);
  if (shared->options.send_buffer_bytes > 0)
    socket.set_option(net::socket_base::send_buffer_size(shared->options.send_buffer_bytes), ignored);
  std::shared_ptr<HttpSession> session;
  try {
    if (tls) socket = TlsRelay::put_between(shared, std::move(socket), tls->current(shared->log));
    session = std::make_shared<HttpSession>(shared, std::move(socket), address);
  } catch (const std::exception&) {  // no memory: its place goes back
    const std::lock_guard lock(shared->mutex);
    if (--shared->per_address[address] <= 0) shared->per_address.erase(address);
    shared->front.on_connections(--shared->n_connections);
    return true;
  }
  session->start();
  return true;
}

template <typename Action>
void HttpServer::State::each(Action action) {
  std::vector<std::shared_ptr<HttpSession>> sessions;
  {
    const std::lock_guard lock(shared->mutex);
    for (HttpSession* session : shared->sessions) {
      if (auto alive = session->weak_from_this().lock()) sessions.push_back(std::move(alive));
    }
  }
  for (const auto& session : sessions) action(*session);
}

void HttpServer::drain() {
  state_->shared->draining = true;
  insist([&] {
    net::post(state_->acceptor.get_executor(), [state = state_] {
      error_code ec;
      state->acceptor.close(ec);
      state->backoff.cancel();
    });
  });
  insist([&] { state_->each([](HttpSession& session) { session.drain(); }); });
}

void HttpServer::cancel_all() {
  insist([&] { state_->each([](HttpSession& session) { session.cancel(); }); });
}

void HttpServer::stop() {
  if (state_->threads.empty()) return;
  drain();
  insist([&] { state_->each([](HttpSession& session) { session.kill(); }); });
  // Let the sessions write their log lines and cancel; then whatever is left goes with the context.
  const auto live_relays = [&] {
    std::vector<std::shared_ptr<TlsRelay>> relays;
    const std::lock_guard lock(state_->shared->mutex);
    for (TlsRelay* relay : state_->shared->relays) {
      if (auto alive = relay->weak_from_this().lock()) relays.push_back(std::move(alive));
    }
    return relays;
  };
  for (int i = 0; i < 200 && n_connections() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  bool has_relays = true;
  for (int i = 0; i < 200 && has_relays; ++i) {
    insist([&] {
      const auto relays = live_relays();
      has_relays = !relays.empty();
      for (const auto& relay : relays) relay->close();
    });
    if (has_relays) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (state_->socket_lock) ::unlink(state_->shared->options.unix_socket.c_str());
  state_->io.stop();
  state_->heavy.stop();
  state_->shared->fetcher.stop();
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
  // What was still ready to run holds the state that holds it: e.g. the end of the waiting for connections.
  state_->heavy.clear();
  state_->io.restart();
  try {
    state_->io.poll();
  } catch (const std::exception&) {
  }
  // A connection that is still there goes with the process: handlers that die inside the io_context's own end would use
  // strands that have gone before them.
  const std::lock_guard lock(state_->shared->mutex);
  if (!state_->shared->sessions.empty() || !state_->shared->relays.empty()) {
    insist([&] { new std::shared_ptr<State>(state_); });
  }
}

}  // namespace ibid
