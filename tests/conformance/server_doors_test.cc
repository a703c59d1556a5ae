// The other ways in: TLS, a Unix socket, and below a root path.
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "conformance/server_fixture.h"
#include "format/file_lock.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// A key and a certificate that signs itself, as files.
class Identity {
 public:
  Identity() {
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const std::unique_ptr<X509, void (*)(X509*)> own(X509_new(), &X509_free);
    X509_set_version(own.get(), 2);
    X509_gmtime_adj(X509_getm_notBefore(own.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(own.get()), 3600);
    X509_set_pubkey(own.get(), key.get());
    EXPECT_GT(X509_sign(own.get(), key.get(), EVP_sha256()), 0);
    std::FILE* file = std::fopen(certificate().c_str(), "w");
    PEM_write_X509(file, own.get());
    std::fclose(file);
    file = std::fopen(this->key().c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
  std::string certificate() const { return folder_.path("certificate.pem"); }
  std::string key() const { return folder_.path("key.pem"); }
  // As those who renew one do: a new file in the place of the old one.
  void take(const std::string& file, const std::string& from) const {
    const std::string beside = file + ".new";
    std::filesystem::copy_file(from, beside);
    std::filesystem::rename(beside, file);
  }
  ServerOptions options() const {
    ServerOptions options;
    options.tls_certificate_file = certificate();
    options.tls_key_file = key();
    return options;
  }

 private:
  TempFolder folder_;
};

class TlsClient final : public RawClient {
 public:
  explicit TlsClient(int port) : RawClient(port) {
    SSL_set_fd(ssl_.get(), fd_);
    is_secure = SSL_connect(ssl_.get()) == 1;
  }
  bool is_secure = false;
  // The key that the server's certificate names.
  bool is_of(const Identity& identity) const {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(identity.key().c_str(), "r"), &std::fclose);
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(PEM_read_PrivateKey(file.get(), nullptr, nullptr, nullptr),
                                                             &EVP_PKEY_free);
    const std::unique_ptr<X509, void (*)(X509*)> told(SSL_get1_peer_certificate(ssl_.get()), &X509_free);
    return key && told && EVP_PKEY_eq(X509_get0_pubkey(told.get()), key.get()) == 1;
  }

 protected:
  ssize_t write_some(std::string_view bytes) override {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  ssize_t read_some(char* bytes, size_t n) override { return SSL_read(ssl_.get(), bytes, static_cast<int>(n)); }
  bool has_more() override { return SSL_pending(ssl_.get()) > 0; }

 private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{SSL_new(context_.get()), &SSL_free};
};

const std::string kStream = chat_body("go on", R"("stream":true,"seed":7,"max_tokens":40)");

TEST(ServerDoors, TlsAnswersAsPlainHttpDoes) {
  const Identity identity;
  TestServer plain, secure(identity.options());
  RawClient plain_client(plain.port());
  TlsClient client(secure.port());
  ASSERT_TRUE(client.is_secure);
  const std::string body = chat_body("hello", R"("seed":3)");
  const std::string wanted = content_of(plain_client.post("/v1/chat/completions", body));
  for (int i = 0; i < 3; ++i)  // of one connection
    EXPECT_EQ(content_of(client.post("/v1/chat/completions", body)), wanted);
  const SseText streamed = read_events(client.post("/v1/chat/completions", kStream).body);
  EXPECT_EQ(streamed.text, read_events(plain_client.post("/v1/chat/completions", kStream).body).text);
  EXPECT_TRUE(streamed.done);
  // More than any buffer on the way holds, in both directions.
  const std::string text(300'000, 'x');
  EXPECT_EQ(client.post("/tokenize", R"({"content":")" + text + "\"}").body,
            plain_client.post("/tokenize", R"({"content":")" + text + "\"}").body);
}

TEST(ServerDoors, ATlsClientThatGoesEndsItsAnswer) {
  const Identity identity;
  FakeBackend::Options slow;
  slow.step_seconds = 0.02;
  TestServer server(identity.options(), slow);
  // While a stream is written to it, and while nothing is.
  for (const bool streams : {true, false}) {
    TlsClient client(server.port());
    const std::string_view more = streams ? R"("stream":true,"max_tokens":1000)" : R"("max_tokens":1000)";
    client.send(RawClient::post_text("/v1/chat/completions", chat_body("go", more)));
    if (streams) {
      EXPECT_TRUE(client.receive_until("data: "));
    }
    EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return server.backend.n_cancelled == 2 - streams; })) << streams;
    EXPECT_TRUE(eventually([&] { return server.backend.n_live() == 0; }));
  }
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 0; }));
}

TEST(ServerDoors, ClientWithoutTlsIsDroppedAndDisturbsNoOther) {
  const Identity identity;
  ServerOptions options = identity.options();
  options.header_timeout = 0.3;
  TestServer server(options);
  RawClient plain(server.port()), silent(server.port());
  plain.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(plain.closed_within(600));
  EXPECT_TRUE(silent.closed_within(600)) << "a handshake has as long as a header";
  TlsClient client(server.port());
  EXPECT_EQ(client.get("/health").status, 200);
  EXPECT_TRUE(eventually([&] { return server.http->n_connections() == 1; }));
}

TEST(ServerDoors, ATlsServerEndsWithConnectionsOpen) {
  const Identity identity;
  auto server = std::make_unique<TestServer>(identity.options());
  TlsClient idle(server->port());
  RawClient half(server->port());  // which never shakes hands
  EXPECT_EQ(idle.get("/health").status, 200);
  server = nullptr;
  EXPECT_TRUE(idle.closed_within(600));
  EXPECT_TRUE(half.closed_within(600));
}

Status listen(const ServerOptions& given) {
  ServerOptions options = given;
  options.port = 0;
  options.log_file = "/dev/null";
  const auto log = *RequestLog::open(options.log_file, true, true);
  FrontDoor front(options, ApiKeys(), *log);
  HttpServer http(options, front, *log);
  return http.listen();
}

TEST(ServerDoors, FilesThatAreNoCertificateOrKeyAreRefusedAtTheStart) {
  const Identity identity, other;
  ServerOptions missing = identity.options(), mixed = identity.options(), swapped;
  missing.tls_certificate_file += ".not";
  mixed.tls_key_file = other.key();
  swapped.tls_certificate_file = identity.key();
  swapped.tls_key_file = identity.certificate();
  EXPECT_TRUE(listen(identity.options()).ok());
  EXPECT_EQ(listen(missing).error().where, "--ssl-cert-file");
  EXPECT_EQ(listen(mixed).error().where, "--ssl-key-file");
  EXPECT_EQ(listen(swapped).error().where, "--ssl-cert-file");
}

TEST(ServerDoors, ARenewedCertificateIsServedWithoutARestart) {
  const Identity served, renewed;
  const Identity before;  // a copy of what is served first, to know it by
  before.take(before.certificate(), served.certificate());
  before.take(before.key(), served.key());
  TestServer server(served.options());
  TlsClient old(server.port());
  EXPECT_TRUE(old.is_of(before));
  EXPECT_EQ(old.get("/health").status, 200);
  // The certificate alone fits no key: what was served goes on.
  served.take(served.certificate(), renewed.certificate());
  EXPECT_TRUE(TlsClient(server.port()).is_of(before));
  served.take(served.key(), renewed.key());
  TlsClient next(server.port());
  EXPECT_TRUE(next.is_of(renewed));
  EXPECT_EQ(next.get("/health").status, 200);
  EXPECT_EQ(old.get("/health").status, 200) << "a connection goes on with the one that it began with";
  std::ofstream(served.key() + ".not") << "no key";
  served.take(served.key(), served.key() + ".not");
  EXPECT_TRUE(TlsClient(server.port()).is_of(renewed));
}

TEST(ServerDoors, AUnixSocketIsADoorAsAPortIs) {
  const TempFolder folder;
  ServerOptions options;
  options.unix_socket = folder.path("ibid.sock");
  const std::string body = chat_body("hello", R"("seed":3)");
  {
    TestServer server(options), plain;
    RawClient client(options.unix_socket), other(plain.port());
    ASSERT_TRUE(client.connected());
    EXPECT_EQ(content_of(client.post("/v1/chat/completions", body)),
              content_of(other.post("/v1/chat/completions", body)));
    EXPECT_TRUE(read_events(client.post("/v1/chat/completions", kStream).body).done);
    EXPECT_EQ(listen(options).error().kind, ErrorKind::kExhausted) << "a server answers there";
  }
  struct stat found = {};
  EXPECT_NE(::lstat(options.unix_socket.c_str(), &found), 0) << "its file goes with it";
  // What a server left that was killed is replaced; what is no socket is not.
  const int left = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  options.unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(left);
  {  // one that has begun and does not listen yet is no such one
    const auto holds = FileLock::acquire(options.unix_socket + ".lock", [] { return false; });
    ASSERT_TRUE(holds.ok());
    EXPECT_EQ(listen(options).error().kind, ErrorKind::kExhausted);
    EXPECT_EQ(::lstat(options.unix_socket.c_str(), &found), 0) << "the refused one has removed it";
  }
  EXPECT_TRUE(listen(options).ok());
  ServerOptions wrong;
  wrong.unix_socket = folder.write("file", "words");
  EXPECT_EQ(listen(wrong).error().where, "--uds");
  wrong.unix_socket = "/" + std::string(200, 'x');
  EXPECT_EQ(listen(wrong).error().where, "--uds");
}

TEST(ServerDoors, ARootPathMayStandBeforeEveryPath) {
  ServerOptions options;
  options.root_path = "/llm";
  TestServer server(options);
  RawClient client(server.port());
  for (const char* path : {"/llm/v1/models", "/v1/models", "/llm/health", "/llm/", "/llm"})
    EXPECT_EQ(client.get(path).status, 200) << path;
  for (const char* path : {"/llmv1/models", "/llm/llm/health", "/llm?x/health/no"})
    EXPECT_EQ(client.get(path).status, path == std::string_view("/llm?x/health/no") ? 200 : 404) << path;
  EXPECT_NE(client.get("/llm/openapi.json").body.find(R"("servers":[{"url":"/llm"}])"), std::string::npos);
  EXPECT_EQ(client.post("/llm/v1/chat/completions", chat_body("hello")).status, 200);
}

}  // namespace
}  // namespace ibid
