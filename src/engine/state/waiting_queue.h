// WaitingQueue: the sequences that do not run, in the order of their keys. Not owned. Some hold blocks (a fork does,
// and what was placed but not admitted), until others need them.
#pragma once

#include <vector>

#include "base/grow.h"
#include "engine/state/sequence.h"

namespace ibid {

class WaitingQueue {
 public:
  // Room for n sequences; push() needs it. Only this may throw for want of memory.
  void make_room(size_t n) { grow(items_, n); }
  void push(Sequence& sequence);  // into state kWaiting
  // The sequence that goes first; null if none waits.
  Sequence* front() const { return items_.empty() ? nullptr : items_.back(); }
  void remove(Sequence& sequence);
  // From the one that goes first on, until `visit` returns false.
  template <typename Visit>
  void each(Visit visit) const {
    for (size_t i = items_.size(); i-- > 0 && visit(items_[i]);) {
    }
  }
  // Of those that hold blocks the one that goes last, if it is after `keep` (null: any); null if there is none.
  Sequence* last_holder(const Sequence* keep) const;
  // The same of all but this one.
  Sequence* last_other_holder(const Sequence& sequence) const;

 private:
  std::vector<Sequence*>::iterator place_of(const Sequence& sequence);  // where it is, or belongs

  std::vector<Sequence*> items_;  // who goes first stands last
};

}  // namespace ibid
