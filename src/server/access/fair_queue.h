// FairQueue: tenants' work for one thread. Whose work has taken least time so far, by its weight, comes next, so that
// one with much to do holds up another's by the piece that is under way and no more. Who comes back after a while
// begins where the others are: time that was not asked for is not saved up (start-time fair queueing: Goyal, Vin,
// Cheng, 1996). Each tenant's own come in order. Safe from any thread, but run() is of one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace ibid {

class FairQueue {
 public:
  using Work = std::function<void()>;

  // `clock`: in seconds, by which the work of run()'s thread is measured.
  explicit FairQueue(std::function<double()> clock) : clock_(std::move(clock)) {}

  void push(const std::string& tenant, double weight, Work work);
  // Until stop(). An exception of work comes out of it; call it again then.
  void run();
  // The piece of work whose turn it is. False: there is none.
  bool run_one();
  void stop();
  bool is_stopped() const;
  void clear();  // what is left, undone; after run() has returned

 private:
  struct Tenant {
    double weight = 1;
    double next = 0;  // virtual time at which its next piece begins
    std::deque<Work> work;
  };
  void run_next(std::unique_lock<std::mutex>& lock);

  const std::function<double()> clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Tenant> tenants_;  // with work, or ahead of the virtual time
  size_t n_waiting_ = 0;
  double now_ = 0;  // virtual time: when the piece that ran last began
  bool is_stopped_ = false;
};

// Seconds of the processor that the calling thread has had.
double thread_seconds();

}  // namespace ibid
