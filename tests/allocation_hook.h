// Counters and faults of allocations for tests, in a program that includes replaced_new.h in one of its files.
#pragma once

#include <atomic>
#include <cstdint>

namespace ibid::testing {

// Asked before each allocation, from any thread; false lets it fail. Null: all succeed.
inline bool (*may_allocate)() noexcept = nullptr;

// What operator new has given and delete not taken back, as malloc rounds it, and the most of it since somebody set
// that.
inline std::atomic<int64_t> live_bytes = 0, peak_bytes = 0;

// While this lives, allocations of its thread neither count nor fail.
class Spared {
 public:
  Spared() : before_(active) { active = true; }
  ~Spared() { active = before_; }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
  static inline thread_local bool active = false;

 private:
  bool before_;
};

// A fault: of the allocations that are counted while it is planted, those numbered [first, first + n) fail. One at a
// time.
class PlantedFault {
 public:
  PlantedFault(int64_t first, int64_t n) {
    first_ = first;
    end_ = first + n;
    count_ = 0;
    may_allocate = []() noexcept {
      if (Spared::active) return true;
      const int64_t number = count_++;
      return number < first_ || number >= end_;
    };
  }
  ~PlantedFault() { uproot(); }
  void uproot() { may_allocate = nullptr; }
  bool has_struck() const { return count_ > first_; }

 private:
  static inline std::atomic<int64_t> first_, end_, count_;
};

}  // namespace ibid::testing
