// Small readers of the command line: lists of numbers, windows of a text, the rate of a transfer.
#include <gtest/gtest.h>

#include <vector>

#include "cli/measure/text_windows.h"
#include "cli/options/bench_lists.h"
#include "cli/terminal/progress.h"

namespace ibid::cli {
namespace {

using Counts = std::vector<int32_t>;

TEST(BenchLists, AreLlamaBenchs) {
  EXPECT_EQ(read_counts("1", 0, 100).value(), (Counts{1}));
  EXPECT_EQ(read_counts("1,2,8", 0, 100).value(), (Counts{1, 2, 8}));
  EXPECT_EQ(read_counts("4-6", 0, 100).value(), (Counts{4, 5, 6}));
  EXPECT_EQ(read_counts("8-32+8,64", 0, 100).value(), (Counts{8, 16, 24, 32, 64}));
  EXPECT_EQ(read_counts("1-16*4", 0, 100).value(), (Counts{1, 4, 16}));
  for (const char* wrong :
       {"", "x", "1,", ",1", "-1", "101", "5-4", "1-5+0", "1-5*1", "0-5*2", "1-2-3", "1-101", "0-5000"})
    EXPECT_FALSE(read_counts(wrong, 0, 100).ok()) << wrong;
}

TEST(TextWindows, ScoreEachTokenOnce) {
  for (int64_t n = 2; n < 60; ++n) {
    for (int64_t context = 2; context < 20; ++context) {
      for (int64_t stride = 1; stride < context; ++stride) {
        int64_t next = 1;
        for (const TextWindow& w : text_windows(n, context, stride)) {
          ASSERT_EQ(w.first_scored, next);
          ASSERT_LT(w.begin, w.first_scored) << "a token is predicted from another";
          ASSERT_LE(w.end - w.begin, context);
          ASSERT_LE(w.end, n);
          next = w.end;
        }
        ASSERT_EQ(next, n);
      }
    }
  }
}

TEST(Progress, ShowsTheRateOfNewBytesAndTheTimeLeft) {
  EXPECT_EQ(transfer_text(0, 50'000'000, 100'000'000, 5), "50.0 MB of 100.0 MB, 10.0 MB/s, 0:05 left");
  // What was there before an interruption came at no rate of ours.
  EXPECT_EQ(transfer_text(60'000'000, 70'000'000, 100'000'000, 1), "70.0 MB of 100.0 MB, 10.0 MB/s, 0:03 left");
  EXPECT_EQ(transfer_text(60'000'000, 60'000'000, 100'000'000, 9), "60.0 MB of 100.0 MB");
  EXPECT_EQ(transfer_text(0, 1000, 0, 1), "1.0 kB, 1.0 kB/s");
  EXPECT_EQ(transfer_text(0, 100, 100, 1), "100 B of 100 B, 100 B/s");
  EXPECT_EQ(transfer_text(0, 1000, 10'000'000, 1), "1.0 kB of 10.0 MB, 1.0 kB/s, 2:46:39 left");
}

}  // namespace
}  // namespace ibid::cli
