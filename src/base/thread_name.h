// A name for the calling thread, as top, ps -L and perf show it.
#pragma once

#include <pthread.h>

namespace ibid {

// At most 15 bytes; the system cuts nothing and refuses longer ones.
inline void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace ibid
