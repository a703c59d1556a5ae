#include "server/request/mailbox.h"

#include <new>

#include "base/grow.h"

namespace ibid {

void Mailbox::put(Output output) {
  {
    const std::lock_guard lock(mutex_);
    if (keeps_tokens_) {
      if (has_ended_) return;
      grow(given_.tokens, given_.tokens.size() + output.tokens.size());
      has_ended_ = output.finished;
      if (!output.tokens.empty()) given_.mirostat_mu = output.mirostat_mu;
    }
    outputs_.push_back(std::move(output));
    if (keeps_tokens_) {
      for (const TokenRecord& record : outputs_.back().tokens) given_.tokens.push_back(record.chosen.token);
    }
    if (awake_) return;
    awake_ = true;
  }
  wake();
}

std::optional<Mailbox::Given> Mailbox::stop(RequestId id, Error error) {
  Given given;
  {
    const std::lock_guard lock(mutex_);
    if (!keeps_tokens_ || has_ended_ || lost_) return std::nullopt;
    Output& last = outputs_.emplace_back();
    last.request = id;
    last.usage.completion_tokens = static_cast<int32_t>(given_.tokens.size());
    last.fail(std::move(error));
    has_ended_ = true;
    given = std::move(given_);
    if (awake_) return given;
    awake_ = true;
  }
  wake();
  return given;
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
