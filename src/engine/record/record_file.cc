#include "engine/record/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "base/log.h"
#include "base/thread_name.h"
#include "engine/record/redaction.h"

namespace ibid::record {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);
constexpr size_t kPiece = 1 << 20;  // bytes of a write

size_t size_of(const Event& event) {
  size_t n = sizeof event + 8 * event.readings.size() + event.text.size();
  n += sizeof(ShareOutcome) * event.step.shares.size() + sizeof(TokenId) * event.step.tokens.size();
  n += sizeof(DurableEntry) * event.head.disk.found.size();
  for (const DiskInput& input : event.disk) n += sizeof input + sizeof(TokenId) * input.tokens.size();
  if (event.request) n += sizeof *event.request + sizeof(TokenId) * event.request->prompt.size();
  return n;
}

void put_u32(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
}
uint32_t u32_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

}  // namespace

Result<std::unique_ptr<FileWriter>> FileWriter::create(const std::string& path, std::unique_ptr<Redaction> redaction,
                                                       size_t max_backlog) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno == EEXIST)
    return invalid("The record " + path + " is there already, and no record is written over; give another name.", path);
  if (fd < 0) return unavailable("The record " + path + " cannot be made: " + std::strerror(errno) + ".", path);
  return std::unique_ptr<FileWriter>(new FileWriter(fd, std::move(redaction), max_backlog));
}

FileWriter::FileWriter(int fd, std::unique_ptr<Redaction> redaction, size_t max_backlog)
    : fd_(fd), max_backlog_(max_backlog), redaction_(std::move(redaction)), bytes_(kMagic) {
  thread_ = std::thread([this] {
    name_thread("ibid-record");
    loop();
  });
}

FileWriter::~FileWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  ::close(fd_);
}

bool FileWriter::add(Event event) noexcept {
  if (ended_) return false;
  const char* why = nullptr;
  try {
    const std::lock_guard lock(mutex_);
    const size_t size = size_of(event);
    if (backlog_ + size <= max_backlog_) {
      queue_.push_back(std::move(event));
      backlog_ += size;
      return true;
    }
    why = "the disk is too slow for it";
  } catch (const std::bad_alloc&) {
    why = "there was no memory for it";
  }
  end(why);
  return false;
}

void FileWriter::end(std::string why) noexcept {
  if (ended_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  why_ = std::move(why);
}

std::string FileWriter::why_ended() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

void FileWriter::loop() {
  std::vector<Event> events;
  bool is_reported = false;
  for (bool closing = false; !closing;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kPause, [this] { return closing_; });
      closing = closing_;
      events.swap(queue_);
      backlog_ = 0;
    }
    bool is_whole = true;
    try {
      for (Event& event : events) is_whole = is_whole && write(std::move(event));
      const bool is_last = closing || ended_;
      if (is_whole && is_last && !is_reported)
        is_whole = write({.kind = EventKind::kEnd, .text = ended_ ? why_ended() : "closed"});
      is_whole = is_whole && flush();
    } catch (const std::bad_alloc&) {
      end("there was no memory for it");
      is_whole = false;
    }
    events.clear();
    if (ended_ && !is_reported) log_warn("The record has ended, " + why_ended() + "; serving goes on.");
    is_reported = is_reported || ended_;
    while (!is_whole && !closing) {  // nothing more can be written; the queue stays empty, for add() refuses
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return closing_; });
      closing = true;
    }
  }
}

bool FileWriter::write(Event event) {
  if (redaction_) redaction_->redact(event);
  const size_t begin = bytes_.size();
  bytes_.append(kFrameHead, '\0');
  encode(event, last_reading_, bytes_);
  const std::string_view body = std::string_view(bytes_).substr(begin + kFrameHead);
  std::string head;
  put_u32(head, static_cast<uint32_t>(body.size()));
  put_u32(head, checksum(body));
  bytes_.replace(begin, kFrameHead, head);
  return bytes_.size() < kPiece || flush();
}

bool FileWriter::flush() {
  size_t done = 0;
  while (done < bytes_.size()) {
    const ssize_t n = ::write(fd_, bytes_.data() + done, bytes_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      end(std::string("as it cannot be written: ") + std::strerror(errno));
      return false;
    }
    done += static_cast<size_t>(n);
    n_written_ += n;
  }
  bytes_.clear();
  return true;
}

Result<FileReader> FileReader::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  const std::string_view text = file.text();
  if (text.size() < kMagic.size() || !text.starts_with(kMagic.substr(0, kMagic.size() - 1)))
    return invalid(path + " is no record of ibid serve --record.", path);
  if (!text.starts_with(kMagic)) {
    return unsupported(path + " is a record of version " +
                           std::to_string(static_cast<unsigned char>(text[kMagic.size() - 1])) +
                           "; this ibid reads version " + std::to_string(kMagic.back()) + ".",
                       path);
  }
  FileReader reader(std::make_unique<MappedFile>(std::move(file)));
  reader.at_ = kMagic.size();
  return reader;
}

Result<std::unique_ptr<Event>> FileReader::next(const std::shared_ptr<const Tokenizer>& tokenizer) {
  const std::string_view rest = file_->text().substr(at_);
  const auto cut_off = [&](const char* how) {
    how_it_ended_ = std::string(how) + " at byte " + std::to_string(at_) + " of " +
                    std::to_string(file_->text().size()) + "; up to there it is whole";
    at_ = file_->text().size();
    return std::unique_ptr<Event>();
  };
  if (rest.empty()) {
    if (how_it_ended_.empty()) how_it_ended_ = "cut off after a whole event";
    return std::unique_ptr<Event>();
  }
  if (rest.size() < kFrameHead) return cut_off("torn");
  const uint32_t n = u32_at(rest, 0);
  if (n > kMaxBody || rest.size() - kFrameHead < n) return cut_off("torn");
  const std::string_view body = rest.substr(kFrameHead, n);
  if (checksum(body) != u32_at(rest, 4)) return cut_off("damaged");
  auto event = std::make_unique<Event>();
  if (tokenizer != nullptr && tokenizer_ != tokenizer) {
    tokenizer_ = tokenizer;
    grammars_ = std::make_unique<grammar::Grammars>(*tokenizer);
  }
  ASSIGN_OR_RETURN(*event, decode(body, last_reading_, tokenizer, tokenizer ? grammars_.get() : nullptr));
  at_ += kFrameHead + n;
  if (event->kind == EventKind::kEnd) how_it_ended_ = event->text;
  return event;
}

}  // namespace ibid::record
