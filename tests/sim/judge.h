// Judges run scripts in processes of their own, so that a failed CHECK, a crash or an endless loop is a verdict too.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/simulation.h"

namespace ibid::sim {

// simulate() in a child; `prepare` runs there first.
Verdict judge(const Script& script, const std::function<void()>& prepare = {}, int seconds = 600);

// The scripts of these seeds, `n_at_once` children at a time; in the seeds' order. Stops early after the first failure.
struct Judged {
  uint64_t seed = 0;
  Verdict verdict;
};
std::vector<Judged> judge_seeds(std::span<const uint64_t> seeds, int64_t n_steps, int n_at_once,
                                const std::function<void()>& prepare = {});

// A script that fails as well with fewer events (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing
// Input, IEEE TSE 28(2), 2002: ddmin) and fields set back to their defaults. At most so many runs.
Script shrink(Script script, const std::function<void()>& prepare = {}, int n_runs = 400);

}  // namespace ibid::sim
