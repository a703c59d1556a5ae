#include "base/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/thread_name.h"

namespace ibid {
namespace {

// Long enough to bridge what runs between two loops of a step, short enough that an idle engine uses no core.
constexpr std::chrono::microseconds kSpin{100};
// Loop numbers and task numbers share one 64-bit word; see State::ticket.
constexpr int kTaskBits = 32;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadTeam::State {
  // High half: number of the loop. Low half: the next task. A worker takes a task by raising the low half with one
  // compare-exchange on the whole word, so a task of a newer loop cannot be taken with an older loop's body: a worker
  // that was off its core holds nobody up and needs no check-in.
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<int64_t> n_done{0};
  alignas(64) std::atomic<uint32_t> loop{0};  // what sleepers wait on
  std::atomic<int> n_sleeping{0};
  std::atomic<bool> stop{false};

  std::atomic<TaskFn> fn{nullptr};
  std::atomic<void*> body{nullptr};
  std::atomic<int64_t> n_tasks{0};

  alignas(64) std::atomic<double> beat{0};
  uint32_t n_taken = 0;  // tasks that the caller's thread has done

  std::vector<std::thread> workers;

  void note_beat() { beat.store(coarse_steady_now(), std::memory_order_relaxed); }
  // Some of them last for milliseconds, others are over before a clock is read.
  void note_task() {
    if (++n_taken % 16 == 0) note_beat();
  }

  void work(int thread) {
    for (;;) {
      uint64_t now = ticket.load(std::memory_order_acquire);
      const int64_t task = static_cast<int64_t>(now & kTaskMask);
      const TaskFn run_task = fn.load(std::memory_order_relaxed);
      void* const argument = body.load(std::memory_order_relaxed);
      if (task >= n_tasks.load(std::memory_order_relaxed)) return;
      // The loads above are of the loop that `now` names if the exchange succeeds: they change only between loops.
      if (!ticket.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      run_task(argument, task, thread);
      if (thread == 0) note_task();
      n_done.fetch_add(1, std::memory_order_release);
    }
  }

  void worker_main(int thread) {
    name_thread("ibid-worker");
    uint32_t seen = 0;
    for (;;) {
      const auto spin_end = std::chrono::steady_clock::now() + kSpin;
      int n_spins = 0;
      while (loop.load(std::memory_order_acquire) == seen && !stop.load(std::memory_order_relaxed)) {
        pause_briefly();
        if (++n_spins % 64 == 0 && std::chrono::steady_clock::now() > spin_end) {
          n_sleeping.fetch_add(1, std::memory_order_seq_cst);
          loop.wait(seen, std::memory_order_seq_cst);
          n_sleeping.fetch_sub(1, std::memory_order_relaxed);
        }
      }
      if (stop.load(std::memory_order_acquire)) return;
      seen = loop.load(std::memory_order_acquire);
      work(thread);
    }
  }

  void end() {
    stop.store(true, std::memory_order_release);
    wake();
    for (std::thread& worker : workers) worker.join();
  }

  void wake() {
    loop.fetch_add(1, std::memory_order_seq_cst);
    if (n_sleeping.load(std::memory_order_seq_cst) > 0) loop.notify_all();
  }
};

ThreadTeam::ThreadTeam(int n_threads) : state_(std::make_unique<State>()) {
  CHECK(n_threads >= 1, "a team has at least the caller's thread");
  try {
    for (int i = 1; i < n_threads; ++i) state_->workers.emplace_back([s = state_.get(), i] { s->worker_main(i); });
  } catch (...) {  // no thread may outlive this
    state_->end();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { state_->end(); }

double ThreadTeam::last_beat() const { return state_->beat.load(std::memory_order_relaxed); }

int ThreadTeam::n_threads() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadTeam::run(int64_t n_tasks, TaskFn fn, void* body) {
  CHECK(n_tasks <= static_cast<int64_t>(kTaskMask / 2), "too many tasks in one loop");
  State& s = *state_;
  s.note_beat();
  if (s.workers.empty() || n_tasks <= 1) {
    for (int64_t i = 0; i < n_tasks; ++i) {
      fn(body, i, 0);
      s.note_task();
    }
    return;
  }
  // Between loops n_tasks is 0 and the ticket's low half is 0, so a straggler of the last loop finds nothing to take
  // while the fields change; the new loop number then makes its exchange fail.
  s.fn.store(fn, std::memory_order_relaxed);
  s.body.store(body, std::memory_order_relaxed);
  s.n_done.store(0, std::memory_order_relaxed);
  const uint64_t loop = (s.ticket.load(std::memory_order_relaxed) >> kTaskBits) + 1;
  s.ticket.store(loop << kTaskBits, std::memory_order_release);
  s.n_tasks.store(n_tasks, std::memory_order_release);
  s.wake();
  s.work(0);
  for (int n_spins = 0; s.n_done.load(std::memory_order_acquire) < n_tasks;) {
    pause_briefly();
    if (++n_spins > 4096) sched_yield();  // more threads than cores: let the one that we wait for run
  }
  s.n_tasks.store(0, std::memory_order_relaxed);
}

namespace {

// A cgroup's quota in whole cores, rounded down (a thread beyond it is throttled and stalls every loop); 0: no limit.
int quota_cores() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period));
  }
  double quota_us = 0;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1_quota >> quota_us && v1_period >> period && quota_us > 0 && period > 0) {
    return std::max(1, static_cast<int>(quota_us / period));
  }
  return 0;
}

}  // namespace

int usable_cores() {
  int n = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  if (const int quota = quota_cores(); quota > 0) n = std::min(n, quota);
  return n;
}

}  // namespace ibid
