#include "cli/terminal/line_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/descriptor.h"
#include "base/json.h"

namespace ibid::cli {
namespace {

constexpr size_t kMostBytes = 4 << 20;  // a larger file is cut to its newest lines when it is read

std::string spelled(const std::string& line) { return Json(line).text() + "\n"; }

// Written again with these lines, beside its place first.
void rewrite(const std::string& path, const std::vector<std::string>& lines) {
  const std::string fresh = path + ".new";
  std::string text;
  for (const std::string& line : lines) text += spelled(line);
  const Descriptor file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) return;
  const bool is_whole = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  std::error_code ignored;
  is_whole ? std::filesystem::rename(fresh, path, ignored) : static_cast<void>(std::filesystem::remove(fresh, ignored));
}

}  // namespace

std::string line_history_path() {
  if (const char* named = std::getenv("IBID_HISTFILE"); named != nullptr) return named;
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/ibid/history";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.local/state/ibid/history" : "";
}

std::vector<std::string> LineHistory::read() const {
  std::vector<std::string> lines;
  if (path_.empty()) return lines;
  std::error_code wrong;
  if (!std::filesystem::is_regular_file(path_, wrong)) return lines;
  const uintmax_t size = std::filesystem::file_size(path_, wrong);
  std::ifstream file(path_, std::ios::binary);
  if (!wrong && size > kMostBytes) file.seekg(static_cast<std::streamoff>(size - kMostBytes));
  size_t n = 0;
  for (std::string text; std::getline(file, text); ++n) {
    const Result<Json> line = parse_json(text);
    if (line && line->string() != nullptr) lines.push_back(*line->string());
  }
  if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMost));
  if (n > 2 * kMost || (!wrong && size > kMostBytes)) rewrite(path_, lines);
  return lines;
}

void LineHistory::add(const std::string& line) const {
  if (path_.empty()) return;
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  if (!folder.empty() && std::filesystem::create_directories(folder, ignored))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat info = {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if ((info.st_mode & 0077) != 0) ::fchmod(file.get(), 0600);
  const std::string text = spelled(line);
  [[maybe_unused]] const ssize_t n = ::write(file.get(), text.data(), text.size());  // at once, so that none mix
}

}  // namespace ibid::cli
