// Memory of this process and of the machine, as the system reports it.
#pragma once

#include <cstdint>

namespace ibid {

// What the machine has, or the control groups leave (base/cgroup.h) where that is less.
int64_t usable_bytes();
// What this process holds now (RSS, mapped files included); 0 where the system does not report it.
int64_t resident_bytes();

}  // namespace ibid
