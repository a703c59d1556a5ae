// CHECK: for what can only be our own mistake. Prints where and what, then aborts. Never for bytes from outside.
// DCHECK: the same in builds without NDEBUG, for hot loops.
#pragma once

namespace ibid {
[[noreturn]] void check_failed(const char* file, int line, const char* expression, const char* message);
}  // namespace ibid

#define IBID_CHECK_MESSAGE(first, ...) (first)
#define CHECK(condition, ...)                                                                                  \
  do {                                                                                                         \
    if (!(condition)) [[unlikely]]                                                                             \
      ::ibid::check_failed(__FILE__, __LINE__, #condition, IBID_CHECK_MESSAGE(__VA_ARGS__ __VA_OPT__(, ) "")); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
    if (false) {               \
      (void)(condition);       \
    }                          \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#endif
