// PictureFetcher: pictures by their addresses, from hosts that the operator has named and from no other, so that a
// client cannot make the server ask for what it pleases (SSRF). Redirects are not followed. A fetch has a bound of
// bytes and of time; all that are held and all that wait have bounds too.
//
// Fetches run on threads of their own, a few at a time, which otherwise sleep: a slow host holds up no other request.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <condition_variable>

#include "base/result.h"

namespace ibid {

// By address: the bytes, or why there are none.
struct FetchedPictures {
  std::map<std::string, Result<std::string>, std::less<>> by_url;
  std::shared_ptr<void> room;  // gives back what they count for
};

// Whether it is an address, and not the picture itself.
inline bool is_picture_address(std::string_view url) {
  return url.starts_with("http://") || url.starts_with("https://");
}

class PictureFetcher {
 public:
  struct Options {
    std::vector<std::string> hosts;      // "images.example", "localhost:8000"; empty: none is fetched
    double timeout = 10;                 // seconds, of one picture from its first byte sent to its last received
    int64_t max_bytes = 20'000'000;      // of a picture
    int64_t max_held_bytes = 256 << 20;  // of all that are fetched and not read yet
    int n_threads = 4;
    size_t max_waiting = 64, max_of_tenant = 16;  // requests
  };
  using Done = std::function<void(std::shared_ptr<const FetchedPictures>)>;

  explicit PictureFetcher(Options options);
  ~PictureFetcher();  // stop()

  bool is_on() const { return !options_.hosts.empty(); }
  // Whether the host of an address is named. A name without a port stands for the scheme's own.
  Status check(const std::string& url) const;
  // Fetches them one after the other and calls `done` on one of the threads. `is_gone`: whether the client has gone, so
  // that they are not needed any more. Where too many wait, `done` is called at once, with an error for each
  // (kExhausted). After stop() it never is.
  void fetch(const std::string& tenant, std::vector<std::string> urls, std::function<bool()> is_gone, Done done);
  // What runs is cancelled, what waits is dropped.
  void stop();

 private:
  struct Job {
    std::string tenant;
    std::vector<std::string> urls;
    std::function<bool()> is_gone;
    Done done;
  };
  void run();
  void work(const Job& job);
  Result<std::string> get(const std::string& url, const std::function<bool()>& is_gone, int64_t& held);

  const Options options_;
  std::shared_ptr<std::atomic<int64_t>> held_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<std::string, size_t> of_tenant_;  // waiting and under way
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;  // begun with the first fetch
};

}  // namespace ibid
