#include "spec/lookup/lookup_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "spec/draft_choice.h"

namespace ibid {
namespace {

using Ids = std::vector<TokenId>;
constexpr int32_t kEnd = 0;

Ids ids(const std::string& text) {
  Ids out;
  for (const char c : text) out.push_back(TokenId{c == '.' ? kEnd : c});
  return out;
}
std::string spelled(const Drafts& drafts) {
  std::string out;
  for (const TokenId token : drafts.tokens) out += raw(token) == kEnd ? '.' : static_cast<char>(raw(token));
  return out;
}

struct Proposing {
  LookupProposer proposer{4096, 4, {TokenId{kEnd}}};
  Drafts drafts;
  std::string operator()(const std::string& prompt, const std::string& answer, const std::string& prediction = "",
                         int32_t max_drafts = 8, int64_t sequence = 1) {
    const Ids p = ids(prompt), a = ids(answer), predicted = ids(prediction);
    drafts.clear();
    proposer.begin_step({});
    proposer.propose(
        {.sequence = sequence, .prompt = p, .answer = a, .max_drafts = max_drafts, .prediction = predicted}, drafts);
    EXPECT_TRUE(drafts.is_chain(drafts.size()));
    EXPECT_TRUE(std::ranges::is_sorted(drafts.likely, std::greater<>()));
    return spelled(drafts);
  }
};

TEST(LookupProposer, ProposesWhatFollowedTheLongestEndOfTheSequence) {
  Proposing propose;
  EXPECT_EQ(propose("the cat sat, the cow stood, th", "e cat", "", 4), " sat");
  EXPECT_EQ(propose("the cat sat, the cow stood, th", "e cat sat, the c", "", 4), "ow s");
}

TEST(LookupProposer, ProposesNothingForAnUnseenEnd) {
  Proposing propose;
  EXPECT_EQ(propose("abc", "def"), "");
}

TEST(LookupProposer, GoesRoundWhereTheSequenceRepeatsItself) {
  Proposing propose;
  EXPECT_EQ(propose("xababab", "ab", "", 5), "ababa");
}

TEST(LookupProposer, StopsAfterAnEnd) {
  Proposing propose;
  EXPECT_EQ(propose("good night.good night", "", "", 8), ".");
}

TEST(LookupProposer, FollowsAPredictionFromItsBeginAndFindsItAgain) {
  Proposing propose;
  const std::string prediction = "int sum(int a, int b)";
  EXPECT_EQ(propose("write it", "", prediction, 7), "int sum");
  EXPECT_EQ(propose("write it", "int s", prediction, 5), "um(in");
  // The answer differs; a match of two tokens leads back.
  EXPECT_EQ(propose("write it", "int total(int", prediction, 3), " a,");
}

TEST(LookupProposer, EndsWithItsPrediction) {
  Proposing propose;
  EXPECT_EQ(propose("prompt", "", "xyz", 8), "xyz");
}

// A sequence whose matches are always wrong is left alone, and one that becomes regular is noticed, without any draft
// being tried.
TEST(LookupProposer, LearnsHowOftenItIsRight) {
  Proposing propose;
  std::string prompt = "qa1 qa2 qa3 ", answer;
  propose(prompt, "");
  const auto likely = [&](const std::string& text) {
    return propose(prompt, text).empty() ? 0.0F : propose.drafts.likely[0];
  };
  const float before = likely(answer += "qa");
  for (char c = 'A'; c <= 'Z'; ++c) propose(prompt, answer += std::string(1, c) + " q"), propose(prompt, answer += "a");
  const float after = likely(answer);
  EXPECT_LT(after, before / 3);
  for (int i = 0; i < 30; ++i) {
    for (const char c : std::string("#qa")) propose(prompt, answer += c);
  }
  EXPECT_GT(likely(answer), 0.8F);
}

// A prompt of 10,001 tokens is read in several steps, and nothing is proposed until then.
TEST(LookupProposer, ReadsALongPromptInSeveralSteps) {
  LookupProposer proposer(1 << 15, 4, {});
  Ids prompt;
  for (int32_t i = 0; i < 10000; ++i) prompt.push_back(TokenId{1 + i});
  prompt.push_back(TokenId{77});
  Drafts drafts;
  for (int step = 0; step < 3; ++step) {
    proposer.begin_step({});
    drafts.clear();
    proposer.propose({.sequence = 1, .prompt = prompt, .max_drafts = 2}, drafts);
    EXPECT_EQ(drafts.empty(), step < 2) << step;
  }
  EXPECT_EQ(drafts.tokens[0], TokenId{78});
}

// A sequence that is longer than the index continues with its last tokens.
TEST(LookupProposer, ForgetsTheBeginOfAVeryLongSequence) {
  LookupProposer proposer(256, 1, {});
  Ids prompt(200, TokenId{1}), answer;
  Drafts drafts;
  for (int32_t i = 0; i < 3000; ++i) {
    answer.push_back(TokenId{i % 7});
    proposer.begin_step({});
    drafts.clear();
    proposer.propose({.sequence = 1, .prompt = prompt, .answer = answer, .max_drafts = 4}, drafts);
    if (i > 20 && !drafts.empty()) {
      ASSERT_EQ(drafts.tokens[0], TokenId{(i + 1) % 7}) << i;
    }
    if (i > 500) {
      ASSERT_FALSE(drafts.empty()) << i;
    }
  }
}

TEST(LookupProposer, HasPlacesForSoManySequencesAndGivesThemBack) {
  Proposing propose;
  for (int64_t i = 0; i < 4; ++i) EXPECT_NE(propose("abcabc", "", "", 4, i), "");
  EXPECT_EQ(propose("abcabc", "", "", 4, 9), "");
  propose.proposer.forget(2);
  EXPECT_NE(propose("abcabc", "", "", 4, 9), "");
}

// A sequence's drafts reveal nothing of other sequences.
TEST(LookupProposer, LooksAtNoSequenceButItsOwn) {
  Proposing propose;
  propose("a secret word: swordfish", "", "", 4, 1);
  EXPECT_EQ(propose("my word: sword", "", "", 4, 2), ": sw");
}

TEST(DraftChoice, TakesDraftsWhileTheyMakeTokensCheaper) {
  // A step of 1 with rows of 0.25 each: a draft pays from 0.34 on, the margin included; with more taken, from more on.
  DraftChoice choice(1, 1);
  EXPECT_FALSE(choice.is_worth(0.33, 0.25));
  EXPECT_TRUE(choice.is_worth(0.34, 0.25));
  choice.take(0.9, 0.25);  // 1.9 tokens in 1.25
  EXPECT_FALSE(choice.is_worth(0.51, 0.25));
  EXPECT_TRUE(choice.is_worth(0.52, 0.25));
}

TEST(DraftChoice, TakesNoneWhereRowsAreAllThatCosts) {
  EXPECT_FALSE(DraftChoice(32, 32 * 0.25 + 1).is_worth(0.95, 0.25));
  EXPECT_TRUE(DraftChoice(32, 32 * 0.25 + 1).is_worth(1, 0.25));  // likely 1: the proposer has decided
}

}  // namespace
}  // namespace ibid
