// `ibid serve` on the default model as a process of its own, and its state by /proc and its own pages.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/cache_folder.h"
#include "base/json.h"
#include "bench/load/load_client.h"
#include "conformance/raw_client.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid::load {

inline std::string model_path() {
  const char* given = std::getenv("IBID_MODEL");
  return given != nullptr ? given : cache_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// Skips, with a sentence, where the model is missing.
class DefaultModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path()))
      GTEST_SKIP() << "no model at " << model_path() << "; ./quickstart fetches it";
  }
};

// Seconds after which what a wait is for is taken to hang: far above what a busy machine needs, so no limit on latency.
constexpr double kPatience = 900;

// Polls; for what another process does.
template <typename Holds>
bool soon(Holds holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(kPatience);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

struct EngineView {
  int64_t steps = 0, running = 0, waiting = 0, in_use = 0, total = 0, cached_tokens = 0;
};

class ServeProcess {
 public:
  // Returns when the model is loaded.
  explicit ServeProcess(std::vector<std::string> flags) {
    log_ = folder_.path() + "/log";
    std::vector<std::string> words = {build_dir() + "/ibid", "serve", model_path(), "--port", "0", "--log-file", log_};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left of a test that was killed
      execv(argv[0], argv.data());
      _exit(127);
    }
    EXPECT_GT(pid_, 0);
    EXPECT_TRUE(soon([&] { return log().find("Serving ") != std::string::npos || has_ended(); }));
    const std::string text = log();
    const size_t at = text.find("http://127.0.0.1:");
    if (at != std::string::npos) port_ = std::atoi(text.c_str() + at + 17);
    EXPECT_GT(port_, 0) << text;
  }
  ~ServeProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    if (!soon([&] { return has_ended(); })) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  // No farewell.
  void kill_hard() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  int port() const { return port_; }
  Target target() const { return {.port = static_cast<uint16_t>(port_)}; }
  std::string log() const { return read_file(log_); }

  int n_descriptors() const {
    int n = 0;
    std::error_code ec;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(proc("fd"), ec)) ++n;
    return n;
  }
  // Resident memory of its own without the KV cache: the one mapping of at least about that size that core files leave
  // out. What the system laid next to it with the same flags, as rows of logits, is one mapping with it; it has all its
  // pages from an idle server's first turns on.
  int64_t private_bytes(int64_t kv_bytes) const {
    std::istringstream maps(read_file(proc("smaps")));
    int64_t sum = 0, size = 0, own = 0;
    int n_kv = 0;
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string name;
      int64_t kib = 0;
      words >> name >> kib;
      if (name == "Size:") size = kib << 10;
      if (name == "Private_Dirty:") own = kib << 10;
      if (name != "VmFlags:") continue;  // the last line of a mapping
      const bool is_kv = line.find(" dd") != std::string::npos && size > kv_bytes - kv_bytes / 20;
      n_kv += is_kv;
      sum += is_kv ? 0 : own;
    }
    EXPECT_EQ(n_kv, 1) << "no mapping, or several, as large as the KV cache";
    return sum;
  }
  // The most that was ever resident, mapped files included.
  int64_t peak_bytes() const {
    const std::string status = read_file(proc("status"));
    const size_t at = status.find("VmHWM:");
    return at == std::string::npos ? -1 : std::atoll(status.c_str() + at + 6) << 10;
  }
  double cpu_seconds() const {
    const std::string stat = read_file(proc("stat"));
    std::istringstream words(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    std::string word;
    double ticks = 0;
    for (int field = 3; field <= 15 && words >> word; ++field) ticks += field >= 14 ? std::atof(word.c_str()) : 0;
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  EngineView engine() const {
    RawClient client(port_);
    const HttpAnswer answer = client.get("/engine?since=1000000000000");
    const Result<Json> json = parse_json(answer.body);
    EngineView view;
    if (!json) return view;
    const auto number = [](const Json* of, const char* name) {
      const Json* value = of != nullptr ? of->find(name) : nullptr;
      return value != nullptr && value->integer() != nullptr ? *value->integer() : -1;
    };
    view.steps = number(&*json, "steps_total");
    view.running = number(&*json, "running");
    view.waiting = number(&*json, "waiting");
    view.in_use = number(json->find("blocks"), "in_use");
    view.total = number(json->find("blocks"), "total");
    view.cached_tokens = number(json->find("tokens"), "cached");
    return view;
  }
  // A line of /metrics, as `ibid_aborts_total{cause="slow_reader"}`.
  double metric(const std::string& name) const {
    const std::string text = RawClient(port_).get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 2);
  }

 private:
  static std::string read_file(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string proc(const char* name) const { return "/proc/" + std::to_string(pid_) + "/" + name; }
  bool has_ended() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ <= 0;
  }

  TempFolder folder_;
  std::string log_;
  pid_t pid_ = -1;
  int port_ = 0;
};

// Idle keep-alive connections: each has had an answer and waits.
class IdleConnections {
 public:
  IdleConnections(int port, size_t n) {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; i < n; ++i) {
      clients_.push_back(std::make_unique<RawClient>(port));
      n_ready_ += clients_.back()->get("/health").status == 200;
    }
  }
  size_t n_ready() const { return n_ready_; }
  // How many of every `step`-th still answer.
  size_t n_alive(size_t step) {
    size_t n = 0;
    for (size_t i = 0; i < clients_.size(); i += step) n += clients_[i]->get("/health").status == 200;
    return n;
  }

 private:
  std::vector<std::unique_ptr<RawClient>> clients_;
  size_t n_ready_ = 0;
};

}  // namespace ibid::load
