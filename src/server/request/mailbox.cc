#include "server/request/mailbox.h"

#include <new>

namespace ibid {

void Mailbox::put(Output output) {
  {
    const std::lock_guard lock(mutex_);
    outputs_.push_back(std::move(output));
    if (awake_) return;
    awake_ = true;
  }
  wake();
}

void Mailbox::lose() {
  lost_ = true;
  wake();
}

void Mailbox::wake() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      return wake_();
    } catch (const std::bad_alloc&) {
    }
  }
  const std::lock_guard lock(mutex_);
  awake_ = false;
}

std::vector<Output> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  awake_ = false;
  return std::exchange(outputs_, {});
}

void OutputRouter::add(RequestId id, std::shared_ptr<Mailbox> mailbox) {
  const std::lock_guard lock(mutex_);
  mailboxes_[id] = std::move(mailbox);
}

void OutputRouter::remove(RequestId id) {
  const std::lock_guard lock(mutex_);
  mailboxes_.erase(id);
}

void OutputRouter::deliver(std::span<Output> outputs) {
  for (Output& output : outputs) {
    std::shared_ptr<Mailbox> mailbox;
    {
      const std::lock_guard lock(mutex_);
      const auto found = mailboxes_.find(output.request);
      if (found == mailboxes_.end()) continue;
      mailbox = found->second;
    }
    try {
      mailbox->put(std::move(output));
    } catch (const std::bad_alloc&) {
      mailbox->lose();
    }
  }
}

size_t OutputRouter::size() const {
  const std::lock_guard lock(mutex_);
  return mailboxes_.size();
}

}  // namespace ibid
