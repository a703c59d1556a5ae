#include "server/net/tls_relay.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include "base/quoted.h"

namespace ibid {

namespace net = boost::asio;
namespace ssl = net::ssl;

namespace {

constexpr double kGoodbye = 2;  // seconds that a client has to end its side

Error wrong_file(const char* what, const std::string& path, const boost::system::error_code& ec, const char* flag) {
  return invalid(std::string("The ") + what + " in " + in_quotes(path) + " cannot be used: " + ec.message() + ".",
                 flag);
}

Result<std::unique_ptr<ssl::context>> make_tls_context(const ServerOptions& options) {
  boost::system::error_code ec;
  auto context = std::make_unique<ssl::context>(ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION);  // which costs us more than who asks for it
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);    // of idle connections
  context->use_certificate_chain_file(options.tls_certificate_file, ec);
  if (ec) return wrong_file("certificate", options.tls_certificate_file, ec, "--ssl-cert-file");
  context->use_private_key_file(options.tls_key_file, ssl::context::pem, ec);
  if (ec) return wrong_file("key", options.tls_key_file, ec, "--ssl-key-file");
  return context;
}

}  // namespace

Result<std::unique_ptr<TlsIdentity>> TlsIdentity::open(const ServerOptions& options) {
  std::unique_ptr<TlsIdentity> out(new TlsIdentity(options));
  TRY(out->load());
  return out;
}

TlsIdentity::Stamps TlsIdentity::stamps() const {
  Stamps out;
  const std::array files = {&options_.tls_certificate_file, &options_.tls_key_file};
  for (size_t i = 0; i < files.size(); ++i) {
    struct stat found = {};
    if (::stat(files[i]->c_str(), &found) != 0) continue;
    out[i] = {found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
  }
  return out;
}

// The stamps before the files: what is written in between is seen the next time. A connection holds the context that it
// was made with (SSL_new counts it).
Status TlsIdentity::load() {
  read_ = stamps();
  ASSIGN_OR_RETURN(context_, make_tls_context(options_));
  return {};
}

ssl::context& TlsIdentity::current(RequestLog& log) {
  if (stamps() == read_) return *context_;
  const Status status = load();
  log.say(status ? "The TLS certificate was read again."
                 : status.error().message + " The certificate and key that were read before go on.");
  return *context_;
}

TlsRelay::TlsRelay(std::shared_ptr<HttpShared> shared, StreamSocket client, StreamSocket session, ssl::context& context)
    : shared_(std::move(shared)),
      client_(std::move(client), context),
      session_(std::move(session)),
      timer_(client_.get_executor()) {
  const std::lock_guard lock(shared_->mutex);
  shared_->relays.insert(this);
}

TlsRelay::~TlsRelay() {
  const std::lock_guard lock(shared_->mutex);
  shared_->relays.erase(this);
}

StreamSocket TlsRelay::put_between(const std::shared_ptr<HttpShared>& shared, StreamSocket client,
                                   ssl::context& context) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw boost::system::system_error(errno, boost::system::system_category());
  const net::any_io_executor executor = client.get_executor();
  const StreamProtocol local(AF_UNIX, 0);
  StreamSocket inside(executor, local, ends[0]), outside(executor, local, ends[1]);
  std::make_shared<TlsRelay>(shared, std::move(client), std::move(inside), context)->start();
  return outside;
}

// A failed allocation ends this connection alone.
template <typename Step>
void TlsRelay::guard(Step step) {
  try {
    step();
  } catch (const std::exception&) {
    close_now();
  }
}

void TlsRelay::start() {
  net::post(client_.get_executor(), [self = shared_from_this()] { self->guard([&] { self->shake_hands(); }); });
}

void TlsRelay::shake_hands() {
  within(shared_->options.header_timeout, [&] {
    client_.async_handshake(ssl::stream_base::server, [self = shared_from_this()](error_code ec) {
      self->timer_.cancel();
      if (ec) return self->close_now();
      self->guard([&] {
        self->read_client();
        self->read_session();
      });
    });
  });
}

void TlsRelay::close() {
  net::post(client_.get_executor(), [self = shared_from_this()] { self->close_now(); });
}

// What is begun ends by then, or the connection does.
template <typename Then>
void TlsRelay::within(double seconds, Then then) {
  timer_.expires_after(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    if (const auto self = weak.lock(); self && !ec) self->close_now();
  });
  then();
}

void TlsRelay::read_client() {
  client_.async_read_some(net::buffer(from_client_), [self = shared_from_this()](error_code ec, size_t n) {
    if (ec) {  // the client has gone, or has closed its side
      error_code ignored;
      self->session_.shutdown(net::socket_base::shutdown_send, ignored);
      return;
    }
    self->guard([&] {
      net::async_write(self->session_, net::buffer(self->from_client_.data(), n), [self](error_code e, size_t) {
        e ? self->close_now() : self->guard([&] { self->read_client(); });
      });
    });
  });
}

void TlsRelay::read_session() {
  session_.async_read_some(net::buffer(to_client_), [self = shared_from_this()](error_code ec, size_t n) {
    self->guard([&] { ec ? self->say_goodbye() : self->write_client(n); });
  });
}

void TlsRelay::write_client(size_t n) {
  within(shared_->options.write_timeout, [&] {
    net::async_write(client_, net::buffer(to_client_.data(), n), [self = shared_from_this()](error_code ec, size_t) {
      self->timer_.cancel();
      ec ? self->close_now() : self->guard([&] { self->read_session(); });
    });
  });
}

void TlsRelay::say_goodbye() {
  within(kGoodbye, [&] {
    client_.async_shutdown([self = shared_from_this()](error_code) {
      self->timer_.cancel();
      self->close_now();
    });
  });
}

void TlsRelay::close_now() {
  error_code ignored;
  client_.lowest_layer().close(ignored);
  session_.close(ignored);
}

}  // namespace ibid
