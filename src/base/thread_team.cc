#include "base/thread_team.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread_name.h"

namespace ibid {
namespace {

// Long enough to bridge what runs between two loops of a step, short enough that an idle engine uses no core.
constexpr std::chrono::microseconds kSpin{100};
// What is left to one thread of the tasks of a loop: units [begin, end) in one 64-bit word with the loop's number, so
// that a unit of a newer loop cannot be taken with an older loop's body. 2^40 loops are months of nothing else.
constexpr int kUnitBits = 12;
constexpr uint64_t kUnitMask = (uint64_t{1} << kUnitBits) - 1;
constexpr int64_t kMaxUnits = static_cast<int64_t>(kUnitMask);
constexpr uint64_t kOneFromTheFront = uint64_t{1} << kUnitBits, kOneFromTheBack = 1;
constexpr uint64_t range_of(uint64_t loop, int64_t begin, int64_t end) {
  return loop << (2 * kUnitBits) | static_cast<uint64_t>(begin) << kUnitBits | static_cast<uint64_t>(end);
}
constexpr int64_t begin_of(uint64_t range) { return static_cast<int64_t>(range >> kUnitBits & kUnitMask); }
constexpr int64_t end_of(uint64_t range) { return static_cast<int64_t>(range & kUnitMask); }

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadTeam::State {
  // What lies side by side (outputs of a matrix, rows) is read by one thread, whose fetching ahead goes on from task to
  // task. A thread takes a unit by one compare-exchange on the whole word of its range, so a preempted worker delays no
  // other thread and needs no check-in.
  struct alignas(64) Range {
    std::atomic<uint64_t> left{0};
  };

  explicit State(int n) : n_threads(n), ranges(std::make_unique<Range[]>(static_cast<size_t>(std::max(n, 1)))) {}
  const int n_threads;
  const std::unique_ptr<Range[]> ranges;
  alignas(64) std::atomic<int64_t> n_done{0};
  alignas(64) std::atomic<uint32_t> loop{0};  // what sleepers wait on
  std::atomic<int> n_sleeping{0};
  std::atomic<bool> stop{false};

  std::atomic<TaskFn> fn{nullptr};
  std::atomic<void*> body{nullptr};
  std::atomic<int64_t> n_tasks{0};
  std::atomic<int64_t> unit{1};  // tasks that are taken together

  alignas(64) std::atomic<double> beat{0};
  // The caller's thread alone.
  uint32_t n_taken = 0;  // tasks that it has done
  uint64_t n_loops = 0;

  std::vector<std::thread> workers;

  void note_beat() { beat.store(coarse_steady_now(), std::memory_order_relaxed); }
  // Some of them last for milliseconds, others are over before a clock is read.
  void note_task() {
    if (++n_taken % 16 == 0) note_beat();
  }

  void work(int thread) {
    int64_t n_run = 0;
    for (int i = 0; i < n_threads; ++i) {
      const int owner = thread + i < n_threads ? thread + i : thread + i - n_threads;
      n_run += work_on(ranges[static_cast<size_t>(owner)].left, thread, owner == thread);
    }
    if (n_run > 0) n_done.fetch_add(n_run, std::memory_order_release);
  }

  // Runs tasks of one range, from its front or its back, until none is left; how many.
  int64_t work_on(std::atomic<uint64_t>& range, int thread, bool from_the_front) {
    int64_t n_run = 0;
    for (;;) {
      uint64_t left = range.load(std::memory_order_acquire);
      if (begin_of(left) == end_of(left)) return n_run;
      const TaskFn run_task = fn.load(std::memory_order_relaxed);
      void* const argument = body.load(std::memory_order_relaxed);
      const int64_t all = n_tasks.load(std::memory_order_relaxed), together = unit.load(std::memory_order_relaxed);
      // The loads above are of the loop that `left` names if the exchange succeeds: they change only between loops, and
      // a loop does not end while something is left.
      const uint64_t rest = from_the_front ? left + kOneFromTheFront : left - kOneFromTheBack;
      if (!range.compare_exchange_weak(left, rest, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      const int64_t first = (from_the_front ? begin_of(left) : end_of(left) - 1) * together;
      const int64_t end = std::min(all, first + together);
      for (int64_t task = first; task < end; ++task) {
        run_task(argument, task, thread);
        if (thread == 0) note_task();
      }
      n_run += end - first;
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

ThreadTeam::ThreadTeam(int n_threads) : state_(std::make_unique<State>(n_threads)) {
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

int ThreadTeam::n_threads() const { return state_->n_threads; }

void ThreadTeam::run(int64_t n_tasks, TaskFn fn, void* body) {
  State& s = *state_;
  s.note_beat();
  if (s.workers.empty() || n_tasks <= 1) {
    for (int64_t i = 0; i < n_tasks; ++i) {
      fn(body, i, 0);
      s.note_task();
    }
    return;
  }
  // Between loops all ranges are empty, so a straggler of the last loop finds nothing to take while the fields change.
  const int64_t unit = (n_tasks + kMaxUnits - 1) / kMaxUnits, n_units = (n_tasks + unit - 1) / unit;
  s.fn.store(fn, std::memory_order_relaxed);
  s.body.store(body, std::memory_order_relaxed);
  s.n_tasks.store(n_tasks, std::memory_order_relaxed);
  s.unit.store(unit, std::memory_order_relaxed);
  s.n_done.store(0, std::memory_order_relaxed);
  ++s.n_loops;
  for (int i = 0; i < s.n_threads; ++i) {
    const int64_t begin = n_units * i / s.n_threads, end = n_units * (i + 1) / s.n_threads;
    s.ranges[static_cast<size_t>(i)].left.store(range_of(s.n_loops, begin, end), std::memory_order_release);
  }
  s.wake();
  s.work(0);
  for (int n_spins = 0; s.n_done.load(std::memory_order_acquire) < n_tasks;) {
    pause_briefly();
    if (++n_spins > 4096) sched_yield();  // more threads than cores: let the thread that this one waits for run
  }
}

int usable_cores() {
  int n = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  if (const int quota = cgroup_limits().cores; quota > 0) n = std::min(n, quota);
  return n;
}

}  // namespace ibid
