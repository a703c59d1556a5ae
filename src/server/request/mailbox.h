// The queue from the engine's thread to the connections: a Mailbox per HTTP request, and the OutputRouter that knows
// which engine request belongs to which mailbox. Putting never blocks on a connection.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/state/request.h"

namespace ibid {

class Mailbox {
 public:
  // What has been put of one answer.
  struct Given {
    std::vector<TokenId> tokens;
    float mirostat_mu = 0;  // after them (Output::mirostat_mu)
  };

  // `wake` is called on the engine's thread when the box goes from empty to not empty. Where it throws (no memory)
  // twice, the next put tries again. `keeps_tokens`: of the one answer whose outputs come here, for stop().
  explicit Mailbox(std::function<void()> wake, bool keeps_tokens = false)
      : wake_(std::move(wake)), keeps_tokens_(keeps_tokens) {}
  void put(Output output);
  // From any thread: what is put from now on is dropped, and the answer ends here with this error, after what has been
  // put. Returns that; nothing if the answer has ended, or its tokens are not kept.
  std::optional<Given> stop(RequestId id, Error error);
  // An output could not be kept for want of memory: its answer cannot be whole any more.
  void lose();
  bool lost() const { return lost_; }
  std::vector<Output> take();

 private:
  std::mutex mutex_;
  std::vector<Output> outputs_;
  Given given_;
  bool has_ended_ = false;
  bool awake_ = false;
  std::atomic<bool> lost_ = false;
  void wake();
  std::function<void()> wake_;
  const bool keeps_tokens_;
};

class OutputRouter {
 public:
  void add(RequestId id, std::shared_ptr<Mailbox> mailbox);
  void remove(RequestId id);
  // Outputs of unknown requests are dropped: their client has gone. Throws nothing.
  void deliver(std::span<Output> outputs);
  size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<Mailbox>> mailboxes_;
};

}  // namespace ibid
