#include "format/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/fetched_file.h"
#include "format/http_client.h"

namespace ibid {
namespace {

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// "\"abc\"" -> "abc"; a weak tag ("W/...") does not identify bytes and gives "".
std::string strong_tag(std::string_view etag) {
  if (etag.size() < 2 || etag.front() != '"' || etag.back() != '"') return "";
  return std::string(etag.substr(1, etag.size() - 2));
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

class Attempt {
 public:
  Attempt(const Download& what, const FetchOptions& options) : what_(what), options_(options) {}
  ~Attempt() {
    if (fd_ >= 0) ::close(fd_);
  }

  Status run() {
    fd_ = ::open(partial().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd_ < 0) return disk_error("create");
    struct stat info = {};
    if (::fstat(fd_, &info) == 0) have_ = info.st_size;
    HttpRequest request{.url = what_.url, .authorization = what_.authorization, .timeout_s = options_.timeout_s};
    request.cancelled = options_.cancelled;
    std::string tag = kept_tag();
    if (have_ > 0 && !tag.empty()) {
      request.headers = {{"Range", "bytes=" + std::to_string(have_) + "-"}, {"If-Range", "\"" + tag + "\""}};
    } else {
      have_ = 0;
    }
    TRY(http_get(request, {.on_head = [this](const std::vector<HttpHead>& heads) { return begin(heads); },
                           .on_body = [this](std::string_view bytes) { return write(bytes); }}));
    if (total_ >= 0 && have_ != total_) {
      return unavailable(what_.url + ": " + std::to_string(have_) + " of " + std::to_string(total_) + " bytes came",
                         what_.url);
    }
    return finish();
  }

  int64_t n_bytes() const { return have_; }

 private:
  std::string partial() const { return what_.path + ".partial"; }
  std::string tag_path() const { return partial() + ".etag"; }
  std::string kept_tag() const {
    std::ifstream in(tag_path());
    std::string tag;
    std::getline(in, tag);
    return tag.find_first_of("\"\r\n") == std::string::npos ? tag : "";
  }

  Error disk_error(const char* verb) const {
    int error = errno;
    std::string message = "cannot " + std::string(verb) + " " + partial() + ": " + std::strerror(error);
    if (error != ENOSPC && error != EDQUOT) return unavailable(message, what_.path);
    return exhausted(message + " after " + std::to_string(have_) + " bytes" +
                         (total_ >= 0 ? " of " + std::to_string(total_) : "") +
                         "; free some space and run the same again: it goes on where it stopped",
                     what_.path);
  }

  Status begin(const std::vector<HttpHead>& heads) {
    const HttpHead& last = heads.back();
    TRY(check_status(last));
    // The hub describes a large file in its own response, before it redirects to the bytes.
    std::optional<int64_t> announced;
    for (const HttpHead& head : heads) {
      if (std::string tag = strong_tag(head.header("x-linked-etag")); is_sha256(tag) && sha256_.empty()) sha256_ = tag;
      if (!announced) announced = to_number(head.header("x-linked-size"));
    }
    std::string tag = strong_tag(last.header("etag"));
    if (sha256_.empty() && is_sha256(tag)) sha256_ = tag;

    std::optional<int64_t> length = to_number(last.header("content-length"));
    if (last.status == 206) {
      TRY(check_range(last));
    } else {
      have_ = 0;
      if (length) total_ = *length;
    }
    if (announced && total_ >= 0 && *announced != total_) {
      return invalid(what_.url + " announces " + std::to_string(*announced) + " bytes and sends " +
                         std::to_string(total_) + "; try again later",
                     what_.url);
    }
    if (announced) total_ = *announced;
    // (A special file cannot be truncated; the write then reports the error.)
    if (::ftruncate(fd_, have_) != 0 && errno != EINVAL) return disk_error("cut");
    ::lseek(fd_, have_, SEEK_SET);
    std::ofstream(tag_path()) << tag << '\n';
    began_at_ = have_;
    return check_space();
  }

  Status check_status(const HttpHead& head) const {
    if (head.status == 200 || head.status == 206) return {};
    std::string text = what_.url + " answered " + std::to_string(head.status);
    if (head.status == 401 || head.status == 403) {
      return invalid(
          text + (what_.authorization.empty()
                      ? " (not allowed): it is private, gated or does not exist; put a token into HF_TOKEN"
                      : " (not allowed): the token in HF_TOKEN does not open it; accept the model's licence on "
                        "its page, or use another token"),
          what_.url);
    }
    if (head.status == 404 || head.status == 410) return not_found(text + ": no such file", what_.url);
    if (head.status == 416) {
      // The part on disk is longer than the server's file: start over.
      std::remove(partial().c_str());
      return unavailable(text + " to a request for the rest", what_.url);
    }
    if (head.status == 408 || head.status == 429 || head.status >= 500) {
      return unavailable(text + ": it is busy or broken; try again later", what_.url);
    }
    return invalid(text + ", which is not understood", what_.url);
  }

  // Content-Range: bytes FIRST-LAST/TOTAL
  Status check_range(const HttpHead& head) {
    std::string_view range = head.header("content-range");
    size_t dash = range.find('-');
    size_t slash = range.find('/');
    std::optional<int64_t> first;
    if (range.starts_with("bytes ") && dash != std::string_view::npos) first = to_number(range.substr(6, dash - 6));
    if (!first || *first != have_) {
      std::remove(partial().c_str());
      return unavailable(what_.url + " sent another part than was requested; it is fetched from the beginning",
                         what_.url);
    }
    if (slash != std::string_view::npos) total_ = to_number(range.substr(slash + 1)).value_or(-1);
    return {};
  }

  Status check_space() const {
    if (total_ < 0) return {};
    std::error_code error;
    auto space = std::filesystem::space(std::filesystem::path(what_.path).parent_path(), error);
    if (error || space.available >= static_cast<uint64_t>(total_ - have_)) return {};
    return exhausted(what_.path + " needs " + std::to_string(total_ - have_) + " more bytes, and its disk has " +
                         std::to_string(space.available) + "; free some space and run the same again",
                     what_.path);
  }

  Status write(std::string_view bytes) {
    if (total_ >= 0 && have_ + static_cast<int64_t>(bytes.size()) > total_) {
      return invalid(what_.url + " sends more than the " + std::to_string(total_) + " bytes that it announced",
                     what_.url);
    }
    while (!bytes.empty()) {
      ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return disk_error("write");
      bytes.remove_prefix(static_cast<size_t>(n));
      have_ += n;
    }
    auto now = std::chrono::steady_clock::now();
    if (options_.progress && (now - shown_ > std::chrono::milliseconds(100) || have_ == total_)) {
      shown_ = now;
      options_.progress({std::filesystem::path(what_.path).filename(), have_, total_, began_at_});
    }
    return {};
  }

  Status finish() {
    if (::fsync(fd_) != 0 && errno != EINVAL) return disk_error("write");
    {
      ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(partial()));
      std::string found = sha256_hex(file.text());
      if (!sha256_.empty() && found != sha256_) {
        std::remove(partial().c_str());
        return unavailable(what_.url + ": the file that came has the SHA-256 " + found + " instead of " + sha256_ +
                               "; it was damaged on the way and has been removed",
                           what_.url);
      }
      keep_sums(what_.path, file, found);  // first: a process that dies here fetches the file again
    }
    if (std::rename(partial().c_str(), what_.path.c_str()) != 0) return disk_error("rename");
    std::remove(tag_path().c_str());
    return {};
  }

  const Download& what_;
  const FetchOptions& options_;
  int fd_ = -1;
  int64_t have_ = 0;      // bytes of the file that are on disk
  int64_t began_at_ = 0;  // what was there before
  int64_t total_ = -1;    // of the whole file
  std::string sha256_;
  std::chrono::steady_clock::time_point shown_ = {};
};

}  // namespace

Status download(const Download& what, const FetchOptions& options) {
  // A connection that brings another megabyte each time may break any number of times.
  constexpr int64_t kProgressBytes = 1 << 20;
  int64_t furthest = 0;
  int pause_ms = options.first_pause_ms;
  for (int n_failures = 0;;) {
    Attempt attempt(what, options);
    Status status = attempt.run();
    if (status || status.error().kind != ErrorKind::kUnavailable) return status;
    if (options.cancelled && options.cancelled()) return status;
    if (attempt.n_bytes() >= furthest + kProgressBytes) {
      furthest = attempt.n_bytes();
      n_failures = 0;
      pause_ms = options.first_pause_ms;
    }
    if (++n_failures > options.n_retries) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    pause_ms = std::min(2 * pause_ms, 16'000);
  }
}

}  // namespace ibid
