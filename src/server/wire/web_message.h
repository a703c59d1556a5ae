// One HTTP request and its answer as plain data; the only form in which the rest of the server sees HTTP.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ibid {

class LogitsProcessor;  // sample/logits_processor.h
struct ApiError;
struct FetchedPictures;  // server/request/picture_fetcher.h
struct ModelUse;
struct WebResponse;

struct WebRequest {
  std::string method;
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  double arrived = 0;  // when its header was complete, on the backend's clock
  // Where several models are served: the one that it is for, or why there is none.
  std::optional<std::string> as_tenant = {};  // of the server's own: not from a socket, and needs no key
  std::string model_name = {};
  std::shared_ptr<ModelUse> model = nullptr;
  bool lets_model_go = false;  // unloaded after this request, if nothing else uses it then (Ollama's keep_alive: 0)
  std::shared_ptr<const ApiError> refusal = nullptr;
  std::shared_ptr<const WebResponse> answer = nullptr;   // that needs no model
  std::string tenant = {};                               // whose the model is asked for
  std::shared_ptr<LogitsProcessor> processor = nullptr;  // of the library's caller
  std::function<bool()> is_gone = {};                    // whether the client has gone; null: it has not
  bool may_fetch = false;  // pictures that it names by address can be fetched for it (WebExchange::to_fetch)
  std::shared_ptr<const FetchedPictures> fetched = nullptr;  // those that were

  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return {};
  }
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  std::string_view query() const {
    const size_t mark = target.find('?');
    return mark == std::string::npos ? std::string_view() : std::string_view(target).substr(mark + 1);
  }
};

struct WebResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;                     // end the connection after this
  std::shared_ptr<const ApiError> error;  // that the body describes, if it is a refusal
};

}  // namespace ibid
