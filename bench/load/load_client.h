// LoadClient: many HTTP requests at once from one thread, with the time of each event that comes back. It keeps the raw
// bytes, so that measuring costs next to nothing while the server works; measure.h reads them afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace ibid::load {

struct Target {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::string api_key;

  // "http://host:port"; a port that is not given is 80.
  static Result<Target> parse(const std::string& url);
};

struct LoadRequest {
  std::string path;
  std::string body;  // a POST; empty: a GET
  double at = 0;     // seconds after the client's start; earlier ones go at once
};

// The data of one server-sent event, "[DONE]" included.
struct LoadEvent {
  double at = 0;
  std::string data;
};

// Times in seconds after the client's start; 0 where it did not come to that.
struct LoadAnswer {
  double due = 0;   // when it was to begin; waiting for a free stream counts as latency
  double sent = 0;  // connected, and handed to the system
  double head = 0;
  double end = 0;
  int status = 0;
  std::string retry_after;
  std::vector<LoadEvent> events;
  std::string body;   // of an answer that is no stream
  std::string error;  // why it ended early; empty: whole
  bool ended = false;
};

struct LoadState;

class LoadClient {
 public:
  // At most `n_streams` requests are under way at once, the others wait their turn; 0: no bound.
  explicit LoadClient(Target target, int n_streams = 0, double timeout = 600);
  ~LoadClient();  // leaves what has not ended
  LoadClient(const LoadClient&) = delete;
  LoadClient& operator=(const LoadClient&) = delete;

  // Numbers count from 0 in the order of the calls.
  size_t start(LoadRequest request);
  // Closes its connection with no word, as clients do that go away.
  void leave(size_t number);
  // True as soon as `holds`, which sees the answers so far; false after `seconds`.
  bool wait(double seconds, const std::function<bool(const std::vector<LoadAnswer>&)>& holds) const;
  bool wait_for_all(double seconds) const;
  double now() const;
  // The answers so far.
  std::vector<LoadAnswer> answers() const;

 private:
  std::unique_ptr<LoadState> state_;
};

// All requests, from the first to the last answer.
std::vector<LoadAnswer> run_load(const Target& target, const std::vector<LoadRequest>& requests, int n_streams,
                                 double timeout = 600);

}  // namespace ibid::load
