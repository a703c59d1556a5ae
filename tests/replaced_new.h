// Replaces the program's operator new, so that a test can count allocations and bytes or let some fail. For exactly one
// file of a program. What libraries take from malloc is not seen.
#pragma once

#include <malloc.h>

#include <cstdlib>
#include <new>

#include "allocation_hook.h"

namespace ibid::testing {

inline void* allocate(size_t n_bytes) noexcept {
  if (may_allocate != nullptr && !may_allocate()) return nullptr;
  void* p = std::malloc(n_bytes > 0 ? n_bytes : 1);
  if (p == nullptr) return nullptr;
  const auto given = static_cast<int64_t>(malloc_usable_size(p));
  const int64_t live = live_bytes.fetch_add(given, std::memory_order_relaxed) + given;
  for (int64_t peak = peak_bytes; live > peak && !peak_bytes.compare_exchange_weak(peak, live);) {
  }
  return p;
}

inline void take_back(void* p) noexcept {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
  std::free(p);
}

}  // namespace ibid::testing

// Not inlined: the compiler would see malloc meet operator delete, and warn.
[[gnu::noinline]] void* operator new(size_t n_bytes) {
  void* p = ibid::testing::allocate(n_bytes);
  if (!p) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void* operator new[](size_t n_bytes) { return operator new(n_bytes); }
[[gnu::noinline]] void* operator new(size_t n_bytes, const std::nothrow_t&) noexcept {
  return ibid::testing::allocate(n_bytes);
}
[[gnu::noinline]] void* operator new[](size_t n_bytes, const std::nothrow_t&) noexcept {
  return ibid::testing::allocate(n_bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { ibid::testing::take_back(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { ibid::testing::take_back(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { ibid::testing::take_back(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept { ibid::testing::take_back(p); }
