#include "base/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"

namespace ibid {

int64_t usable_bytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (const int64_t limit = cgroup_limits().bytes; limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

int64_t resident_bytes() {
  int64_t n_mapped = 0, n_resident = 0;  // pages
  std::ifstream("/proc/self/statm") >> n_mapped >> n_resident;
  return n_resident * sysconf(_SC_PAGESIZE);
}

}  // namespace ibid
