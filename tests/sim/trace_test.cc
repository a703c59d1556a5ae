// Workloads through the engine: generated ones, and by hand public traces in the folder `traces` of the one that
// IBID_DATA names, their lengths untouched.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "outside_data.h"
#include "sim/cache_oracle.h"
#include "sim/replay.h"

namespace ibid::sim {
namespace {

// A trace; nothing where it is not there.
Workload trace(const char* file) {
  const std::filesystem::path folder = outside_data("traces");
  if (!std::filesystem::exists(folder / file)) return {};
  return read_workload((folder / file).string()).value();
}

void expect_little_waste(const Workload& workload) {
  // Memory for little more than the longest, so that requests wait for it.
  const int32_t context_len = (workload.longest() / 16 + 1) * 16;
  const int32_t n_blocks = context_len / 16 * 5 / 4;
  const Replayed r = replay(workload, {.n_blocks = n_blocks, .context_len = context_len});
  const Waste whole = contiguous(workload, r, n_blocks * 16, context_len, Reserve::kContext);
  const Waste power = contiguous(workload, r, n_blocks * 16, context_len, Reserve::kPowerOfTwo);
  const double static_batches = idle_in_static_batches(workload, 8);
  std::printf(
      "%s: %zu requests, %lld steps; blocks of 16: %.2f %% unfilled (%.2f %% while others wait, %.2f %% unusable); "
      "contiguous runs: of the context %.1f + %.1f %%, of powers of two %.1f + %.1f %%; static batches of 8: %.0f %% "
      "of places idle\n",
      workload.name.c_str(), workload.arrivals.size(), static_cast<long long>(r.n_steps), 100 * r.unfilled,
      100 * r.pressed.internal, 100 * r.pressed.external, 100 * whole.internal, 100 * whole.external,
      100 * power.internal, 100 * power.external, 100 * static_batches);
  EXPECT_LT(r.unfilled, 0.04);
  EXPECT_LT(r.pressed.internal, 0.04);
  EXPECT_EQ(r.pressed.external, 0);
  EXPECT_GT(whole.internal + whole.external, 0.3);
  EXPECT_GT(power.internal + power.external, 0.1);
  EXPECT_GT(static_batches, 0.2);
  // The same without an engine: what a table wastes is less than a block.
  double unfilled = 0, slots = 0;
  for (const Arrival& a : workload.arrivals) {
    const int32_t n = a.prompt_len + a.answer_len;
    unfilled += 15 - (n + 15) % 16;
    slots += (n + 15) / 16 * 16;
  }
  EXPECT_LT(unfilled / slots, 0.04);
}

TEST(Traces, BlocksOfSixteenWasteLittleBesideContiguousRuns) { expect_little_waste(make_workload(1, 1500)); }
TEST(ByHandTraces, BlocksOfSixteenWasteLittleBesideContiguousRuns) {
  const Workload azure = trace("azure_2023_code.csv");
  if (azure.arrivals.empty()) GTEST_SKIP() << "IBID_DATA names no folder with this trace";
  expect_little_waste(azure);
}

// One request after another, by memory in blocks: the engine's hits and the oracle's.
void expect_the_oracles_hits(const Workload& workload, const std::vector<int32_t>& sizes) {
  const int32_t len = workload.part_len;
  int64_t n_tokens = 0;
  for (const Arrival& a : workload.arrivals) n_tokens += a.prompt_len;
  const int32_t context_len = (workload.longest() / len + 1) * len;
  std::printf("%s, hits in %% of tokens\n| blocks of %d | engine | fifo | lru | lfu | hit once | Belady |\n",
              workload.name.c_str(), len);
  for (const int32_t given : sizes) {
    const int32_t n_blocks = std::max(given, context_len / len + 2);
    const Replayed r = replay(
        workload, {.block_len = len, .n_blocks = n_blocks, .context_len = context_len, .one_after_the_other = true});
    std::printf("| %d | %.2f |", n_blocks,
                100.0 * static_cast<double>(r.cached_tokens) / static_cast<double>(n_tokens));
    for (const Evict rule : {Evict::kFifo, Evict::kLru, Evict::kLfu, Evict::kHitOnce, Evict::kBelady}) {
      CacheOracle oracle(workload, n_blocks, context_len, rule);
      int64_t found = 0;
      for (size_t i = 0; i < workload.arrivals.size(); ++i) {
        const int32_t now = oracle.ask();
        found += now;
        if (rule == Evict::kLru) {
          ASSERT_EQ(now, r.cached[i]) << "request " << i << ", " << n_blocks << " blocks";
        }
      }
      std::printf(" %.2f |", 100.0 * static_cast<double>(found) / static_cast<double>(n_tokens));
    }
    std::printf("\n");
  }
}

TEST(Traces, TheEngineFindsWhatABruteForceOracleFinds) {
  expect_the_oracles_hits(make_workload(2, 800), {0, 400, 1000, 3000, 20000});
}
TEST(ByHandTraces, TheEngineFindsWhatABruteForceOracleFinds) {
  const Workload mooncake = trace("mooncake_synthetic.jsonl");
  if (mooncake.arrivals.empty()) GTEST_SKIP() << "IBID_DATA names no folder with this trace";
  expect_the_oracles_hits(mooncake, {0, 1000, 2000, 4000, 8000, 16000, 50000});
}

TEST(Workload, ThatIsNoneIsRefusedByItsLine) {
  const auto error = [](const char* name, const char* text) {
    const std::string file = ::testing::TempDir() + name;
    std::FILE* out = std::fopen(file.c_str(), "w");
    std::fputs(text, out);
    std::fclose(out);
    const auto read = read_workload(file);
    return read ? std::string() : read.error().message;
  };
  EXPECT_NE(error("a.csv", "T,C,G\n2023-11-16 18:17:03.97,5,1\nnonsense\n").find("line 3"), std::string::npos);
  EXPECT_NE(error("b.csv", "T,C,G\n2023-11-16 18:17:03.97,99999999,1\n").find("line 2"), std::string::npos);
  EXPECT_NE(error("c.csv", "T,C,G\n"), "");
  EXPECT_NE(error("a.jsonl", "{\"timestamp\": 0}\n").find("line 1"), std::string::npos);
  EXPECT_NE(error("b.jsonl", "{").find("line 1"), std::string::npos);
  EXPECT_NE(
      error("c.jsonl", "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[1]}").find("line 1"),
      std::string::npos);
  EXPECT_EQ(error("d.jsonl", "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[1,2]}"), "");
}

}  // namespace
}  // namespace ibid::sim
