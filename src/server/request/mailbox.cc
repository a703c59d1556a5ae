#include "server/request/mailbox.h"

#include <new>

#include "base/grow.h"

namespace ibid {

void Mailbox::put(Output output) {
  {
    const std::lock_guard lock(mutex_);
    if (keeps_tokens_) {
      if (has_ended_ || (source_ && output.request != *source_)) return;
      if (source_) output.request = id_;
      grow(given_.tokens, given_.tokens.size() + output.tokens.size());
      has_ended_ = output.finished;
      if (!output.tokens.empty()) given_.mirostat_mu = output.mirostat_mu;
      given_.n_text += output.text.size();
      given_.usage = output.usage;
      given_.timing = output.timing;
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

std::optional<Mailbox::Given> Mailbox::given() const {
  const std::lock_guard lock(mutex_);
  if (!goes_on()) return std::nullopt;
  return given_;
}

std::optional<Mailbox::Given> Mailbox::hand_over(RequestId id, RequestId source) {
  const std::lock_guard lock(mutex_);
  if (!goes_on()) return std::nullopt;
  Given given = given_;
  id_ = id;
  source_ = source;
  return given;
}

std::optional<RequestId> Mailbox::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

std::string Mailbox::take_resume() {
  const std::lock_guard lock(mutex_);
  return std::exchange(resume_, {});
}

std::optional<Mailbox::Given> Mailbox::stop(RequestId id, Error error,
                                            const std::function<std::string(const Given&)>& resume) {
  Given given;
  {
    const std::lock_guard lock(mutex_);
    if (!goes_on()) return std::nullopt;
    if (resume) resume_ = resume(given_);
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
