// insist(step): for steps that end something, a request or a server, and must not fail for lack of memory: no other
// code does it later, and ending something frees memory. From any thread; retries for at most a second, then gives
// up.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace ibid {

// Step may throw std::bad_alloc and is then run again from its start.
template <typename Step>
void insist(Step&& step) {
  for (int i = 0; i < 1000; ++i) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace ibid
