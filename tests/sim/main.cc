// The simulation by hand:
//   sim [--seeds N] [--first N] [--steps N] [--shard I/N]    the seeds [first, first + N) whose number is I modulo N
//   sim --script FILE | --seed N                             one, and what it met
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/thread_team.h"
#include "sim/judge.h"

namespace {

using namespace ibid;
using namespace ibid::sim;

void print(const Met& m) {
  std::printf(
      "steps %lld, requests %lld and %lld refused, ends %lld (cancelled %lld, stopped %lld), preemptions %lld, copies "
      "%lld, shares %lld, tokens %lld, cached %lld, drafts taken %lld, scores %lld, forks %lld, longest wait %lld, "
      "down %lld, up %lld, fetched %lld, broken %lld, restarts %lld\n",
      static_cast<long long>(m.n_steps), static_cast<long long>(m.n_submitted), static_cast<long long>(m.n_refused),
      static_cast<long long>(m.n_finished), static_cast<long long>(m.n_cancelled), static_cast<long long>(m.n_stopped),
      static_cast<long long>(m.n_preemptions), static_cast<long long>(m.n_copies), static_cast<long long>(m.n_shares),
      static_cast<long long>(m.n_tokens), static_cast<long long>(m.n_cached_tokens),
      static_cast<long long>(m.n_accepted_drafts), static_cast<long long>(m.n_scored),
      static_cast<long long>(m.n_forked), static_cast<long long>(m.longest_wait), static_cast<long long>(m.n_down),
      static_cast<long long>(m.n_up), static_cast<long long>(m.n_fetched), static_cast<long long>(m.n_broken),
      static_cast<long long>(m.n_restarts));
}

int explain(const Script& script, const Verdict& verdict, const std::function<void()>& prepare) {
  std::printf("step %lld: %s\n", static_cast<long long>(verdict.step), verdict.what.c_str());
  const Script shorter = shrink(script, prepare);
  std::printf("%s# play it again: sim --script FILE; it says: %s\n", text_of(shorter).c_str(),
              judge(shorter, prepare).what.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("the engine, simulated");
  uint64_t first = 1, n_seeds = 200, seed = 0;
  int64_t n_steps = 2000;
  std::string shard = "0/1", file;
  app.add_option("--seeds", n_seeds);
  app.add_option("--first", first);
  app.add_option("--steps", n_steps);
  app.add_option("--shard", shard);
  app.add_option("--script", file);
  app.add_option("--seed", seed);
  CLI11_PARSE(app, argc, argv);
  const std::function<void()> prepare;
  if (!file.empty() || seed != 0) {
    Script script = random_script(seed, n_steps);
    if (!file.empty()) {
      std::ostringstream text;
      text << std::ifstream(file).rdbuf();
      auto read = read_script(text.str());
      if (!read) return std::printf("%s\n", read.error().message.c_str()), 2;
      script = *read;
    }
    const Verdict verdict = judge(script, prepare);
    if (verdict.failed) return explain(script, verdict, prepare);
    return print(verdict.met), 0;
  }
  uint64_t i = 0, n = 1;
  if (std::sscanf(shard.c_str(), "%lu/%lu", &i, &n) != 2 || n == 0) return std::printf("--shard is I/N\n"), 2;
  std::vector<uint64_t> seeds;
  for (uint64_t s = first; s < first + n_seeds; ++s) {
    if (s % n == i % n) seeds.push_back(s);
  }
  const auto judged = judge_seeds(seeds, n_steps, usable_cores(), prepare);
  Met met;
  for (const Judged& j : judged) met.add(j.verdict.met);
  print(met);
  if (judged.empty() || !judged.back().verdict.failed) return 0;
  std::printf("seed %lu, ", judged.back().seed);
  return explain(random_script(judged.back().seed, n_steps), judged.back().verdict, prepare);
}
