// A progress bar on a terminal, plain lines in a pipe; both on standard error. One thread.
// What was fetched stays on the screen; a bar of anything else goes away with its work.
#pragma once

#include <cstdint>
#include <string>

#include "host/load_progress.h"

namespace ibid::cli {

class Progress {
 public:
  // `label` begins the line; `in_bytes` prints counts as MB, a rate and the time that is left. `n_before`: what was
  // done before, which the rate does not count.
  explicit Progress(std::string label, bool in_bytes = false, uint64_t n_before = 0);
  ~Progress();  // ends the line or clears it
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done, uint64_t total);  // total 0: unknown

 private:
  void print(uint64_t done, uint64_t total);

  std::string label_;
  bool in_bytes_;
  uint64_t n_before_;
  bool terminal_;
  bool open_ = false;
  double started_;
  double printed_ = 0;
  int last_tenth_ = -1;
};

// Bars and lines of one fetching and loading.
host::OnProgress terminal_progress();

// "98.4 MB of 1.2 GB, 11.0 MB/s, 1:40 left" of so much done in so many seconds since `n_before` was; total 0: unknown.
std::string transfer_text(uint64_t n_before, uint64_t done, uint64_t total, double seconds);
bool stdout_is_terminal();
// "98.4 MB", "1.25 GB": powers of ten.
std::string bytes_text(uint64_t bytes);

}  // namespace ibid::cli
