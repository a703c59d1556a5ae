// WebExchange: an HTTP request under way, from its first gate to its line in the log. FrontDoor::handle() makes it and
// FrontDoor::finish() ends it; in between it belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/answer/api_dialects.h"
#include "server/answer/generation.h"
#include "server/observe/live_view.h"
#include "server/observe/otlp.h"
#include "server/request/mailbox.h"
#include "server/wire/byte_budget.h"
#include "server/wire/web_message.h"

namespace ibid {

// How much of a request's work a call may do. kBrief is for threads that serve many connections: it reads a small body,
// and puts off what may take long however small the body is: a grammar to compile, a body that holds many others.
enum class Effort : uint8_t { kWhole, kBrief };

struct WebExchange {
  std::shared_ptr<ModelUse> model;            // of a fleet; released after all that refers to it
  std::optional<ByteBudget::Share> promised;  // of what the answer may come to hold
  WebResponse response;                       // complete, unless there is a generation
  std::unique_ptr<Generation> generation;     // null: the response is complete
  std::shared_ptr<Mailbox> mailbox;
  std::vector<WebExchange> instances;  // of /predict; there is no generation then, and the response is made of theirs
  std::vector<Request> held;  // sequences that the engine gets when those before them are done; the next one last
  std::shared_ptr<ActiveRow> row;
  std::string request_id;
  std::string tenant;
  std::string method;
  const char* route = "other";
  const ApiDialect* api = &dialect_of(ApiStyle::kChat);  // whose form the answer has, and its errors
  bool is_put_off = false;            // nothing has begun, and nothing is to be finished: handle it again, whole
  std::vector<std::string> to_fetch;  // of a request that is put off: addresses of pictures, which it needs then
  bool is_ours = false;               // the body has been read as one of ours, so that errors have our names of fields
  double arrived = 0;
  int64_t n_sequences = 0;  // that count for the tenant
  std::optional<TraceParent> trace;
};

// 200, with a body of JSON.
inline WebResponse json_response(std::string body) {
  WebResponse response;
  response.body = std::move(body);
  return response;
}

}  // namespace ibid
