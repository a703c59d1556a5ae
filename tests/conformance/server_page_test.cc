// How the page's files come: compressed, once, and with the policy that keeps other scripts out.
#include "conformance/server_fixture.h"
#include "server/routes/page_files.h"

namespace ibid {
namespace {

std::string header(const HttpAnswer& answer, const std::string& name) {
  const size_t at = answer.head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 4;
  return answer.head.substr(begin, answer.head.find("\r\n", begin) - begin);
}

// Of an answer without a body.
HttpAnswer head_alone(RawClient& client, const std::string& path, const std::string& headers) {
  client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  HttpAnswer a;
  if (!client.receive_until("\r\n\r\n")) return a;
  const size_t end = client.buffer.find("\r\n\r\n") + 4;
  a.head = client.buffer.substr(0, end);
  for (char& c : a.head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  a.status = std::atoi(a.head.c_str() + 9);
  client.buffer.erase(0, end);
  return a;
}

TEST(ServerPage, FilesAreCompressedForClientsThatTakeIt) {
  TestServer server;
  RawClient client(server.port());
  size_t n_plain = 0, n_packed = 0;
  for (const PageFile& file : page_files()) {
    const std::string path(file.path);
    const HttpAnswer plain = client.get(path), packed = client.get(path, "Accept-Encoding: br, gzip\r\n");
    EXPECT_EQ(plain.status, 200) << path;
    EXPECT_EQ(plain.body, file.content) << path;
    EXPECT_EQ(header(plain, "content-encoding"), "") << path;
    EXPECT_EQ(packed.status, 200) << path;
    EXPECT_EQ(packed.body, file.gzip) << path;
    EXPECT_EQ(header(packed, "content-encoding"), "gzip") << path;
    EXPECT_EQ(header(packed, "content-type"), header(plain, "content-type")) << path;
    for (const HttpAnswer& a : {plain, packed}) {
      EXPECT_EQ(header(a, "vary"), "accept-encoding") << path;
      EXPECT_NE(header(a, "content-security-policy").find("default-src 'none'"), std::string::npos) << path;
    }
    EXPECT_NE(header(plain, "etag"), header(packed, "etag")) << path;
    n_plain += plain.body.size(), n_packed += packed.body.size();
    EXPECT_EQ(client.get(path, "Accept-Encoding: gzip;q=0, br\r\n").body, file.content) << path;
  }
  EXPECT_LT(n_packed, n_plain * 2 / 5);
}

TEST(ServerPage, CachedPageIsNotSentAgain) {
  TestServer server;
  RawClient client(server.port());
  for (const PageFile& file : page_files()) {
    const std::string path(file.path);
    for (const std::string coding : {"", "Accept-Encoding: gzip\r\n"}) {
      const std::string tag = header(client.get(path, coding), "etag");
      for (const std::string& given : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
        const HttpAnswer again = head_alone(client, path, coding + "If-None-Match: " + given + "\r\n");
        EXPECT_EQ(again.status, 304) << path << given;
        EXPECT_EQ(header(again, "content-length"), "") << path;
        EXPECT_EQ(header(again, "etag"), tag) << path;
      }
      // The connection goes on: nothing came after those heads.
      EXPECT_EQ(client.get(path, coding + "If-None-Match: \"other\"\r\n").status, 200) << path;
    }
    // Its own address may be kept for ever, any other is asked for again.
    const std::string version(file.version);
    EXPECT_EQ(header(client.get(path + "?" + version), "cache-control"), "private, max-age=31536000, immutable");
    EXPECT_EQ(header(client.get(path + "?0123"), "cache-control"), "private, no-cache");
    EXPECT_EQ(header(client.get(path), "cache-control"), "private, no-cache");
  }
}

TEST(ServerPage, KeyIsCheckedBeforeTheTag) {
  TestServer server({}, {}, "a-secret-key-of-a-user");
  RawClient client(server.port());
  EXPECT_EQ(client.get("/app.js", "If-None-Match: *\r\n").status, 401);
}

TEST(ServerPage, SwitchedOffItIsNotThere) {
  ServerOptions options;
  options.page = false;
  TestServer server(options);
  RawClient client(server.port());
  for (const PageFile& file : page_files())
    EXPECT_EQ(client.get(file.path, "If-None-Match: *\r\n").status, 404) << file.path;
}

}  // namespace
}  // namespace ibid
