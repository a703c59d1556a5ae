// Replaces the program's operator new, so that a test can count allocations or let some fail. For exactly one file of a
// program. What libraries take from malloc is not seen.
#pragma once

#include <cstdlib>
#include <new>

#include "allocation_hook.h"

namespace ibid::testing {

inline void* allocate(size_t n_bytes) noexcept {
  if (may_allocate != nullptr && !may_allocate()) return nullptr;
  return std::malloc(n_bytes > 0 ? n_bytes : 1);
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
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept { std::free(p); }
