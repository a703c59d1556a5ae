// The file of a record. Written beside the engine: what the engine's thread hands over is written by a thread of its
// own some milliseconds later, and a disk that is full or too slow ends the record, never a step. Read up to where it
// is whole.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "engine/record/event.h"
#include "sample/grammar/grammars.h"

namespace ibid::record {

class Redaction;

class FileWriter {
 public:
  static constexpr size_t kMaxBacklog = 64 << 20;  // bytes that may wait for the disk

  // Makes the file, which must not exist yet, for its owner alone (0600). With `redaction`, texts and tenants are
  // replaced on their way to the file.
  static Result<std::unique_ptr<FileWriter>> create(const std::string& path, std::unique_ptr<Redaction> redaction,
                                                    size_t max_backlog = kMaxBacklog);
  ~FileWriter();  // writes what waits, and the end

  // Never waits for the disk. False once the record has ended before its time; then why_ended() has the reason.
  bool add(Event event) noexcept;
  bool ended() const { return ended_; }
  std::string why_ended() const;
  int64_t bytes_written() const { return n_written_; }

 private:
  FileWriter(int fd, std::unique_ptr<Redaction> redaction, size_t max_backlog);
  void loop();
  bool write(Event event);
  bool flush();
  void end(std::string why) noexcept;

  const int fd_;
  const size_t max_backlog_;
  std::unique_ptr<Redaction> redaction_;  // of the writing thread; may be null
  mutable std::mutex mutex_;              // guards queue_, backlog_, closing_, why_
  std::condition_variable wake_;
  std::vector<Event> queue_;
  size_t backlog_ = 0;
  bool closing_ = false;
  std::string why_;
  std::atomic<bool> ended_ = false;
  std::atomic<int64_t> n_written_ = 0;
  int64_t last_reading_ = 0;  // of the writing thread
  std::string bytes_;         // likewise: whole frames
  std::thread thread_;
};

class FileReader {
 public:
  // Refuses what is no record, or one of another version.
  static Result<FileReader> open(const std::string& path);
  // The next event, while the file is whole; nothing at its end, which how_it_ended() describes. An error: a frame that
  // is whole and contains what no ibid of this version writes.
  Result<std::unique_ptr<Event>> next(const std::shared_ptr<const Tokenizer>& tokenizer = nullptr);
  const std::string& how_it_ended() const { return how_it_ended_; }

 private:
  explicit FileReader(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  std::unique_ptr<MappedFile> file_;
  size_t at_ = 0;
  int64_t last_reading_ = 0;
  std::string how_it_ended_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<grammar::Grammars> grammars_;  // of the tokenizer
};

}  // namespace ibid::record
