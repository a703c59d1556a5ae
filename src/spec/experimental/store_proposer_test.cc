#include "spec/experimental/store_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "temp_folder.h"

namespace ibid {
namespace {

using Ids = std::vector<TokenId>;
constexpr TokenId kEnd{0};

Ids ids(std::string_view text) {
  Ids out;
  for (const char c : text) out.push_back(c == '|' ? kEnd : TokenId{c});
  return out;
}

struct Proposing {
  explicit Proposing(const std::vector<std::string>& texts, bool keeps = false) {
    std::shared_ptr<const TextStore> store;
    Vocabulary vocabulary;
    for (int32_t i = 0; i < 128; ++i) vocabulary.tokens.push_back(std::to_string(i));
    if (!texts.empty()) {
      TextStoreWriter writer(1 << 16);
      for (const std::string& text : texts) writer.add(ids(text)), writer.end_text();
      EXPECT_TRUE(writer.write(folder.path("s"), vocabulary, "m").ok());
      store = TextStore::open(folder.path("s"), vocabulary).value();
    }
    proposer =
        std::make_unique<StoreProposer>(store, keeps ? std::make_unique<OwnAnswers>(OwnAnswers::kLeastBytes) : nullptr,
                                        StoreProposerOptions{.max_sequences = 3, .end_of_generation = {kEnd}});
  }
  std::string operator()(const std::string& prompt, const std::string& answer, int64_t sequence = 1,
                         std::string_view scope = "") {
    drafts.clear();
    return onto(prompt, answer, sequence, scope);
  }
  std::string onto(const std::string& prompt, const std::string& answer, int64_t sequence = 1,
                   std::string_view scope = "") {
    const Ids p = ids(prompt), a = ids(answer);
    const Proposal one = {.input = {.sequence = sequence, .prompt = p, .answer = a, .max_drafts = 8, .scope = scope},
                          .drafts = &drafts};
    proposer->begin_step({});
    proposer->propose_all({&one, 1});
    EXPECT_TRUE(drafts.is_chain(drafts.size()));
    EXPECT_TRUE(std::ranges::is_sorted(drafts.likely, std::greater<>()));
    std::string out;
    for (const TokenId t : drafts.tokens) out += t == kEnd ? '|' : static_cast<char>(raw(t));
    return out;
  }
  void end(const std::string& prompt, const std::string& answer, std::string_view scope) {
    const Ids p = ids(prompt), a = ids(answer);
    proposer->ended({.prompt = p, .answer = a, .scope = scope});
  }
  TempFolder folder;
  std::unique_ptr<StoreProposer> proposer;
  Drafts drafts;
};

TEST(StoreProposer, ProposesWhatFollowedInTheStore) {
  Proposing propose({"four score and seven years ago our fathers"});
  EXPECT_EQ(propose("he said: four score and", "", 1).substr(0, 6), " seven");
  EXPECT_EQ(propose("he said: four score and", " seven years ago our fat", 1), "hers");
  EXPECT_EQ(propose("", "#", 2), "");
}

TEST(StoreProposer, StopsAfterAnEnd) {
  Proposing propose({"good night|and more"});
  EXPECT_EQ(propose("say good ni", ""), "ght|");
}

TEST(StoreProposer, LeavesBetterDraftsOfOthersInPlace) {
  Proposing propose({"four score and seven years ago"});
  propose.drafts.add(TokenId{'x'}, -1, 1);  // by a grammar
  EXPECT_EQ(propose.onto("four score and", ""), "x");
  propose.drafts.clear();
  float likely = 0.97F;
  for (const char c : std::string("xxxxxxxx")) {
    propose.drafts.add(TokenId{c}, propose.drafts.size() - 1, likely);
    likely *= 0.97F;
  }
  EXPECT_EQ(propose.onto("four score and", ""), "xxxxxxxx");
  propose.drafts.clear();
  propose.drafts.add(TokenId{'x'}, -1, 0.1F);
  EXPECT_EQ(propose.onto("four score and", "").substr(0, 6), " seven");
}

// A store with wrong drafts is no longer used, whether its drafts are verified or not.
TEST(StoreProposer, LearnsHowOftenItIsRight) {
  Proposing propose({"abcabcabcabcabc", "xyzxyzxyzxyzxyz"});
  propose("text", "ab");
  const float before = propose.drafts.likely[0];
  std::string answer = "ab";
  for (int i = 0; i < 30; ++i) propose("text", answer += i % 2 ? "b" : "a");
  propose("text", answer += "ab");
  EXPECT_LT(propose.drafts.empty() ? 0 : propose.drafts.likely[0], 0.6F * before);
  answer = "x";
  for (int i = 0; i < 40; ++i) propose("text", answer += std::string("yzx").substr(static_cast<size_t>(i % 3), 1), 2);
  EXPECT_GT(propose.drafts.likely[0], 0.9F);
}

TEST(StoreProposer, ProposesAnswersOfTheSameTenant) {
  Proposing propose({}, true);
  EXPECT_TRUE(propose.proposer->keeps_answers());
  EXPECT_EQ(propose("what is it? ", "", 1, "a"), "");
  propose.end("what is it? ", "it is a boat|", "a");
  EXPECT_EQ(propose("what is it? ", "it", 2, "a").substr(0, 5), " is a");
  EXPECT_EQ(propose("what is it? ", "it", 3, "b"), "");
}

// Neither what is proposed for a tenant nor how likely it is depends on what another one was answered.
TEST(StoreProposer, ProposesNoAnswerOfAnotherTenant) {
  const auto drafts_of_b = [](const std::string& said_to_a) {
    Proposing propose({"a text that anybody may know"}, true);
    propose.end("q", "the word is tide", "b");
    propose.end("q", said_to_a, "a");
    std::string out;
    std::string answer;
    for (const char c : std::string("the word is trout and the text that anybody")) {
      out += propose("question", answer += c, 1, "b") + ";";
      for (const float likely : propose.drafts.likely) out += std::to_string(likely) + ",";
    }
    return out;
  };
  const std::string expected = drafts_of_b("nothing");
  EXPECT_NE(expected.find("ide"), std::string::npos);
  EXPECT_EQ(drafts_of_b("the word is trout and the text that is secret"), expected);
}

TEST(StoreProposer, HasPlacesForSoManySequencesAndGivesThemBack) {
  Proposing propose({"abcdefgh"});
  for (int64_t i = 0; i < 3; ++i) EXPECT_NE(propose("abcd", "", i), "");
  EXPECT_EQ(propose("abcd", "", 9), "");
  propose.proposer->forget(1);
  EXPECT_NE(propose("abcd", "", 9), "");
}

}  // namespace
}  // namespace ibid
