#include "engine/state/waiting_queue.h"

#include <algorithm>

#include "base/check.h"

namespace ibid {

std::vector<Sequence*>::iterator WaitingQueue::place_of(const Sequence& s) {
  return std::lower_bound(items_.begin(), items_.end(), &s,
                          [](const Sequence* a, const Sequence* b) { return b->account.key < a->account.key; });
}

void WaitingQueue::push(Sequence& s) {
  s.state = SequenceState::kWaiting;
  CHECK(items_.size() < items_.capacity(), "a sequence was queued without room for it");
  const auto at = place_of(s);
  CHECK(at == items_.end() || *at != &s, "a sequence was queued twice");
  items_.insert(at, &s);
}

void WaitingQueue::remove(Sequence& s) {
  const auto at = place_of(s);
  CHECK(at != items_.end() && *at == &s, "a sequence is not where its key puts it");
  items_.erase(at);
}

Sequence* WaitingQueue::last_holder(const Sequence* keep) const {
  for (Sequence* s : items_) {
    if (s == keep) return nullptr;
    if (s->place.has_blocks()) return s;
  }
  return nullptr;
}

Sequence* WaitingQueue::last_other_holder(const Sequence& sequence) const {
  for (Sequence* s : items_) {
    if (s != &sequence && s->place.has_blocks()) return s;
  }
  return nullptr;
}

}  // namespace ibid
