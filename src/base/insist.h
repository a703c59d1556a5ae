// insist(step): for steps that end something, a request or a server, and must not fail for want of memory: nobody
// would do it instead, and what ends gives memory back. From any thread; blocks for a second at most, and then gives
// up.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace ibid {

// Step may throw std::bad_alloc and is then done again, from its begin.
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
