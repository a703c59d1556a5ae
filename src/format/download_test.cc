#include "format/download.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "format/test_fetching.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;
using Server = TestHttpServer;

TEST_F(Fetching, AFileComesWholeWithProgress) {
  std::string content = body(1'000'000);
  Server server([&](const TestRequest&) { return Server::answer("200 OK", "", content); });
  FetchOptions o = options();
  int64_t last = 0;
  o.progress = [&](const FetchProgress& p) {
    EXPECT_GE(p.n_done, last);
    EXPECT_EQ(p.n_total, 1'000'000);
    last = p.n_done;
  };
  Status status = download({.url = server.address() + "/f", .path = place(), .authorization = ""}, o);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(read(place()), content);
  EXPECT_EQ(last, 1'000'000);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Fetching, PiecesWithoutALengthComeWholeToo) {
  Server server([&](const TestRequest&) {
    return std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n");
  });
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(read(place()), "hello world");
}

TEST_F(Fetching, ABodyMayEndWithTheConnection) {
  Server server([&](const TestRequest&) { return std::string("HTTP/1.1 200 OK\r\n\r\nhello"); });
  Status status = get(server);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(read(place()), "hello");
}

// Sends half of the requested bytes, `n_breaks` times; then all.
Server::Handler breaking(const std::string& content, const std::string& etag, int n_breaks) {
  auto n = std::make_shared<int>(0);
  return [=](const TestRequest& request) {
    size_t from = 0;
    auto range = request.headers.find("range");
    if (range != request.headers.end() && request.headers.at("if-range") == etag)
      from = std::stoul(range->second.substr(6));
    std::string rest = content.substr(from);
    std::string head = from == 0
                           ? "200 OK\r\n"
                           : "206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" +
                                 std::to_string(content.size() - 1) + "/" + std::to_string(content.size()) + "\r\n";
    head = "HTTP/1.1 " + head + "ETag: " + etag + "\r\nContent-Length: " + std::to_string(rest.size()) + "\r\n\r\n";
    return head + ((*n)++ < n_breaks ? rest.substr(0, rest.size() / 2) : rest);
  };
}

TEST_F(Fetching, ABrokenDownloadGoesOnWhereItStopped) {
  std::string content = body(800'000);
  Server server(breaking(content, "\"v1\"", 2));
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(read(place()), content);
  auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].headers.count("range"), 0u);
  EXPECT_EQ(requests[1].headers.at("range"), "bytes=400000-");
  EXPECT_EQ(requests[1].headers.at("if-range"), "\"v1\"");
  EXPECT_EQ(requests[2].headers.at("range"), "bytes=600000-");
}

TEST_F(Fetching, ALaterCallGoesOnAndStartsAgainWhereTheFileChanged) {
  std::string old_content = body(100'000);
  {
    Server server(breaking(old_content, "\"v1\"", 1000));
    Status status = get(server);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().kind, ErrorKind::kUnavailable);
    EXPECT_FALSE(fs::exists(place())) << "half a file is never at its place";
    EXPECT_TRUE(fs::exists(place() + ".partial"));
  }
  std::string new_content = body(120'000);
  Server server(breaking(new_content, "\"v2\"", 0));
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(server.requests()[0].headers.at("if-range"), "\"v1\"");
  EXPECT_EQ(read(place()), new_content);
}

TEST_F(Fetching, ProgressIncludesBytesFromBefore) {
  const std::string content = body(100'000);
  folder_.write("file.partial", content.substr(0, 40'000));
  folder_.write("file.partial.etag", "v1\n");
  Server server(breaking(content, "\"v1\"", 0));
  FetchOptions o = options();
  std::vector<FetchProgress> reports;
  o.progress = [&](const FetchProgress& p) { reports.push_back(p); };
  ASSERT_TRUE(download({.url = server.address() + "/file", .path = place(), .authorization = ""}, o).ok());
  ASSERT_FALSE(reports.empty());
  for (const FetchProgress& p : reports) EXPECT_EQ(p.n_before, 40'000);
  EXPECT_EQ(reports.back().n_done, 100'000);
}

TEST_F(Fetching, WithoutAStrongTagItIsFetchedFromTheBeginning) {
  std::string content = body(1000);
  folder_.write("file.partial", "old");
  folder_.write("file.partial.etag", "\n");
  Server server([&](const TestRequest&) { return Server::answer("200 OK", "ETag: W/\"x\"\r\n", content); });
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(server.requests()[0].headers.count("range"), 0u);
  EXPECT_EQ(read(place()), content);
}

TEST_F(Fetching, AWrongPartIsNotAppended) {
  std::string content = body(1000);
  folder_.write("file.partial", content.substr(0, 500));
  folder_.write("file.partial.etag", "v1\n");
  Server server([&](const TestRequest& request) {
    if (request.headers.count("range") == 0) return Server::answer("200 OK", "ETag: \"v1\"\r\n", content);
    return Server::answer("206 Partial Content", "Content-Range: bytes 400-999/1000\r\n", content.substr(400));
  });
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(read(place()), content);
}

TEST_F(Fetching, TheChecksumOfTheHubIsCompared) {
  std::string content = body(5000);
  std::string claimed = sha256_hex(content);
  Server server([&](const TestRequest& request) {
    if (request.target == "/bytes") return Server::answer("200 OK", "", content);
    return Server::answer("302 Found",
                          "Location: /bytes\r\nX-Linked-Size: 5000\r\nX-Linked-Etag: \"" + claimed + "\"\r\n", "");
  });
  ASSERT_TRUE(get(server).ok());
  fs::remove(place());
  claimed[0] = claimed[0] == '0' ? '1' : '0';
  Status status = get(server);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("SHA-256"), std::string::npos) << status.error().message;
  EXPECT_FALSE(fs::exists(place()));
  EXPECT_FALSE(fs::exists(place() + ".partial")) << "damaged bytes are not resumed";
  claimed = "no checksum";
  content += "x";
  status = get(server);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("announces 5000"), std::string::npos) << status.error().message;
}

TEST_F(Fetching, RedirectsAreFollowedAndTheTokenStaysAtHome) {
  Server other([&](const TestRequest& request) {
    if (request.target == "/cdn?x=1") return Server::answer("302 Found", "Location: /there\r\n", "");
    return Server::answer("200 OK", "", "content");
  });
  Server home([&](const TestRequest& request) {
    if (request.target == "/a/b/file") return Server::answer("301 Moved", "Location: ../c/file\r\n", "moved");
    if (request.target == "/a/b/../c/file") return Server::answer("307 Moved", "Location: /d\r\n", "");
    return Server::answer("302 Found", "Location: " + other.address() + "/cdn?x=1\r\n", "");
  });
  Status status =
      download({.url = home.address() + "/a/b/file", .path = place(), .authorization = "Bearer secret"}, options());
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(read(place()), "content");
  ASSERT_EQ(home.requests().size(), 3u);
  for (const TestRequest& request : home.requests()) EXPECT_EQ(request.headers.at("authorization"), "Bearer secret");
  ASSERT_EQ(other.requests().size(), 2u);
  for (const TestRequest& request : other.requests()) EXPECT_EQ(request.headers.count("authorization"), 0u);
}

TEST_F(Fetching, EndlessRedirectsEnd) {
  Server server([&](const TestRequest&) { return Server::answer("302 Found", "Location: /again\r\n", ""); });
  EXPECT_NE(get(server).error().message.find("more than 10 times"), std::string::npos);
}

TEST_F(Fetching, EachStatusHasItsSentence) {
  std::string status_line;
  Server server([&](const TestRequest&) { return Server::answer(status_line, "", ""); });
  const std::tuple<const char*, ErrorKind, const char*> cases[] = {
      {"404 Not Found", ErrorKind::kNotFound, "no such file"},
      {"401 Unauthorized", ErrorKind::kInvalid, "HF_TOKEN"},
      {"403 Forbidden", ErrorKind::kInvalid, "HF_TOKEN"},
      {"503 Busy", ErrorKind::kUnavailable, "try again later"},
      {"429 Slow", ErrorKind::kUnavailable, "try again later"},
      {"204 Nothing", ErrorKind::kInvalid, "answered 204"}};
  for (auto [line, kind, sentence] : cases) {
    status_line = line;
    Status status = get(server);
    ASSERT_FALSE(status.ok()) << line;
    EXPECT_EQ(status.error().kind, kind) << line;
    EXPECT_NE(status.error().message.find(sentence), std::string::npos) << status.error().message;
  }
}

TEST_F(Fetching, TransientErrorsAreRetried) {
  std::atomic<int> n = 0;
  Server server([&](const TestRequest&) {
    return n++ < 2 ? Server::answer("503 Busy", "", "") : Server::answer("200 OK", "", "content");
  });
  ASSERT_TRUE(get(server).ok());
  EXPECT_EQ(read(place()), "content");
}

TEST_F(Fetching, BadAnswersGiveSentences) {
  std::string bytes;
  Server server([&](const TestRequest&) { return bytes; });
  for (std::string text : {std::string("hello\r\n\r\n"), std::string("HTTP/9.9 200 OK\r\n\r\n"),
                           std::string("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
                           std::string("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n"),
                           "HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n",
                           std::string("HTTP/1.1 302 Found\r\nLocation: ftp://x/\r\n\r\n"),
                           std::string("HTTP/1.1 302 Found\r\nLocation: http://a b/\r\n\r\n"),
                           std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), std::string()}) {
    bytes = text;
    Status status = get(server);
    ASSERT_FALSE(status.ok()) << text.substr(0, 60);
    EXPECT_FALSE(status.error().message.empty());
    EXPECT_FALSE(fs::exists(place()));
  }
}

TEST_F(Fetching, SilenceEndsWithASentence) {
  std::atomic<bool> over = false;
  Server server([&](const TestRequest&) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return std::string();
  });
  FetchOptions o = options();
  o.timeout_s = 1;
  o.n_retries = 0;
  Status status = download({.url = server.address() + "/f", .path = place(), .authorization = ""}, o);
  over = true;
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("nothing came for 1 s"), std::string::npos) << status.error().message;
}

TEST_F(Fetching, CancellingEndsAWaitingDownload) {
  std::atomic<bool> over = false;
  Server server([&](const TestRequest&) {
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return std::string();
  });
  FetchOptions o = options();
  o.timeout_s = 3600;  // the server never answers: only the cancellation ends it
  int n_asked = 0;
  o.cancelled = [&n_asked] { return ++n_asked > 2; };
  Status status = download({.url = server.address() + "/f", .path = place(), .authorization = ""}, o);
  over = true;
  EXPECT_EQ(status.error().message, "cancelled");
}

TEST_F(Fetching, FullDiskIsReported) {
  fs::create_symlink("/dev/full", place() + ".partial");
  Server server([&](const TestRequest&) { return Server::answer("200 OK", "", body(100'000)); });
  Status status = get(server);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kExhausted) << status.error().message;
  EXPECT_NE(status.error().message.find("free some space"), std::string::npos) << status.error().message;
}

TEST_F(Fetching, MoreThanTheDiskHasIsRefusedBeforeItComes) {
  Server server([&](const TestRequest&) {
    return std::string("HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000\r\n\r\nabc");
  });
  EXPECT_EQ(get(server).error().kind, ErrorKind::kExhausted);
}

}  // namespace
}  // namespace ibid
