// Limits of the control groups that this process is in, as the system reports them: a unit's CPUQuota= and MemoryMax=,
// a container's, a batch system's.
#pragma once

#include <cstdint>
#include <string>

namespace ibid {

struct CgroupLimits {
  // 0: no limit. Whole cores, rounded down, but one at least: a thread beyond is throttled and stalls every loop.
  int cores = 0;
  int64_t bytes = 0;  // of memory
};

// The least over the process's own groups and all that these lie in, up to the root of the mount: a limit of any of
// them holds for all below. Version 2's (`own` has a line "0::PATH", mounted at `mounts` or, beside version 1, at
// `mounts`/unified) and those of version 1's controllers cpu and memory. Only a whole number is a limit; what is
// missing, unreadable or odd is none. Nothing outside of `mounts` is read, whatever `own` contains.
CgroupLimits cgroup_limits(const std::string& own = "/proc/self/cgroup", const std::string& mounts = "/sys/fs/cgroup");

}  // namespace ibid
