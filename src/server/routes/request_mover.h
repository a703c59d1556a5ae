// RequestMover: of a server that drains (--drain-to), moves what is under way to another replica. Each request is sent
// there with what resumes its answer; until the first tokens come back the engine here goes on with it, and from then
// on the replica's outputs take the place of the engine's, past what the client has been given by then. So the client
// sees one answer, with the bytes of one that was never moved (docs/users/replicas.md).
//
// A replica that refuses, gives other tokens than were given here, breaks off or is silent for kSilence changes
// nothing: the request goes on here. One that is not there yet, or is full, is asked again each second.
//
// Bounds: kMostAtOnce requests are moved at a time, each on a thread of its own (the process is about to end, and an
// answer takes as long as its client reads); a line has kMaxOutputLine bytes, an answer the tokens that its request may
// have, and kMostTokenText bytes of text for each.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/observe/request_log.h"
#include "server/request/movable_requests.h"

namespace ibid {

class RequestMover {
 public:
  static constexpr int kMostAtOnce = 64;
  static constexpr int kSilence = 30;             // seconds; a replica sends a line each ten
  static constexpr size_t kMostTokenText = 1024;  // bytes

  // `url` of the replica, with its root path; http:// or https://.
  static Status check(const std::string& url);
  // Begins. The requests and the log outlive it.
  RequestMover(const std::string& url, const JsonLimits& limits, MovableRequests& requests, RequestLog& log);
  ~RequestMover();  // stop()
  // Ends what still comes from the replica as cancelled, and moves nothing any more. Waits for its threads.
  void stop();

 private:
  struct Arrival;
  void loop();
  void move(RequestMove move);
  // Of the replica's answer.
  Status take(Arrival& arrival, std::string_view bytes);
  Status take_line(Arrival& arrival, std::string_view line);
  static Status compare(const Arrival& arrival, const Output& output, const Mailbox::Given& given);
  static void put(Arrival& arrival, Output output, Mailbox& mailbox);
  void give_back(const Arrival& arrival, const Status& why);
  void refused(const RequestMove& move, int status, const Status& why);
  void say_once(const std::string& sentence);

  const std::string url_;
  const JsonLimits limits_;
  MovableRequests& requests_;
  RequestLog& log_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> n_moved_ = 0, n_taken_back_ = 0;
  std::mutex mutex_;  // guards said_, and the waiting
  std::condition_variable wake_;
  std::vector<std::string> said_;
  std::vector<std::thread> threads_;
};

}  // namespace ibid
