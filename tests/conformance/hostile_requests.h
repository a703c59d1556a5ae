// Hostile HTTP requests by class, made from a random number; every answer to them must be a 4xx or a closed connection.
#pragma once

#include <map>
#include <random>
#include <string>

#include "conformance/raw_client.h"
#include "conformance/server_fixture.h"

namespace ibid {

// One hostile request of each class; the number picks its details.
struct HostileClass {
  const char* name;
  std::string (*make)(std::mt19937& random);
};

inline std::string random_bytes(std::mt19937& random, size_t n) {
  std::string s;
  for (size_t i = 0; i < n; ++i) s += static_cast<char>(random());
  return s;
}
inline std::string with_body(std::string_view body) {
  return RawClient::post_text("/v1/chat/completions", body, "Connection: close\r\n");
}
inline const char* pick(std::mt19937& random, std::initializer_list<const char*> items) {
  return items.begin()[random() % items.size()];
}

inline const HostileClass kHostileClasses[] = {
    {"noise", [](std::mt19937& r) { return random_bytes(r, 1 + r() % 300) + "\r\n\r\n"; }},
    {"bad request line",
     [](std::mt19937& r) {
       return std::string(pick(r, {"GET", "GET /", "GET / HTTP/9.9", "GET  / HTTP/1.1", "G\x01T / HTTP/1.1",
                                   "/ GET HTTP/1.1", "GET / HTTP/1.1 x", "GET \x80 HTTP/1.1"})) +
              "\r\n\r\n";
     }},
    {"bad header",
     [](std::mt19937& r) {
       return std::string("POST /v1/completions HTTP/1.1\r\n") +
              pick(r, {"Host", ": x", "Ho st: x", "Host: x\x01", "H\x80: x", " Host: x", "Host x"}) +
              "\r\nConnection: close\r\n\r\n";
     }},
    {"bad length",
     [](std::mt19937& r) {
       return std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ") +
              pick(r, {"-1", "1x", "99999999999999999999", "1073741824", "0x10", "", "1,2", "18446744073709551616"}) +
              "\r\n\r\n{}";
     }},
    {"two lengths",
     [](std::mt19937& r) {
       return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: " +
              std::to_string(3 + r() % 9) + "\r\n\r\n{}";
     }},
    {"length and chunks",
     [](std::mt19937&) {
       return std::string(
           "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: "
           "chunked\r\nConnection: "
           "close\r\n\r\n2\r\n{}\r\n0\r\n\r\n");
     }},
    {"broken chunks",
     [](std::mt19937& r) {
       return std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n") +
              pick(r, {"zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}0\r\n\r\n", "-2\r\n{}\r\n0\r\n\r\n",
                       "fffffffffffffffff\r\n{}\r\n", "2\n{}\n0\n\n", "2;\x01\r\n{}\r\n0\r\n\r\nx"});
     }},
    {"unknown coding",
     [](std::mt19937& r) {
       return std::string(
                  "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: ") +
              pick(r, {"gzip", "chunked, gzip", "identity, x", "xchunked"}) + "\r\n\r\n{}";
     }},
    {"cut body",
     [](std::mt19937& r) {
       return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(10 + r() % 1000) +
              "\r\n\r\n{\"p";
     }},
    {"no json", [](std::mt19937& r) { return with_body(random_bytes(r, 1 + r() % 100)); }},
    {"invalid utf-8",
     [](std::mt19937& r) {
       return with_body(std::string("{\"messages\":[{\"role\":\"user\",\"content\":\"") +
                        pick(r, {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) + "\"}]}");
     }},
    {"no number",
     [](std::mt19937& r) {
       return with_body(
           chat_body("x", std::string(pick(r, {"\"temperature\":", "\"seed\":", "\"top_k\":", "\"max_tokens\":"})) +
                              pick(r, {"NaN", "Infinity", "-Infinity", "1e999", "0x10", "01", "1.", "--1", "1e"})));
     }},
    {"huge number",
     [](std::mt19937& r) {
       return with_body(chat_body(
           "x", std::string(pick(r, {"\"temperature\":", "\"seed\":", "\"top_k\":", "\"max_tokens\":", "\"n\":"})) +
                    pick(r, {"99999999999999999999", "1e300", "-9223372036854775809", "18446744073709551616"})));
     }},
    {"key twice",
     [](std::mt19937& r) {
       return with_body(chat_body("x", std::string("\"") + pick(r, {"n", "seed", "stop", "x"}) + "\":1,\"" +
                                           pick(r, {"messages", "messages"}) + "\":[]"));
     }},
    {"deep",
     [](std::mt19937& r) {
       const size_t n = 40 + r() % 20000;
       return with_body(chat_body("x", "\"user\":" + std::string(n, '[') + std::string(n, ']')));
     }},
    {"wrong type",
     [](std::mt19937& r) {
       return with_body(
           chat_body("x", std::string(pick(r, {"\"temperature\":", "\"seed\":", "\"stop\":", "\"logit_bias\":",
                                               "\"n\":", "\"stream_options\":", "\"stop_token_ids\":"})) +
                              pick(r, {"[[]]", "true", "[{\"a\":1}]", "-7.25"})));
     }},
    {"out of range",
     [](std::mt19937& r) {
       return with_body(
           chat_body("x", pick(r, {"\"temperature\":-1", "\"n\":0", "\"n\":100000", "\"top_p\":2",
                                   "\"top_logprobs\":21", "\"logprobs\":true,\"top_logprobs\":-1",
                                   "\"presence_penalty\":9", "\"max_tokens\":0", "\"logit_bias\":{\"99999\":1}"})));
     }},
    {"many stops",
     [](std::mt19937& r) {
       std::string s = "\"stop\":[\"a\"";
       for (size_t i = 0; i < 70 + r() % 500; ++i) s += ",\"b\"";
       return with_body(chat_body("x", s + "]"));
     }},
    {"wrong message",
     [](std::mt19937& r) {
       return with_body(
           std::string("{\"messages\":") +
           pick(r, {"[]", "{}", "[1]", "[{}]", "[{\"role\":\"x\",\"content\":\"\"}]", "[{\"role\":\"user\"}]",
                    "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "\"x\"", "null"}) +
           "}");
     }},
    {"unserved",
     [](std::mt19937& r) {
       return with_body(chat_body("x", pick(r, {"\"tools\":[{}]", "\"response_format\":{\"type\":\"yaml\"}",
                                                "\"functions\":[1]", "\"grammar\":\"x\"", "\"lora\":[1]"})));
     }},
    {"wrong path",
     [](std::mt19937& r) {
       return std::string("GET /") + pick(r, {"..", "%2e%2e/etc", "v1", "v1/models/x", "v2/x", "a?b", "//"}) +
              std::to_string(r() % 100) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
     }},
    {"wrong method",
     [](std::mt19937& r) {
       return std::string(pick(r, {"PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "FOO"})) +
              " /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
     }},
    {"many headers",
     [](std::mt19937& r) {
       std::string s = "GET /health HTTP/1.1\r\n";
       for (size_t i = 0; i < 3000 + r() % 500; ++i) s += "a" + std::to_string(i) + ": b\r\n";
       return s + "\r\n";
     }},
    {"half closed",
     [](std::mt19937&) {
       return std::string("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{\"pro");
     }},
};

// Sends the i-th hostile request and reads the answer; counts what is neither a 4xx nor the end of the connection.
inline void attack(int port, int i, std::mt19937& random, std::map<std::string, int>& wrong) {
  const HostileClass& c = kHostileClasses[static_cast<size_t>(i) % std::size(kHostileClasses)];
  const std::string text = c.make(random);
  RawClient client(port);
  client.send(text);
  const std::string name = c.name;
  if (i % 3 != 0 || name.starts_with("cut") || name.starts_with("half")) client.half_close();
  if (!refused_or_closed(client)) ++wrong[name];
}

}  // namespace ibid
