// TLS as downloads use it: which certificates are trusted, and for which name.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "format/http_client.h"
#include "format/test_http_server.h"
#include "temp_folder.h"

namespace ibid {
namespace {

// A certificate for "localhost" that signs itself, the server's context with it, and a file for those who trust it.
class Tls : public testing::Test {
 protected:
  Tls() : context_(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free) {
    std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), &X509_free);
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(certificate.get(), name);
    X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost");
    X509_add_ext(certificate.get(), names, -1);
    X509_EXTENSION_free(names);
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key.get()), 1);
    std::FILE* file = std::fopen(folder_.path("trusted.pem").c_str(), "w");
    PEM_write_X509(file, certificate.get());
    std::fclose(file);
  }
  ~Tls() override { ::unsetenv("SSL_CERT_FILE"); }
  void trust() { ::setenv("SSL_CERT_FILE", folder_.path("trusted.pem").c_str(), 1); }

  Status get(const std::string& url, const std::string& proxy = "") {
    body_.clear();
    return http_get({.url = url, .timeout_s = 5, .proxy = proxy},
                    {.on_head = [](const std::vector<HttpHead>&) { return Status(); },
                     .on_body =
                         [this](std::string_view bytes) {
                           body_ += bytes;
                           return Status();
                         }});
  }
  TempFolder folder_;
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::string body_;
};

TEST_F(Tls, ATrustedServerIsRead) {
  trust();
  TestHttpServer server([](const TestRequest&) { return TestHttpServer::answer("200 OK", "", "secret"); },
                        context_.get());
  Status status = get(server.address("localhost"));
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(body_, "secret");
}

TEST_F(Tls, AnUnknownAuthorityIsRefused) {
  TestHttpServer server([](const TestRequest&) { return TestHttpServer::answer("200 OK", "", "secret"); },
                        context_.get());
  Status status = get(server.address("localhost"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kInvalid) << "trying again does not help";
  EXPECT_NE(status.error().message.find("certificate cannot be verified"), std::string::npos) << status.error().message;
  EXPECT_TRUE(server.requests().empty()) << "nothing was sent";
}

TEST_F(Tls, ACertificateForAnotherNameIsRefused) {
  trust();
  TestHttpServer server([](const TestRequest&) { return TestHttpServer::answer("200 OK", "", "secret"); },
                        context_.get());
  Status status = get(server.address("127.0.0.1"));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("certificate cannot be verified"), std::string::npos) << status.error().message;
}

TEST_F(Tls, ARedirectFromHttpsToHttpIsRefused) {
  trust();
  TestHttpServer server(
      [](const TestRequest&) { return TestHttpServer::answer("302 Found", "Location: http://localhost/\r\n", ""); },
      context_.get());
  Status status = get(server.address("localhost"));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("from https to http"), std::string::npos) << status.error().message;
}

TEST_F(Tls, AProxyTunnelsWithoutSeeingMoreThanTheName) {
  trust();
  TestHttpServer server([](const TestRequest&) { return TestHttpServer::answer("200 OK", "", "secret"); },
                        context_.get());
  TestTunnel proxy;
  Status status = get(server.address("localhost"), proxy.address());
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(body_, "secret");
  EXPECT_EQ("https://" + proxy.target(), server.address("localhost"));
}

TEST_F(Tls, AProxyThatRefusesIsNamed) {
  TestHttpServer proxy([](const TestRequest&) { return TestHttpServer::answer("407 Who are you", "", ""); });
  Status status = get("https://example.org/", proxy.address());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("does not connect to example.org:443: it answered 407"), std::string::npos)
      << status.error().message;
}

TEST_F(Tls, WithoutTlsAProxyGetsTheWholeAddress) {
  TestHttpServer proxy([](const TestRequest&) { return TestHttpServer::answer("200 OK", "", "by proxy"); });
  ASSERT_TRUE(get("http://example.org/a?b", proxy.address()).ok());
  EXPECT_EQ(proxy.requests()[0].target, "http://example.org/a?b");
  EXPECT_EQ(proxy.requests()[0].headers.at("host"), "example.org");
  EXPECT_EQ(body_, "by proxy");
}

TEST(Proxies, AreTakenFromTheEnvironment) {
  const char* names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY",
                         "all_proxy",   "ALL_PROXY",   "no_proxy",   "NO_PROXY"};
  std::map<std::string, std::string> before;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) before[name] = value;
    ::unsetenv(name);
  }
  auto proxy = [](const char* url) { return proxy_of_environment(parse_url(url).value()); };
  EXPECT_EQ(proxy("https://a.org"), "");
  ::setenv("HTTP_PROXY", "http://evil:1", 1);
  EXPECT_EQ(proxy("http://a.org"), "");
  ::setenv("https_proxy", "http://p:1", 1);
  ::setenv("all_proxy", "http://q:2", 1);
  EXPECT_EQ(proxy("https://a.org"), "http://p:1");
  EXPECT_EQ(proxy("http://a.org"), "http://q:2");
  ::setenv("no_proxy", "b.org, .c.org", 1);
  EXPECT_EQ(proxy("https://b.org"), "");
  EXPECT_EQ(proxy("https://x.c.org"), "");
  EXPECT_EQ(proxy("https://xb.org"), "http://p:1");
  EXPECT_EQ(proxy("https://127.0.0.1"), "");
  ::setenv("no_proxy", "*", 1);
  EXPECT_EQ(proxy("https://a.org"), "");
  for (const char* name : names) {
    ::unsetenv(name);
    if (before.count(name) > 0) ::setenv(name, before[name].c_str(), 1);
  }
}

TEST(Urls, AreTakenApart) {
  Url url = parse_url("HTTPS://Example.org:8443/a/b?c=d#e").value();
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(url.host, "example.org");
  EXPECT_EQ(url.port, "8443");
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_EQ(parse_url("http://h").value().text(), "http://h/");
  EXPECT_EQ(parse_url("http://[::1]:8080/x").value().text(), "http://[::1]:8080/x");
  EXPECT_EQ(parse_url("https://h?q").value().target, "/?q");
  for (const char* bad : {"", "h", "ftp://h", "http://", "http:///x", "http://u:p@h/", "http://h:x/",
                          "http://h:123456/", "http://h/a b", "http://h/\r\nX: y", "http://[::1/"}) {
    EXPECT_FALSE(parse_url(bad).ok()) << bad;
  }
}

TEST(Urls, LocationsAreResolvedAgainstWhereTheyCameFrom) {
  Url base = parse_url("https://h:1/a/b?c").value();
  EXPECT_EQ(resolve_url(base, "http://x/y").value().text(), "http://x/y");
  EXPECT_EQ(resolve_url(base, "//x/y").value().text(), "https://x/y");
  EXPECT_EQ(resolve_url(base, "/y").value().text(), "https://h:1/y");
  EXPECT_EQ(resolve_url(base, "y?z").value().text(), "https://h:1/a/y?z");
  EXPECT_EQ(resolve_url(base, "?z").value().text(), "https://h:1/a/b?z");
}

}  // namespace
}  // namespace ibid
