// How a command ends: its exit code, and what it prints of an error.
#pragma once

#include "base/result.h"

namespace ibid::cli {

// Exit codes that scripts can use.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,      // the world is wrong: a file, a model, the network; one sentence on stderr names it
  kUsage = 2,       // the command line is wrong
  kTestFailed = 3,  // selftest found a wrong number
  kInterrupted = 130,
};

// Prints "error: ..." on standard error and returns the exit code.
int fail(const Error& error, int exit_code = kFailed);

}  // namespace ibid::cli
