// The simulation over many seeds. What fails prints a script that is cut down and can be played again.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/thread_team.h"
#include "engine/record/replay.h"
#include "sim/judge.h"
#include "source_paths.h"
#include "temp_folder.h"

namespace ibid::sim {
namespace {

Met live_many(uint64_t first, uint64_t n_seeds, int64_t n_steps) {
  std::vector<uint64_t> seeds(n_seeds);
  std::iota(seeds.begin(), seeds.end(), first);
  const auto judged = judge_seeds(seeds, n_steps, usable_cores());
  Met met;
  for (const Judged& j : judged) met.add(j.verdict.met);
  if (const Judged& last = judged.back(); last.verdict.failed) {
    ADD_FAILURE() << "seed " << last.seed << ", step " << last.verdict.step << ": " << last.verdict.what
                  << "\nbuild/sim --script of\n"
                  << text_of(shrink(random_script(last.seed, n_steps)));
  }
  return met;
}

// A simulation that meets nothing shows nothing.
void expect_all_was_met(const Met& met) {
  EXPECT_GT(met.n_refused, 0);
  EXPECT_GT(met.n_cancelled, met.n_finished / 50);
  EXPECT_GT(met.n_stopped, met.n_finished / 50);
  EXPECT_GT(met.n_preemptions, met.n_finished / 50);
  EXPECT_GT(met.n_cached_tokens, met.n_tokens / 50);
  EXPECT_GT(met.n_copies, met.n_steps / 100);
  EXPECT_GT(met.n_accepted_drafts, met.n_tokens / 100);
  EXPECT_GT(met.n_scored, 0);
  EXPECT_GT(met.n_forked, 0);
  EXPECT_GT(met.n_down, 0);
  EXPECT_GT(met.n_up, 0);
  EXPECT_GT(met.n_fetched, 0);
  EXPECT_GT(met.n_broken, 0);
  EXPECT_GT(met.n_restarts, 0);
}

TEST(Simulation, TwoHundredSeedsOfTwoThousandSteps) {
  const Met met = live_many(1, 200, 2000);
  EXPECT_GE(met.n_steps, 200 * 2000);
  expect_all_was_met(met);
}

TEST(SlowSimulation, TwoThousandSeedsOfTwoThousandSteps) { expect_all_was_met(live_many(1000, 2000, 2000)); }

TEST(Simulation, IsAFunctionOfItsScript) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const Script script = random_script(seed, 500);
    const Verdict once = judge(script), again = judge(script);
    EXPECT_FALSE(once.failed) << once.what;
    EXPECT_EQ(once.met.digest, again.met.digest);
    EXPECT_NE(once.met.digest, judge(random_script(seed + 100, 500)).met.digest);
  }
}

// Lives over a disk that fails and through restarts run again from their records, without the disk and without the
// model.
TEST(Simulation, RunsAgainFromItsRecords) {
  Met met;
  for (uint64_t seed = 1; met.n_restarts < 8 || met.n_broken < 50 || met.n_fetched < 100; ++seed) {
    ASSERT_LT(seed, 200u);
    const Script script = random_script(seed, 400);
    if (script.world.disk_blocks == 0 || script.world.prefix_cache == 0) continue;
    const TempFolder folder;
    const Verdict verdict = simulate(script, folder.path());
    EXPECT_FALSE(verdict.failed) << "seed " << seed << ": " << verdict.what;
    met.add(verdict.met);
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      const auto replay = Replay::open(file.path()).value();
      ThreadTeam team(1);
      Stream stream(team);
      const auto engine = replay->engine_without_model(stream).value();
      const ReplayResult is = replay->run(*engine, nullptr).value();
      EXPECT_EQ(is.difference, "") << "seed " << seed << ", process " << file.path().filename();
      EXPECT_EQ(is.end, "closed");
    }
  }
}

// tests/sim/scripts/: what it has found, cut down.
TEST(Simulation, PastFailuresPass) {
  for (const auto& file : std::filesystem::directory_iterator(source_dir() + "/tests/sim/scripts")) {
    std::ostringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const Verdict verdict = judge(read_script(text.str()).value());
    EXPECT_FALSE(verdict.failed) << file.path() << ", step " << verdict.step << ": " << verdict.what;
    EXPECT_GT(verdict.met.n_finished, 0);
  }
}

TEST(Script, AsSequenceIsReadBackAsItWas) {
  for (uint64_t seed = 1; seed < 20; ++seed) {
    const Script script = random_script(seed, 200);
    EXPECT_EQ(read_script(text_of(script)).value(), script);
  }
  EXPECT_FALSE(read_script("world nonsense=1"));
  EXPECT_FALSE(read_script("3 jump id=1"));
  EXPECT_FALSE(read_script("3 submit id"));
  EXPECT_FALSE(read_script("3 submit id=1x"));
}

}  // namespace
}  // namespace ibid::sim
