// The calling thread's name, as top, ps -L and perf show it, and its priority.
#pragma once

#include <pthread.h>
#include <sys/resource.h>

namespace ibid {

// At most 15 bytes; the system cuts nothing and refuses longer ones.
inline void name_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

// For threads that read, tokenise or compile bulk input of users: they give way to the threads that produce tokens.
// On Linux a priority belongs to one thread, and threads that it starts inherit it, so a thread that loads a model must
// not lower its own.
inline constexpr int kGivesWayBy = 10;
inline void give_way() { setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kGivesWayBy); }

}  // namespace ibid
