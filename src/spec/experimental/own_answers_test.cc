#include "spec/experimental/own_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ibid {
namespace {

using Ids = std::vector<TokenId>;

Ids ids(std::string_view text) {
  Ids out;
  for (const char c : text) out.push_back(TokenId{c});
  return out;
}
std::string spelled(const StoreDraft& draft) {
  std::string out;
  for (const TokenId token : draft.tokens) out += static_cast<char>(raw(token));
  return out;
}

struct Answers {
  explicit Answers(int64_t bytes = OwnAnswers::kLeastBytes) : store(bytes) {}
  void add(const std::string& scope, const Ids& prompt, const Ids& answer) {
    store.add(scope, prompt, answer);
    for (size_t n = 0; n <= prompt.size() + answer.size(); n += OwnAnswers::kReadEachStep) store.begin_step();
  }
  std::string draft(const std::string& scope, const Ids& text, int32_t most = 8) {
    OwnAnswers::Reader fresh;
    return draft(scope, text, fresh, most);
  }
  std::string draft(const std::string& scope, const Ids& text, OwnAnswers::Reader& reader, int32_t most = 8) {
    const auto end = std::span(text).last(std::min<size_t>(text.size(), OwnAnswers::kMaxMatch));
    store.draft(scope, end, static_cast<int64_t>(text.size()), most, reader, out);
    return spelled(out);
  }
  OwnAnswers store;
  StoreDraft out;
};

TEST(OwnAnswers, ProposeWhatFollowedInAnEarlierAnswer) {
  Answers answers;
  answers.add("a", ids("how many?"), ids("there are seven hills"));
  EXPECT_EQ(answers.draft("a", ids("I say there are ")), "seven hi");
  EXPECT_EQ(answers.out.match_len, 10);
  EXPECT_EQ(answers.draft("a", ids("seven h")), "ills");  // and its end is the end
  EXPECT_EQ(answers.draft("a", ids("how many?")), "there ar");
  EXPECT_EQ(answers.draft("a", ids("XYZ")), "");
}

TEST(OwnAnswers, OfTheNewestWhereSeveralFit) {
  Answers answers;
  for (const char* said : {"it was red", "it was blue", "it was green"}) answers.add("a", ids("?"), ids(said));
  EXPECT_EQ(answers.draft("a", ids("it was ")), "green");
}

TEST(OwnAnswers, AreOneTenantsAlone) {
  Answers answers;
  answers.add("a", ids("word?"), ids("sword fish"));
  EXPECT_EQ(answers.draft("b", ids("sword ")), "");
  answers.add("b", ids("word?"), ids("sword play"));
  EXPECT_EQ(answers.draft("b", ids("sword ")), "play");
  EXPECT_EQ(answers.draft("a", ids("sword ")), "fish");
  EXPECT_EQ(answers.draft("", ids("sword ")), "");
}

// For any segments of a tenant and any growth of its sequence.
TEST(OwnAnswers, FindTheLongestEndOfAnySequence) {
  std::mt19937_64 random(11);
  const auto up_to = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 20; ++round) {
    Answers answers;
    OwnAnswers::Reader reader;
    int32_t n_drafts = 0;
    std::vector<Ids> said;
    Ids text;
    const auto longest = [&] {
      int32_t most = 0;
      for (const Ids& one : said) {
        for (size_t place = 1; place < one.size(); ++place) {
          int32_t len = 0;
          while (static_cast<size_t>(len) < std::min(place, text.size()) &&
                 one[place - 1 - static_cast<size_t>(len)] == text[text.size() - 1 - static_cast<size_t>(len)])
            ++len;
          most = std::max(most, len);
        }
      }
      return most;
    };
    for (int i = 0; i < 120; ++i) {
      if (i % 6 == 0) {
        Ids answer;
        for (int32_t n = 2 + up_to(200); n > 0; --n) answer.push_back(TokenId{up_to(3)});
        said.push_back(answer);
        answers.add("a", {}, answer);
      }
      for (int32_t n = 1 + up_to(4); n > 0; --n) text.push_back(TokenId{up_to(3)});
      const std::string draft = answers.draft("a", text, reader);
      // Where the longest one stands at its answer's end alone nothing follows.
      if (draft.empty()) continue;
      ASSERT_EQ(answers.out.match_len, longest()) << round << " " << i;
      ++n_drafts;
    }
    EXPECT_GT(n_drafts, 100);
  }
}

TEST(OwnAnswers, HoldNoMoreThanTheirBytes) {
  for (const int64_t bytes : {OwnAnswers::kLeastBytes, int64_t{5} << 20, int64_t{40} << 20}) {
    Answers answers(bytes);
    EXPECT_LE(answers.store.bytes(), bytes);
    EXPECT_GT(answers.store.bytes(), bytes / 2);
    std::mt19937_64 random(5);
    const auto n = static_cast<size_t>(answers.store.segment_tokens()) - 1;
    for (int i = 0; i < 60; ++i) {
      Ids answer;
      for (size_t j = 0; j < n; ++j) answer.push_back(TokenId{static_cast<int32_t>(random() % 1000)});
      answers.add(std::to_string(i % 7), {}, answer);
      ASSERT_LE(answers.store.held_bytes(), answers.store.bytes()) << i;
      if (bytes > int64_t{8} << 20 && i > 20) break;
    }
  }
}

TEST(OwnAnswers, LeaveTheOldestOfATenantFirst) {
  Answers answers;
  const auto said = [&](int32_t i) {
    Ids out;
    for (int32_t j = 0; j < answers.store.segment_tokens() - 1; ++j) out.push_back(TokenId{1000 * i + j % 900});
    return out;
  };
  answers.add("b", {}, ids("untouched"));
  for (int32_t i = 1; i <= 30; ++i) {
    answers.add("a", {}, said(i));
    EXPECT_EQ(answers.store.n_segments_of("a"), std::min(i, OwnAnswers::kMaxOfTenant));
  }
  EXPECT_EQ(answers.draft("a", {TokenId{22 * 1000 + 5}}, 1), "");
  EXPECT_NE(answers.draft("a", {TokenId{23 * 1000 + 5}}, 1), "");
  EXPECT_NE(answers.draft("a", {TokenId{30 * 1000 + 5}}, 1), "");
  EXPECT_EQ(answers.draft("b", ids("unt")), "ouched");
}

// When there is no more room, the least recently used tenant loses a segment.
TEST(OwnAnswers, LeaveWhoAskedForNothingTheLongest) {
  Answers answers;
  for (int32_t i = 0; i < 200; ++i) {
    answers.add("tenant " + std::to_string(i), ids("?"), ids("the answer"));
    EXPECT_EQ(answers.draft("tenant 0", ids("the ")), "answer");
  }
  EXPECT_EQ(answers.draft("tenant 100", ids("the ")), "");
  EXPECT_EQ(answers.draft("tenant 199", ids("the ")), "answer");
}

TEST(OwnAnswers, AreReadSoManyTokensAStep) {
  OwnAnswers store(OwnAnswers::kLeastBytes);
  StoreDraft out;
  const Ids answer(600, TokenId{7});
  store.add("a", {}, answer);
  const auto is_there = [&](size_t n) {
    OwnAnswers::Reader reader;
    const Ids text(n, TokenId{7});
    store.draft("a", text, static_cast<int64_t>(n), 1, reader, out);
    return out.match_len;
  };
  store.begin_step();
  EXPECT_LT(is_there(300), OwnAnswers::kReadEachStep);
  store.begin_step();
  store.begin_step();
  EXPECT_EQ(is_there(300), 300);
  // And no more wait than a segment holds.
  for (int i = 0; i < 1000; ++i) store.add("b", {}, answer);
  EXPECT_LE(store.held_bytes(), store.bytes());
}

}  // namespace
}  // namespace ibid
