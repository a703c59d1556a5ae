#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>

#include "cli/options/options.h"

namespace {

// The main thread computes too; a stack that cannot grow then is a crash. It grows now, where failure can be reported.
// Attention's tiles and states take most of it: 1.06 MiB from main on.
constexpr size_t kStack = size_t{1536} << 10;
// What the initialisers of libraries take before main, where an allocation that fails ends the process.
constexpr size_t kInitialisers = size_t{1} << 20;

// In a frame of its own: whatever is called from it stands after the array, and crashes where there is no such place.
__attribute__((noinline)) void grow_stack() {
  volatile char stack[kStack - (64 << 10)];
  for (size_t i = sizeof stack; i > 0; i -= 4096) stack[i - 1] = 0;
}

// Before all other initialisers of the program: 101 is the first priority that is not the compiler's own.
__attribute__((constructor(101))) void reserve_memory() {
  constexpr size_t kAll = kStack + kInitialisers;
  void* p = mmap(nullptr, kAll, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    std::fputs("error: There is no memory to begin with.\n", stderr);
    _exit(ibid::cli::kFailed);
  }
  munmap(p, kAll);
  grow_stack();
}

}  // namespace

int main(int argc, char** argv) { return ibid::cli::main(argc, argv); }
