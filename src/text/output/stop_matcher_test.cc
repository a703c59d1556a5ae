#include "text/output/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "text/output/finish_reason.h"
#include "text/output/utf8_mender.h"

namespace ibid {
namespace {

std::shared_ptr<const StopSet> rules(std::vector<std::string> strings, bool include_stop = false) {
  return StopSet::compile(std::move(strings), {}, include_stop).value();
}

struct Answer {
  std::string text;
  int stop = -1;
};

Answer read(StopMatcher matcher, const std::vector<std::string>& pieces) {
  Answer answer;
  for (const std::string& piece : pieces) {
    if (auto stop = matcher.push(piece, answer.text)) answer.stop = *stop;
  }
  matcher.finish(answer.text);
  return answer;
}

// What the header promises, by trying every place.
Answer brute_force(const std::vector<std::string>& stops, const std::string& text, bool include_stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      bool ends_here = stops[i].size() <= end && text.compare(end - stops[i].size(), stops[i].size(), stops[i]) == 0;
      if (ends_here && (best < 0 || stops[i].size() > stops[best].size())) best = static_cast<int>(i);
    }
    if (best >= 0) return {text.substr(0, include_stop ? end : end - stops[best].size()), best};
  }
  return {text, -1};
}

size_t longest_beginning_at_the_end(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t n = text.size(); n > 0; --n) {
    for (const std::string& stop : stops) {
      if (n < stop.size() && text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
    }
  }
  return 0;
}

TEST(StopMatcher, FindsAStopInAllItsTokenisations) {
  const std::string stop = "\n\nUser:";
  StopMatcher matcher(rules({stop}));
  for (unsigned cuts = 0; cuts < 1u << (stop.size() - 1); ++cuts) {
    std::vector<std::string> pieces = {"Hello", "!"};
    pieces.emplace_back();
    for (size_t i = 0; i < stop.size(); ++i) {
      pieces.back() += stop[i];
      if (cuts >> i & 1) pieces.emplace_back();
    }
    pieces.push_back(" more");
    Answer answer = read(matcher, pieces);
    EXPECT_EQ(answer.text, "Hello!");
    EXPECT_EQ(answer.stop, 0);
  }
}

TEST(StopMatcher, HoldsBackExactlyWhatMayBeTheStartOfAStop) {
  StopMatcher matcher(rules({"abcd", "bx"}));
  std::string out;
  EXPECT_FALSE(matcher.push("zabc", out));
  EXPECT_EQ(out, "z");
  EXPECT_EQ(matcher.held(), "abc");
  EXPECT_FALSE(matcher.push("ab", out));
  EXPECT_EQ(out, "zabc");
  EXPECT_EQ(matcher.push("x!", out), 1);
  EXPECT_EQ(out, "zabca");
  EXPECT_FALSE(matcher.push("more", out));
  EXPECT_EQ(out, "zabca");
}

TEST(StopMatcher, KeepsTheStopByFlag) {
  EXPECT_EQ(read(StopMatcher(rules({"END"}, true)), {"the E", "N", "D. And on"}).text, "the END");
  EXPECT_EQ(read(StopMatcher(rules({"END"}, false)), {"the E", "N", "D. And on"}).text, "the ");
}

TEST(StopMatcher, TakesTheStopThatEndsFirstAndOfThoseTheLongest) {
  EXPECT_EQ(read(StopMatcher(rules({"xabc", "ab"})), {"xabc"}).text, "x");
  Answer answer = read(StopMatcher(rules({"b", "aab", "ab"})), {"aab"});
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.stop, 1);
}

TEST(StopMatcher, GivesBackWhatItHeldWhenTheAnswerEndsOtherwise) {
  EXPECT_EQ(read(StopMatcher(rules({"\n\nUser:"})), {"yes", "\n\nUs"}).text, "yes\n\nUs");
}

TEST(StopMatcher, IsASmallValueThatAForkCopies) {
  StopMatcher parent(rules({"abc"}));
  std::string out;
  parent.push("ab", out);
  StopMatcher child = parent;
  std::string child_out = out;
  EXPECT_EQ(parent.push("c", out), 0);
  EXPECT_FALSE(child.push("d", child_out));
  EXPECT_EQ(out, "");
  EXPECT_EQ(child_out, "abd");
  EXPECT_LE(sizeof(StopMatcher), 32u);
}

TEST(StopMatcher, WithoutStringsLetsEverythingThrough) {
  EXPECT_EQ(read(StopMatcher(rules({})), {"a", "", "b"}).text, "ab");
}

TEST(StopSet, RefuseAnEmptyString) {
  auto result = StopSet::compile({"ok", ""});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().where, "stop[1]");
  EXPECT_NE(result.error().message.find("empty"), std::string::npos);
}

TEST(StopSet, RefuseBytesThatAreNoText) {
  EXPECT_EQ(StopSet::compile({"\xC3"}).error().where, "stop[0]");
  EXPECT_EQ(StopSet::compile({"\xED\xA0\x80"}).error().where, "stop[0]");
}

TEST(StopSet, RefuseMoreThanTheirLimits) {
  EXPECT_FALSE(StopSet::compile(std::vector<std::string>(StopSet::kMaxStrings + 1, "a")).ok());
  EXPECT_FALSE(StopSet::compile({std::string(StopSet::kMaxBytes + 1, 'a')}).ok());
  EXPECT_TRUE(StopSet::compile({std::string(StopSet::kMaxBytes, 'a')}).ok());
}

TEST(StopSet, KnowTheirIds) {
  auto r = StopSet::compile({}, {TokenId{9}, TokenId{2}}).value();
  EXPECT_TRUE(r->is_stop(TokenId{2}));
  EXPECT_TRUE(r->is_stop(TokenId{9}));
  EXPECT_FALSE(r->is_stop(TokenId{3}));
}

TEST(StopMatcher, EverySplitOfTheStreamGivesTheWhole) {
  std::mt19937 random(20240607);
  auto below = [&](int n) { return static_cast<int>(random() % n); };
  const std::vector<std::string> letters = {"a", "b", "\n", "é", "日", "😀"};
  auto word = [&](int max_len) {
    std::string s;
    for (int n = 1 + below(max_len); n > 0; --n) s += letters[below(2 + below(5))];
    return s;
  };
  int n_stopped = 0;
  for (int round = 0; round < 100000; ++round) {
    std::vector<std::string> stops;
    for (int n = below(4); n >= 0; --n) stops.push_back(word(4));
    std::string text;
    for (int n = below(6); n > 0; --n) text += below(4) == 0 ? stops[below(stops.size())] : word(4);
    bool include = below(2) == 0;
    Answer want = brute_force(stops, text, include);

    StopMatcher matcher(rules(stops, include));
    std::string sent;
    int stop = -1;
    for (size_t at = 0; at < text.size();) {
      size_t n = 1 + below(5);
      auto hit = matcher.push(std::string_view(text).substr(at, n), sent);
      at = std::min(text.size(), at + n);
      if (hit) {
        stop = *hit;
        break;
      }
      ASSERT_EQ(matcher.held().size(), longest_beginning_at_the_end(stops, text.substr(0, at)));
      ASSERT_EQ(sent + std::string(matcher.held()), text.substr(0, at));
    }
    matcher.finish(sent);
    ASSERT_EQ(sent, want.text) << "round " << round;
    ASSERT_EQ(stop, want.stop) << "round " << round;
    n_stopped += stop >= 0;
  }
  EXPECT_GT(n_stopped, 30000);
  EXPECT_LT(n_stopped, 90000);
}

TEST(StopMatcher, IsLinearOnAHostileStop) {
  std::string stop(100000, 'a');
  stop.back() = 'b';
  StopMatcher matcher(rules({stop}));
  std::string out;
  std::string text(2000000, 'a');
  for (size_t i = 0; i < text.size(); i += 1000) matcher.push(std::string_view(text).substr(i, 1000), out);
  matcher.finish(out);
  EXPECT_EQ(out, text);
}

TEST(FinishReason, HasOneOpenAiWordEach) {
  EXPECT_STREQ(openai_finish_reason(FinishReason::kEos), "stop");
  EXPECT_STREQ(openai_finish_reason(FinishReason::kStop), "stop");
  EXPECT_STREQ(openai_finish_reason(FinishReason::kLength), "length");
  EXPECT_STREQ(openai_finish_reason(FinishReason::kGrammar), "stop");
  EXPECT_STREQ(openai_finish_reason(FinishReason::kTool), "tool_calls");
  EXPECT_STREQ(openai_finish_reason(FinishReason::kSafety), "content_filter");
  EXPECT_STREQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace ibid
