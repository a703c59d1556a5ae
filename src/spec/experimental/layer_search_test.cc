// The search for layers that a model can do without, over agreements that are made up.
#include "spec/experimental/layer_search.h"

#include <gtest/gtest.h>

#include "spec/gain.h"

namespace ibid {
namespace {

using Layers = std::vector<int32_t>;

// Each layer is worth something of its own.
LayerAgreement worth(std::vector<double> lost) {
  return [lost = std::move(lost)](std::span<const int32_t> skipped) -> Result<double> {
    double agrees = 1;
    for (const int32_t l : skipped) agrees -= lost[static_cast<size_t>(l)];
    return agrees;
  };
}

TEST(LayerSearch, LeavesOutWhatAgreesMostOneAfterTheOther) {
  const auto found = search_layers(5, 4, {.layer = 0.2, .row = 0}, 4, worth({0.4, 0.02, 0.2, 0.01, 0.3})).value();
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(found[0].skipped, Layers({3}));
  EXPECT_EQ(found[1].skipped, Layers({1, 3}));
  EXPECT_DOUBLE_EQ(found[1].agreement, 0.97);
  EXPECT_DOUBLE_EQ(found[1].cost, 0.6);
}

// Left out together, two layers may agree where each alone does not: then what the first round took stays taken.
TEST(LayerSearch, GoesOnFromWhatItHas) {
  std::vector<Layers> asked;
  const auto found = search_layers(3, 2, {.layer = 0.3, .row = 0}, 2, [&](std::span<const int32_t> skipped) {
                       asked.emplace_back(skipped.begin(), skipped.end());
                       return Result<double>(asked.back() == Layers{1} || asked.back().size() == 2 ? 0.9 : 0.5);
                     }).value();
  EXPECT_EQ(asked, std::vector<Layers>({{0}, {1}, {2}, {0, 1}, {1, 2}}));
  EXPECT_EQ(found.back().skipped, Layers({0, 1}));
}

TEST(LayerSearch, WeighsWhatLayersAndRowsCost) {
  const LayerChoice free_rows = layer_choice({1, 2}, 0.8, {.layer = 0.4, .row = 0}, 8);
  EXPECT_NEAR(free_rows.cost, 0.2, 1e-12);
  double best = 0;
  for (int32_t k = 1; k <= 8; ++k) best = std::max(best, speedup(0.8, k, 0.2, 1));
  EXPECT_NEAR(free_rows.gain, best, 1e-12);
  EXPECT_NEAR(free_rows.gain, speedup(0.8, free_rows.n_drafts, 0.2, 1), 1e-12);
  const LayerChoice costly_rows = layer_choice({1, 2}, 0.8, {.layer = 0.4, .row = 0.5}, 8);
  EXPECT_NEAR(costly_rows.gain, (1 + 0.8) / (1.5 + 0.2), 1e-12);
  EXPECT_EQ(costly_rows.n_drafts, 1);
  // As costly as a step, nothing is won, however right it is.
  EXPECT_LE(layer_choice({}, 1, {.layer = 0, .row = 0}, 8).gain, 1 + 1e-12);
  // Of equal gains the fewest layers.
  const std::vector<LayerChoice> equal = {{.skipped = {1}, .gain = 2}, {.skipped = {1, 2}, .gain = 2}};
  EXPECT_EQ(&best_choice(equal), equal.data());
}

TEST(LayerSearch, EndsWhereNothingBetterCanCome) {
  int32_t n_asked = 0;
  const auto agreement = [&](std::span<const int32_t> skipped) -> Result<double> {
    ++n_asked;
    return skipped.size() == 1 ? 0.9 : 0.05;
  };
  const auto found = search_layers(20, 19, {.layer = 0.04, .row = 0.1}, 8, agreement).value();
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(n_asked, 20 + 19);
  EXPECT_EQ(best_choice(found).skipped.size(), 1U);
  // Never all of them, and no more than is asked for.
  EXPECT_EQ(search_layers(3, 9, {.layer = 0.3, .row = 0}, 8, worth({0, 0, 0})).value().size(), 2U);
  EXPECT_EQ(search_layers(9, 2, {.layer = 0.1, .row = 0}, 8, worth(std::vector<double>(9))).value().size(), 2U);
  EXPECT_TRUE(search_layers(1, 9, {.layer = 0.3, .row = 0}, 8, worth({0})).value().empty());
}

TEST(LayerSearch, AnErrorIsTheAgreementsOwn) {
  const auto failed =
      search_layers(3, 2, {}, 8, [](std::span<const int32_t>) -> Result<double> { return exhausted("no room"); });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "no room");
}

}  // namespace
}  // namespace ibid
