// What the calling thread is to the system: its name, as top, ps -L and perf show it, and its priority.
#pragma once

#include <pthread.h>
#include <sys/resource.h>

namespace ibid {

// At most 15 bytes; the system cuts nothing and refuses longer ones.
inline void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

// For threads that read, tokenise or compile what users send in bulk: they wait rather than those whose tokens come.
// On Linux it is the calling thread alone that has a priority, and threads that it starts begin with it: so no thread
// that loads a model gives way.
inline constexpr int kGivesWayBy = 10;
inline void give_way() { setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kGivesWayBy); }

}  // namespace ibid
