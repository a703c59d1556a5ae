#include "server/access/fair_queue.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace ibid {

double thread_seconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void FairQueue::push(const std::string& tenant, double weight, Work work) {
  const std::lock_guard lock(mutex_);
  Tenant& its = tenants_[tenant];
  its.work.push_back(std::move(work));
  if (its.work.size() == 1) its.next = std::max(its.next, now_);
  its.weight = weight;
  ++n_waiting_;
  changed_.notify_one();
}

void FairQueue::run_next(std::unique_lock<std::mutex>& lock) {
  auto first = tenants_.end();
  for (auto t = tenants_.begin(); t != tenants_.end(); ++t) {
    if (!t->second.work.empty() && (first == tenants_.end() || t->second.next < first->second.next)) first = t;
  }
  const std::string tenant = first->first;
  Work work = std::move(first->second.work.front());
  first->second.work.pop_front();
  --n_waiting_;
  now_ = first->second.next;
  // Who has nothing to do and is not ahead is as one that never was here.
  std::erase_if(tenants_,
                [&](const auto& t) { return t.second.work.empty() && t.second.next <= now_ && &t != &*first; });
  lock.unlock();
  const double begin = clock_();
  const auto charge = [&] {
    work = nullptr;  // what it holds ends here, and not under the lock
    const double seconds = std::max(0.0, clock_() - begin);
    lock.lock();
    Tenant& its = tenants_[tenant];
    its.next = std::max(its.next, now_) + seconds / its.weight;
    if (n_waiting_ == 0) tenants_.clear(), now_ = 0;  // no tenant had to wait for it
  };
  try {
    work();
  } catch (...) {
    charge();
    throw;
  }
  charge();
}

void FairQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return n_waiting_ > 0 || is_stopped_; });
    if (is_stopped_) return;
    run_next(lock);
  }
}

bool FairQueue::run_one() {
  std::unique_lock lock(mutex_);
  if (n_waiting_ == 0) return false;
  run_next(lock);
  return true;
}

void FairQueue::stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

bool FairQueue::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return is_stopped_;
}

void FairQueue::clear() {
  std::map<std::string, Tenant> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(tenants_);
  n_waiting_ = 0;
}

}  // namespace ibid
