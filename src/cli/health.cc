// Whether a server is ready, for scripts and for health checks of containers, which have no other client.
#include <cstdio>

#include "base/json.h"
#include "base/quoted.h"
#include "cli/options/options.h"
#include "format/http_client.h"

namespace ibid::cli {
namespace {

constexpr size_t kMaxAnswer = 4096;  // bytes; ibid's own has some sixty

// "loading" of {"status": "loading", ...}, and of other texts their beginning.
std::string status_word(const std::string& answer) {
  const Result<Json> json = parse_json(answer);
  const Json* word = json ? json->find("status") : nullptr;
  return shown(word != nullptr && word->string() != nullptr ? *word->string() : answer);
}

}  // namespace

int health(const HealthOptions& options) {
  HttpRequest request;
  request.url = options.url;
  while (request.url.ends_with('/')) request.url.pop_back();
  request.url += "/health";
  request.timeout_s = options.timeout_s;
  request.max_redirects = 0;
  int status = 0;
  std::string answer;
  HttpHandler handler;
  handler.on_head = [&](const std::vector<HttpHead>& heads) -> Status {
    status = heads.back().status;
    return {};
  };
  handler.on_body = [&](std::string_view bytes) -> Status {
    answer += bytes;
    if (answer.size() <= kMaxAnswer) return {};
    return invalid(request.url + " answers with more than 4096 bytes; expected a server's health.");
  };
  if (const Status asked = http_get(request, handler); !asked) return fail(asked.error());
  if (status != 200) {
    return fail(unavailable(request.url + " answers " + std::to_string(status) + ": " + status_word(answer) + "."));
  }
  std::printf("%s\n", status_word(answer).c_str());
  return kOk;
}

}  // namespace ibid::cli
