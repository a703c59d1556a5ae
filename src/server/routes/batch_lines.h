// The lines of a batch's files: what one asks, what is answered, and a file of them that grows.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ibid {

// Every line that is written begins so, with its number after it.
inline constexpr std::string_view kBatchLineBegin = "{\"id\":\"batch_req_";

struct BatchLine {
  std::string custom_id, body;  // body: JSON
};

bool is_blank_line(std::string_view line);
// `custom_id` is set as soon as it is known, also where the rest is wrong.
Result<BatchLine> read_batch_line(const std::string& text, const std::string& endpoint, size_t max_line,
                                  std::string& custom_id);
std::string batch_error_line(int64_t number, const std::string& custom_id, const Error& error);
std::string batch_answer_line(int64_t number, const std::string& custom_id, const std::string& request_id, int status,
                              const std::string& body);

// A file of lines that grows. Bytes after its last whole line, of a process that was killed or of a full disk, are cut
// off.
class LineFile {
 public:
  // Calls `done` with the number of each line that is there.
  template <typename Done>
  LineFile(const std::string& path, Done done) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    std::ifstream file(path, std::ios::binary);
    int64_t whole = 0;
    for (std::string line; std::getline(file, line) && !file.eof(); whole += std::ssize(line) + 1) {
      int64_t number = -1;
      if (line.starts_with(kBatchLineBegin))
        std::from_chars(line.data() + kBatchLineBegin.size(), line.data() + line.size(), number);
      if (number >= 0) done(number);
    }
    whole_ = whole;
    is_sound_ = fd_ >= 0 && cut();
  }
  ~LineFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  bool add(std::string_view line) {
    for (std::string_view rest = line; is_sound_ && !rest.empty();) {
      const ssize_t n = ::write(fd_, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        cut();
        return is_sound_ = false;
      }
      rest.remove_prefix(static_cast<size_t>(n));
    }
    if (is_sound_) whole_ += std::ssize(line);
    return is_sound_;
  }
  bool is_sound() const { return is_sound_; }

 private:
  bool cut() const { return ::ftruncate(fd_, whole_) == 0 && ::lseek(fd_, whole_, SEEK_SET) == whole_; }

  int fd_;
  int64_t whole_ = 0;  // bytes of whole lines
  bool is_sound_ = false;
};

}  // namespace ibid
