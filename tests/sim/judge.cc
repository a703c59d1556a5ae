#include "sim/judge.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/cell_model.h"

namespace ibid::sim {
namespace {

struct Child {
  pid_t pid = -1;
  int pipe = -1;
};

// What a child sends when it comes so far; else its words on stderr are all that there is.
struct Message {
  char magic[8] = "verdict";
  bool failed = false;
  int64_t step = 0;
  Met met;
  char what[300] = {};
};

Child start(const Script& script, const std::function<void()>& prepare, int seconds) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  std::fflush(nullptr);
  Child child{.pid = fork(), .pipe = ends[0]};
  if (child.pid != 0) {
    close(ends[1]);
    return child;
  }
  dup2(ends[1], STDERR_FILENO);
  alarm(static_cast<unsigned>(seconds));
  if (prepare) prepare();
  const Verdict verdict = simulate(script);
  Message message;
  message.failed = verdict.failed;
  message.step = verdict.step;
  message.met = verdict.met;
  verdict.what.copy(message.what, sizeof message.what - 1);
  const bool sent = write(ends[1], &message, sizeof message) == sizeof message;
  _exit(sent ? 0 : 1);
}

Verdict finish(const Child& child) {
  std::string bytes;
  char buffer[4096];
  for (ssize_t n; (n = read(child.pipe, buffer, sizeof buffer)) > 0;) bytes.append(buffer, static_cast<size_t>(n));
  close(child.pipe);
  int status = 0;
  waitpid(child.pid, &status, 0);
  Message message;
  const size_t at = bytes.find(std::string_view(message.magic, sizeof message.magic));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && at != std::string::npos) {
    std::memcpy(&message, bytes.data() + at, sizeof message);
    return {message.failed, message.step, message.what, message.met};
  }
  Verdict verdict{.failed = true};
  verdict.what = !WIFSIGNALED(status)          ? "exit without a verdict"
                 : WTERMSIG(status) == SIGALRM ? "it does not end"
                                               : "signal " + std::to_string(WTERMSIG(status));
  return verdict.what += ": " + bytes.substr(0, bytes.find('\n')), verdict;
}

}  // namespace

void Met::add(const Met& o) {
  n_steps += o.n_steps, n_submitted += o.n_submitted, n_refused += o.n_refused, n_finished += o.n_finished;
  n_cancelled += o.n_cancelled, n_stopped += o.n_stopped, n_preemptions += o.n_preemptions, n_copies += o.n_copies;
  n_shares += o.n_shares, n_tokens += o.n_tokens, n_cached_tokens += o.n_cached_tokens;
  n_accepted_drafts += o.n_accepted_drafts, n_scored += o.n_scored, n_forked += o.n_forked;
  n_down += o.n_down, n_up += o.n_up, n_fetched += o.n_fetched, n_broken += o.n_broken, n_restarts += o.n_restarts;
  longest_wait = std::max(longest_wait, o.longest_wait);
  digest = mix(digest, o.digest);
}

Verdict judge(const Script& script, const std::function<void()>& prepare, int seconds) {
  const Child child = start(script, prepare, seconds);
  if (child.pid < 0) return {.failed = true, .what = "no process can be started"};
  return finish(child);
}

std::vector<Judged> judge_seeds(std::span<const uint64_t> seeds, int64_t n_steps, int n_at_once,
                                const std::function<void()>& prepare) {
  std::vector<Judged> out;
  std::vector<Child> children;
  const int seconds = static_cast<int>(600 + n_steps / 100);
  for (size_t begun = 0; out.size() < seeds.size();) {
    while (begun < seeds.size() && begun < out.size() + static_cast<size_t>(n_at_once))
      children.push_back(start(random_script(seeds[begun], n_steps), prepare, seconds)), ++begun;
    out.push_back({seeds[out.size()], finish(children[out.size()])});
    if (!out.back().verdict.failed) continue;
    for (size_t i = out.size(); i < begun; ++i) finish(children[i]);
    break;
  }
  return out;
}

Script shrink(Script script, const std::function<void()>& prepare, int n_runs) {
  const auto fails = [&](const Script& shorter) { return n_runs-- > 0 && judge(shorter, prepare, 10).failed; };
  const auto try_it = [&](const Script& shorter) {
    const bool failed = fails(shorter);
    if (failed) script = shorter;
    return failed;
  };
  // Whole runs of events, from halves down to single ones.
  for (size_t len = std::max<size_t>(1, script.events.size() / 2); n_runs > 0; len /= 2) {
    for (size_t at = 0; at < script.events.size() && n_runs > 0;) {
      Script shorter = script;
      const auto begin = shorter.events.begin() + static_cast<ptrdiff_t>(at);
      shorter.events.erase(begin, begin + static_cast<ptrdiff_t>(std::min(len, script.events.size() - at)));
      if (!try_it(shorter)) at += len;
    }
    if (len <= 1) break;
  }
  Script shorter = script;
  shorter.world.n_steps = script.events.empty() ? 0 : script.events.back().step + 1;
  try_it(shorter);
  for (size_t i = 0; i < script.events.size(); ++i) {
    for (const EventField& field : event_fields()) {
      if (field.value == &Event::id || script.events[i].*field.value == Event().*field.value) continue;
      Script simpler = script;
      simpler.events[i].*field.value = Event().*field.value;
      try_it(simpler);
    }
  }
  return script;
}

}  // namespace ibid::sim
