// A progress bar on a terminal, plain lines in a pipe; both on standard error. One thread.
// What was fetched stays on the screen; a bar of anything else goes away with its work.
#pragma once

#include <cstdint>
#include <string>

namespace ibid::cli {

class Progress {
 public:
  // `label` begins the line; `in_bytes` prints counts as MB and a rate.
  explicit Progress(std::string label, bool in_bytes = false);
  ~Progress();  // ends the line or clears it
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done, uint64_t total);  // total 0: unknown

 private:
  void print(uint64_t done, uint64_t total);

  std::string label_;
  bool in_bytes_;
  bool terminal_;
  bool open_ = false;
  double started_;
  double printed_ = 0;
  int last_tenth_ = -1;
};

bool stdout_is_terminal();
// "98.4 MB", "1.25 GB": powers of ten.
std::string bytes_text(uint64_t bytes);

}  // namespace ibid::cli
