// ThreadTeam: a fixed set of threads that run one parallel loop at a time. Workers spin briefly between loops and then
// sleep, so that a forward pass of hundreds of short loops pays microseconds each and an idle engine costs nothing.
//
// One thread (the caller's) drives a team; parallel_for must not be called from two threads at once, nor nested.
// Nothing is allocated by a loop. What a task computes may not depend on n_threads or on which thread runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace ibid {

class ThreadTeam {
 public:
  // The caller counts as one; n_threads >= 1. Throws std::system_error where the system gives no further thread.
  explicit ThreadTeam(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int n_threads() const;
  // When the caller's thread last began a loop or got on in one, on steady_clock(), some milliseconds late; 0 before
  // the first. From any thread. Stands still where a task never ends, whichever thread has it.
  double last_beat() const;

  // Calls body(task, thread) once for every task in [0, n_tasks), thread in [0, n_threads); returns when all are done.
  // Each thread has a run of neighbouring tasks of its own, which it goes through in ascending order; then it takes the
  // last ones of the others' runs (work stealing: Blumofe and Leiserson 1999), so that a slow thread holds up no more
  // than a task.
  template <typename Body>
  void parallel_for(int64_t n_tasks, Body&& body) {
    using B = std::remove_reference_t<Body>;
    run(
        n_tasks, [](void* b, int64_t task, int thread) { (*static_cast<B*>(b))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using TaskFn = void (*)(void* body, int64_t task, int thread);
  void run(int64_t n_tasks, TaskFn fn, void* body);

  struct State;
  std::unique_ptr<State> state_;
};

// The cores that affinity and the quotas of control groups (base/cgroup.h) leave to this process; at least 1.
int usable_cores();

}  // namespace ibid
