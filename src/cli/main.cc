#include <sys/mman.h>

#include <cstdio>

#include "cli/options.h"

namespace {

// The main thread computes too, and a stack that cannot grow then is a crash. It grows now, where that can be told.
constexpr size_t kStack = size_t{512} << 10;

// In a frame of its own: whatever is called from it stands behind the array, and crashes where there is no such place.
__attribute__((noinline)) void grow_stack() {
  volatile char stack[kStack - (64 << 10)];
  for (size_t i = sizeof stack; i > 0; i -= 4096) stack[i - 1] = 0;
}

bool reserve_stack() {
  void* p = mmap(nullptr, kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  munmap(p, kStack);
  grow_stack();
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (!reserve_stack()) {
    std::fputs("error: There is no memory to begin with.\n", stderr);
    return ibid::cli::kFailed;
  }
  return ibid::cli::main(argc, argv);
}
