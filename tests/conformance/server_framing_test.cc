// Where a request ends (RFC 9112): raw bytes in, the statuses of all answers out. A request stands after each row's
// bytes: the row's body must end right before it, or the connection must end without answering it.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

struct Framing {
  const char* name;
  std::string bytes;
  std::vector<int> statuses;  // of all answers, without those of 1xx; the request after the row has kLast
};

constexpr int kLast = 404;
constexpr const char* kAfter = "GET /after HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
constexpr const char* kBody = R"({"content":"a"})";  // 15 bytes
constexpr const char* kChunks = "f\r\n{\"content\":\"a\"}\r\n0\r\n\r\n";

std::string post(const std::string& headers, const std::string& body) {
  return "POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + body;
}
std::string with_length(const std::string& value) { return post("Content-Length:" + value + "\r\n", kBody); }
std::string with_codings(const std::string& value) { return post("Transfer-Encoding:" + value + "\r\n", kChunks); }
std::string chunks(const std::string& text) { return post("Transfer-Encoding: chunked\r\n", text); }
std::string get(const std::string& target) { return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n"; }

const std::vector<int> kTaken = {200, kLast}, kMalformed = {400}, kUnknown = {501};

std::vector<Framing> bodies_that_are_taken() {
  return {
      {"a length", with_length(" 15"), kTaken},
      {"a length between blanks", with_length(" \t15 \t "), kTaken},
      {"a length with zeros before", with_length(" 0015"), kTaken},
      {"a length's name in lower case", post("content-length: 15\r\n", kBody), kTaken},
      {"the same length twice", post("Content-Length: 15\r\nContent-Length: 15\r\n", kBody), kTaken},
      {"the same length as a list", with_length(" 15, 15"), kTaken},
      {"no length, no body", post("", ""), {400, kLast}},
      {"a length of 0", post("Content-Length: 0\r\n", ""), {400, kLast}},
      {"GET with a body", "GET /version HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n" + std::string(kBody),
       kTaken},
      {"chunks", with_codings(" chunked"), kTaken},
      {"chunks in capitals", with_codings(" CHUNKED"), kTaken},
      {"chunks between blanks", with_codings("\tchunked\t "), kTaken},
      {"chunks in a list with an empty element", with_codings(" , chunked"), kTaken},
      {"chunks on a folded line", with_codings("\r\n chunked"), kTaken},
      {"a chunk's size in capitals with zeros", chunks("00F\r\n{\"content\":\"a\"}\r\n000\r\n\r\n"), kTaken},
      {"many chunks", chunks("1\r\n{\r\nd\r\n\"content\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n"), kTaken},
      {"chunk extensions", chunks("f;a;b=c;d=\"e;\\\"\"\r\n{\"content\":\"a\"}\r\n0;last\r\n\r\n"), kTaken},
      {"a trailer", chunks("f\r\n{\"content\":\"a\"}\r\n0\r\nX-Sum: 1\r\n\r\n"), kTaken},
      {"Connection: close", post("Connection: close\r\nContent-Length: 15\r\n", kBody), {200}},
      {"HTTP/1.0", "POST /tokenize HTTP/1.0\r\nContent-Length: 15\r\n\r\n" + std::string(kBody), {200}},
      {"HTTP/1.0 that stays",
       "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 15\r\n\r\n" + std::string(kBody), kTaken},
      {"100-continue", post("Expect: 100-continue\r\nContent-Length: 15\r\n", kBody), kTaken},
      {"an empty line before", "\r\n" + with_length(" 15"), kTaken},
      {"an empty line after the body", with_length(" 15") + "\r\n", kTaken},
      {"absolute form", get("http://localhost:8080/version"), kTaken},
      {"absolute form of https, in capitals", get("HTTPS://LOCALHOST/version"), kTaken},
      {"absolute form without a path", get("http://localhost"), kTaken},
      {"absolute form without a path, with a query", get("http://localhost?x=1"), kTaken},
  };
}

std::vector<Framing> lengths_that_are_none() {
  std::vector<Framing> rows = {
      {"two lengths", post("Content-Length: 15\r\nContent-Length: 16\r\n", kBody), kMalformed},
      {"a length above the bound", with_length(" 1073741824"), {413}},
      {"a length and chunks", post("Content-Length: 15\r\nTransfer-Encoding: chunked\r\n", kChunks), kMalformed},
      {"chunks and a length", post("Transfer-Encoding: chunked\r\nContent-Length: 15\r\n", kChunks), kMalformed},
      {"a blank before the colon", post("Content-Length : 15\r\n", kBody), kMalformed},
  };
  for (const char* value : {" 15, 16", " -1", " +15", " 0x0f", " 15a", " 1 5", "", " ,", " 15,", " 15;a", " 15.0",
                            " \"15\"", " 99999999999999999999", " 18446744073709551616", "\r\n 1\r\n 5"})
    rows.push_back({value, with_length(value), kMalformed});
  return rows;
}

std::vector<Framing> codings_that_are_none() {
  std::vector<Framing> rows = {
      {"gzip and a length", post("Transfer-Encoding: gzip\r\nContent-Length: 15\r\n", kBody), kMalformed},
      {"a length and gzip", post("Content-Length: 15\r\nTransfer-Encoding: gzip\r\n", kBody), kMalformed},
      {"identity and a length", post("Transfer-Encoding: identity\r\nContent-Length: 15\r\n", kBody), kMalformed},
      {"nothing and a length", post("Transfer-Encoding:\r\nContent-Length: 15\r\n", kBody), kMalformed},
      {"chunked twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", kChunks), kMalformed},
      {"chunked, then gzip", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", kChunks), kMalformed},
      {"gzip, then chunked", post("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", kChunks), kUnknown},
      {"gzip twice", post("Transfer-Encoding: gzip\r\nTransfer-Encoding: gzip\r\n", kChunks), kMalformed},
      {"a blank before the colon", post("Transfer-Encoding : chunked\r\n", kChunks), kMalformed},
      {"chunks of HTTP/1.0", "POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(kChunks),
       kMalformed},
      {"chunks of HTTP/1.0 that stays",
       "POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(kChunks),
       kMalformed},
  };
  for (const char* value : {" gzip", " chunked, chunked", " chunked,chunked", " xchunked", " chunkedx",
                            " chunked, gzip", " gzip, xchunked", " identity", " \"chunked\"", " chunked;q=1",
                            " chunked; q=1", " chunked gzip", " chunked\tx", " chunk ed", "", " ,"})
    rows.push_back({value, with_codings(value), kMalformed});
  for (const char* value : {" gzip, chunked", " gzip,chunked", " identity, chunked", " deflate, gzip, chunked",
                            " gzip;a=\"b\", chunked", " gzip;a=\"x, chunked", " trailers,,chunked"})
    rows.push_back({value, with_codings(value), kUnknown});
  return rows;
}

std::vector<Framing> chunks_that_are_none() {
  std::vector<Framing> rows;
  for (const char* size : {"", "g", "-f", "+f", "0xf", " f", "f ", "f\t", "f,", "f;", "f;\x01", "f;a=\"\x01\"",
                           "f;a=\"\n\"", "f;a=\"\\\n\"", "f;a\nb", "10000000000000000", "f\n"})
    rows.push_back({size, chunks(std::string(size) + "\r\n{\"content\":\"a\"}\r\n0\r\n\r\n"), kMalformed});
  const std::vector<std::pair<const char*, const char*>> others = {
      {"lines that end in LF", "f\n{\"content\":\"a\"}\n0\n\n\r\n"},
      {"a chunk longer than its size", "e\r\n{\"content\":\"a\"}\r\n0\r\n\r\n"},
      {"a chunk shorter than its size", "10\r\n{\"content\":\"a\"}\r\n0\r\n\r\n"},
      {"no line's end after a chunk", "f\r\n{\"content\":\"a\"}0\r\n\r\n"},
      {"a trailer with a length", "f\r\n{\"content\":\"a\"}\r\n0\r\nContent-Length: 99\r\n\r\n"},
      {"a trailer with a coding", "f\r\n{\"content\":\"a\"}\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n"},
      {"a trailer that is none", "f\r\n{\"content\":\"a\"}\r\n0\r\nX Sum: 1\r\n\r\n"},
  };
  for (const auto& [name, text] : others) rows.push_back({name, chunks(text), kMalformed});
  return rows;
}

std::vector<Framing> heads_that_are_none() {
  const std::string rest = std::string("Content-Length: 15\r\n\r\n") + kBody;
  return {
      {"two empty lines before", "\r\n\r\n" + with_length(" 15"), kMalformed},
      {"an empty line that ends in LF", "\n" + with_length(" 15"), kMalformed},
      {"a first header that begins with a blank", "POST /tokenize HTTP/1.1\r\n Host: localhost\r\n" + rest, kMalformed},
      {"a header without a name", "POST /tokenize HTTP/1.1\r\n: x\r\nHost: localhost\r\n" + rest, kMalformed},
      {"a header without a colon", "POST /tokenize HTTP/1.1\r\nx\r\nHost: localhost\r\n" + rest, kMalformed},
      {"a line that ends in LF", "POST /tokenize HTTP/1.1\r\nHost: localhost\n" + rest, kMalformed},
      {"a line that ends in CR", "POST /tokenize HTTP/1.1\r\nHost: localhost\rX: y\r\n" + rest, kMalformed},
      {"a zero byte", "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(1, '\0') + "\r\n" + rest,
       kMalformed},
      {"HTTP/2.0", "POST /tokenize HTTP/2.0\r\nHost: localhost\r\n" + rest, kMalformed},
      {"HTTP/0.9", "GET /version\r\n" + rest, kMalformed},
      {"absolute form without a host", get("http:///version"), kMalformed},
      {"absolute form with a user", get("http://localhost@evil.example/version"), kMalformed},
      {"absolute form of another scheme", get("ftp://localhost/version"), kMalformed},
      {"absolute form of another host", get("http://evil.example/version"), {403, kLast}},
  };
}

std::vector<Framing> all_framings() {
  std::vector<Framing> rows = bodies_that_are_taken();
  for (const auto& more :
       {lengths_that_are_none(), codings_that_are_none(), chunks_that_are_none(), heads_that_are_none()})
    rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

// Every status until the server ends the connection.
std::vector<int> all_statuses(RawClient& client) {
  std::vector<int> statuses;
  for (;;) {
    const HttpAnswer a = client.answer();
    if (a.status == 0) break;
    statuses.push_back(a.status);
  }
  EXPECT_FALSE(client.timed_out) << "the connection stays open";
  return statuses;
}

TEST(ServerFraming, NoBodyBytesBecomeARequest) {
  TestServer server;
  const std::vector<Framing> rows = all_framings();
  EXPECT_GE(rows.size(), 100u);
  for (const Framing& row : rows) {
    RawClient client(server.port());
    client.send(row.bytes + kAfter);
    EXPECT_EQ(all_statuses(client), row.statuses) << row.name << ":\n" << row.bytes;
  }
}

// All rows at once, each a byte at a time until it is answered.
TEST(ServerFraming, IsTheSameHoweverTheBytesAreCut) {
  ServerOptions options;
  options.max_bodies_bytes = int64_t{1} << 40;
  TestServer server(options);
  const std::vector<Framing> rows = all_framings();
  std::vector<std::unique_ptr<RawClient>> clients;
  size_t longest = 0;
  for (const Framing& row : rows) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    longest = std::max(longest, row.bytes.size());
  }
  for (size_t at = 0; at < longest; ++at) {
    for (size_t i = 0; i < rows.size(); ++i) {
      clients[i]->receive(0);
      const bool is_refused = rows[i].statuses.back() != kLast && !clients[i]->buffer.empty();
      if (at < rows[i].bytes.size() && !is_refused) clients[i]->send(rows[i].bytes.substr(at, 1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].statuses.back() == kLast) clients[i]->send(kAfter);
    clients[i]->timed_out = false;
    EXPECT_EQ(all_statuses(*clients[i]), rows[i].statuses) << rows[i].name << ":\n" << rows[i].bytes;
  }
}

TEST(ServerFraming, OldHttpGetsNo100Continue) {
  TestServer server;
  RawClient old(server.port()), none(server.port());
  old.send("POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n" + std::string(kBody));
  none.send("GET /version HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n");
  for (RawClient* client : {&old, &none}) {
    while (client->receive(5)) {
    }
    EXPECT_TRUE(client->buffer.starts_with("HTTP/1.1 200")) << client->buffer;
  }
}

TEST(ServerFraming, TrailersAreNoHeaders) {
  TestServer server({}, {}, "secret-key-1");
  RawClient client(server.port());
  client.send(chunks("f\r\n{\"content\":\"a\"}\r\n0\r\nX-Api-Key: secret-key-1\r\nX-Request-Id: late\r\n\r\n"));
  const HttpAnswer a = client.answer();
  EXPECT_EQ(a.status, 401);
  EXPECT_EQ(a.head.find("late"), std::string::npos);
}

TEST(ServerFraming, AnEmptyLineAloneBeginsNoRequest) {
  ServerOptions options;
  options.header_timeout = 0.05;
  TestServer server(options);
  RawClient client(server.port());
  for (int i = 0; i < 40; ++i) {  // right after a stream, too, when a read may be pending still
    ASSERT_EQ(client.post("/v1/completions", R"({"prompt":"x","max_tokens":1,"stream":true})").status, 200);
    client.send("\r\n");
  }
  EXPECT_EQ(client.get("/version").status, 200);
  for (int i = 0; i < 2; ++i) {  // as after each body of a client that ends it so
    client.send("\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    EXPECT_EQ(client.get("/version").status, 200);
  }
}

}  // namespace
}  // namespace ibid
