#include "sample/stage_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace ibid {
namespace {

TEST(StageTable, AStageChangesTheRowOrCutsTheSupportAndTheDrawComesLast) {
  const std::span<const Stage> table = stage_table();
  ASSERT_GE(table.size(), 2u);
  for (const Stage& s : table.first(table.size() - 1)) {
    EXPECT_NE(s.change_row == nullptr, s.cut_support == nullptr) << s.name;
  }
  EXPECT_EQ(table.back().name, "draw");
  EXPECT_TRUE(table.back().change_row == nullptr && table.back().cut_support == nullptr);
  std::set<std::string_view> names;
  for (const Stage& s : table) EXPECT_TRUE(names.insert(s.name).second) << s.name << " is there twice";
}

// Which parameter wakes which stage, and that the defaults wake none but the draw.
TEST(StageTable, EachStageIsAskedByItsOwnParametersAlone) {
  const std::map<std::string_view, std::vector<std::function<void(SamplingParams&)>>> asked_by = {
      {"repetition_penalty", {[](auto& p) { p.repetition_penalty = 1.5f; }}},
      {"presence_frequency_penalty",
       {[](auto& p) { p.presence_penalty = -1; }, [](auto& p) { p.frequency_penalty = 1; }}},
      {"dry", {[](auto& p) { p.dry_multiplier = 0.5f; }}},
      {"logit_bias", {[](auto& p) {
         p.logit_bias = {{TokenId{1}, 0.0f}};
       }}},
      {"banned", {[](auto& p) { p.banned = {TokenId{1}}; }}},
      {"banned_sequences", {[](auto& p) { p.banned_sequences = {{TokenId{1}}}; }}},
      {"no_repeat_ngram", {[](auto& p) { p.no_repeat_ngram = 1; }}},
      {"allowed", {[](auto& p) { p.allowed = {TokenId{1}}; }}},
      {"min_tokens", {[](auto& p) { p.min_tokens = 1; }, [](auto& p) { p.ignore_eos = true; }}},
      {"temperature", {[](auto& p) { p.temperature = 0.7f; }, [](auto& p) { p.dynatemp_range = 0.5f; }}},
      {"top_n_sigma", {[](auto& p) { p.top_n_sigma = 1; }}},
      {"top_k", {[](auto& p) { p.top_k = 1; }}},
      {"typical_p", {[](auto& p) { p.typical_p = 0.9f; }}},
      {"top_p", {[](auto& p) { p.top_p = 0.9f; }}},
      {"min_p", {[](auto& p) { p.min_p = 0.1f; }}},
      {"xtc", {[](auto& p) { p.xtc_probability = 0.1f; }}},
      {"mirostat", {[](auto& p) { p.mirostat = 1; }, [](auto& p) { p.mirostat = 2; }}},
      {"draw", {[](auto&) {}}},
  };
  ASSERT_EQ(asked_by.size(), stage_table().size());
  for (const auto& [name, changes] : asked_by) {
    EXPECT_EQ(std::ranges::count(stage_table(), name, &Stage::name), 1) << name;
    for (const auto& change : changes) {
      SamplingParams params;
      change(params);
      for (const Stage& s : stage_table()) EXPECT_EQ(s.is_asked(params), s.name == name || s.name == "draw") << name;
    }
  }
}

}  // namespace
}  // namespace ibid
