// Whether times and memory are meaningful: not in builds that sanitizers slow down. And the meaning of a limit in
// seconds on this machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

namespace ibid {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasured = false;
#else
inline constexpr bool kMeasured = true;
#endif

// Whether limits on the clock are checked as they are: only where a quiet machine is promised (`./runtests --by-hand`).
inline bool wall_clock_counts() {
  const char* asked = std::getenv("IBID_WALL_CLOCK");
  return asked != nullptr && std::string_view(asked) == "1";
}

// Of the processor that this process took: what else the machine does is not in it.
inline double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// How many times as long this processor takes now as one that sorts 65,536 numbers in 2.7 ms, which limits of the
// processor's time are meant for; 1 where it is as fast. A shared Zen 3 takes 4.4 ms, and more while the core's twin
// works for another. Narrower vectors cost a draw more than they cost sorting, so 2.7 and not what is usual.
inline double slowness() {
  constexpr double kSortSeconds = 2.7e-3;
  std::mt19937 rng(1);
  std::vector<uint32_t> numbers(size_t{1} << 16);
  for (uint32_t& n : numbers) n = static_cast<uint32_t>(rng());
  double seconds[5];
  for (double& s : seconds) {
    std::vector<uint32_t> sorted = numbers;
    const double begin = processor_seconds();
    std::sort(sorted.begin(), sorted.end());
    s = processor_seconds() - begin;
  }
  std::sort(std::begin(seconds), std::end(seconds));
  return std::max(1.0, seconds[2] / kSortSeconds);
}

// The limit of what took so long, in the same unit: times the slowness where it is missed otherwise. Where no quiet
// machine is promised, eight times that: work that nothing bounds grows past this too, and a neighbour does not.
inline double on_this_machine(double limit, double taken) {
  if (!wall_clock_counts()) limit *= 8;
  return taken < limit ? limit : limit * slowness();
}

}  // namespace ibid
