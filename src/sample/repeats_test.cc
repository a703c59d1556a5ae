// Repeats against a search by hand, and how often the history is looked at: never more than in proportion to it.
#include "sample/repeats.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

namespace ibid {
namespace {

struct Counted {
  std::vector<int32_t> lengths;
  int64_t n_looks = 0;
};

Counted repeats_of(const std::string& text) {
  Counted out;
  const auto at = [&](size_t i) {
    ++out.n_looks;
    return text.at(i);
  };
  repeat_lengths(text.size(), at, out.lengths);
  return out;
}

TEST(Repeats, EqualComparingByHand) {
  std::mt19937 rng(8);
  for (int i = 0; i < 2000; ++i) {
    std::string text(rng() % 40, 'a');
    for (char& c : text) c = static_cast<char>('a' + rng() % (1 + i % 3));
    const Counted got = repeats_of(text);
    ASSERT_EQ(got.lengths.size(), text.size());
    for (size_t at = 0; at < text.size(); ++at) {
      size_t len = 0;
      while (at > 0 && at + len < text.size() && text[len] == text[at + len]) ++len;
      ASSERT_EQ(got.lengths[at], static_cast<int32_t>(len)) << text << " at " << at;
    }
  }
}

TEST(Repeats, AreFoundInTimeProportionalToTheHistory) {
  std::string fibonacci = "a", before = "b";
  while (fibonacci.size() < 100'000) before = std::exchange(fibonacci, fibonacci + before);
  std::string random(100'000, 'a');
  std::mt19937 rng(9);
  for (char& c : random) c = static_cast<char>('a' + rng() % 2);
  std::string nearly(100'000, 'a'), in_turn(100'000, 'a');
  nearly[50'000] = 'b';
  for (size_t i = 0; i < in_turn.size(); i += 2) in_turn[i] = 'b';
  for (const std::string& text : {std::string(100'000, 'a'), nearly, in_turn, fibonacci, random}) {
    for (const size_t n : {size_t{100}, size_t{10'000}, size_t{100'000}}) {
      EXPECT_LE(repeats_of(text.substr(0, n)).n_looks, 4 * static_cast<int64_t>(n)) << text.substr(0, 20) << " " << n;
    }
  }
}

}  // namespace
}  // namespace ibid
