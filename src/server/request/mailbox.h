// The queue from the engine's thread to the connections: a Mailbox per HTTP request, and the OutputRouter that knows
// which engine request belongs to which mailbox. Putting never blocks on a connection.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/state/request.h"

namespace ibid {

class Mailbox {
 public:
  // `wake` is called on the engine's thread when the box goes from empty to not empty. Where it throws (no memory)
  // twice, the next put tries again.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  void put(Output output);
  // An output could not be kept for want of memory: its answer cannot be whole any more.
  void lose();
  bool lost() const { return lost_; }
  std::vector<Output> take();

 private:
  std::mutex mutex_;
  std::vector<Output> outputs_;
  bool awake_ = false;
  std::atomic<bool> lost_ = false;
  void wake();
  std::function<void()> wake_;
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
