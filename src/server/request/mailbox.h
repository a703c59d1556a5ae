// The queue from the engine's thread to the connections: a Mailbox per HTTP request, and the OutputRouter that knows
// which engine request belongs to which mailbox. Putting never blocks on a connection.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
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
    size_t n_text = 0;      // bytes of text
    Usage usage;            // as of the last output
    Timing timing;
  };

  // `wake` is called on the engine's thread when the box goes from empty to not empty. Where it throws (no memory)
  // twice, the next put tries again. `keeps_tokens`: of the one answer whose outputs come here, for given() and what
  // follows it.
  explicit Mailbox(std::function<void()> wake, bool keeps_tokens = false)
      : wake_(std::move(wake)), keeps_tokens_(keeps_tokens) {}
  bool keeps_tokens() const { return keeps_tokens_; }
  void put(Output output);
  // From any thread; nothing if the answer has ended, or its tokens are not kept.
  std::optional<Given> given() const;
  // The same; from now on only outputs of `source` are taken, as outputs of `id`, whose answer goes on with them.
  std::optional<Given> hand_over(RequestId id, RequestId source);
  // The same; what is put from now on is dropped, and the answer ends here with this error, after what has been put.
  // `resume`, of what has been given, is for take_resume().
  std::optional<Given> stop(RequestId id, Error error,
                            const std::function<std::string(const Given&)>& resume = nullptr);
  // Whose outputs are taken, where it was handed over.
  std::optional<RequestId> source() const;
  // What resumes the answer that stop() has ended, once; empty: nothing does.
  std::string take_resume();
  // An output could not be kept for want of memory: its answer cannot be whole any more.
  void lose();
  bool lost() const { return lost_; }
  std::vector<Output> take();

 private:
  bool goes_on() const { return keeps_tokens_ && !has_ended_ && !lost_; }
  mutable std::mutex mutex_;
  std::vector<Output> outputs_;
  Given given_;
  std::optional<RequestId> source_;
  RequestId id_{};  // where there is a source
  std::string resume_;
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
