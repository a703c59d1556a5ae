#include "engine/state/answer.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ibid {
namespace {

// Token i is a word of the list; the last one ends an answer and is spelled only where special text is shown.
class Words final : public Tokenizer {
 public:
  Words() {
    vocabulary_.tokens = {"A", "B", "C", "\n\n", "User", ":", "\xe2\x82", "\xac", "<end>"};
    vocabulary_.end_of_generation = {TokenId{8}};
  }
  void encode(std::string_view, const EncodeOptions&, std::vector<TokenId>&) const override {}
  std::string_view token_bytes(TokenId id, bool special) const override {
    if (raw(id) == 8 && !special) return {};
    return vocabulary_.tokens[static_cast<size_t>(raw(id))];
  }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

constexpr int kA = 0, kB = 1, kC = 2, kBlank = 3, kUser = 4, kColon = 5, kEuroBegin = 6, kEuroEnd = 7, kEnd = 8;

// Feeds tokens one by one and records the client's outputs.
class Listener {
 public:
  explicit Listener(Request request) : answer_(make(std::move(request))) {}

  FinishReason say(std::vector<int> tokens) {
    FinishReason reason = FinishReason::kNone;
    for (const int t : tokens) {
      TokenRecord record;
      record.chosen.token = TokenId{t};
      reason = answer_.push(TokenRecord(record));
      listen();
      if (reason != FinishReason::kNone) break;
    }
    return reason;
  }
  void end(FinishReason reason) {
    answer_.end(reason);
    listen();
  }
  void fail(Error error) {
    answer_.fail(std::move(error));
    listen();
  }
  void resume(const std::vector<int>& tokens) {
    std::vector<TokenId> ids;
    for (const int t : tokens) ids.push_back(TokenId{t});
    answer_.resume(ids);
    listen();
  }
  void listen() {
    std::vector<Output> out;
    answer_.take(out);
    for (Output& o : out) {
      EXPECT_FALSE(last.finished) << "an output after the last one";
      text += o.text;
      n_tokens += o.tokens.size();
      last = std::move(o);
    }
  }

  std::string text;
  size_t n_tokens = 0;
  Output last;

 private:
  static Answer make(Request r) {
    static const std::vector<TokenId> ends = {TokenId{kEnd}};
    r.prompt = {TokenId{kA}, TokenId{kB}};
    return Answer(std::make_shared<const Request>(std::move(r)), 0, std::make_shared<const Words>(), ends);
  }
  Answer answer_;
};

Request stopping_at(std::vector<std::string> strings, std::vector<TokenId> ids = {}, bool include = false) {
  Request r;
  r.stops = StopSet::compile(std::move(strings), std::move(ids), include).value();
  return r;
}

TEST(Answer, TextComesWithItsTokens) {
  Listener l({});
  EXPECT_EQ(l.say({kA, kB}), FinishReason::kNone);
  EXPECT_EQ(l.text, "AB");
  EXPECT_EQ(l.last.usage.prompt_tokens, 2);
  EXPECT_EQ(l.last.usage.completion_tokens, 2);
}

TEST(Answer, AnEndOfGenerationIdEndsItWithoutText) {
  Listener l({});
  EXPECT_EQ(l.say({kA, kEnd}), FinishReason::kEos);
  EXPECT_EQ(l.text, "A");
  EXPECT_TRUE(l.last.finished);
  EXPECT_EQ(l.last.usage.completion_tokens, 2);
}

TEST(Answer, AStopStringOverTokensIsHeldBackAndDropped) {
  Listener l(stopping_at({"\n\nUser:"}));
  EXPECT_EQ(l.say({kA, kBlank, kUser}), FinishReason::kNone);
  EXPECT_EQ(l.text, "A");
  EXPECT_EQ(l.say({kColon}), FinishReason::kStop);
  EXPECT_EQ(l.text, "A");
  EXPECT_EQ(l.last.ending->stop_text, "\n\nUser:");
  EXPECT_EQ(l.n_tokens, 4u);
}

TEST(Answer, UnfinishedStopIsSentAsText) {
  Listener l(stopping_at({"\n\nUser:"}));
  l.say({kA, kBlank, kUser, kB});
  EXPECT_EQ(l.text, "A\n\nUserB");
  l.say({kBlank});
  l.end(FinishReason::kLength);
  EXPECT_EQ(l.text, "A\n\nUserB\n\n");
  EXPECT_EQ(l.last.reason, FinishReason::kLength);
}

TEST(Answer, AStopStringIsKeptOnRequest) {
  Listener l(stopping_at({"BC"}, {}, true));
  EXPECT_EQ(l.say({kA, kB, kC, kA}), FinishReason::kStop);
  EXPECT_EQ(l.text, "ABC");
}

TEST(Answer, AStopIdEndsItAndShowsItsTextOnRequest) {
  Listener dropped(stopping_at({}, {TokenId{kC}}));
  EXPECT_EQ(dropped.say({kA, kC}), FinishReason::kStop);
  EXPECT_EQ(dropped.text, "A");
  EXPECT_EQ(dropped.last.ending->stop_text, "");
  Listener kept(stopping_at({}, {TokenId{kC}}, true));
  EXPECT_EQ(kept.say({kA, kC}), FinishReason::kStop);
  EXPECT_EQ(kept.text, "AC");
}

TEST(Answer, NothingEndsItBeforeMinTokens) {
  Request r = stopping_at({"B"}, {TokenId{kC}});
  r.sampling.min_tokens = 3;
  Listener l(std::move(r));
  EXPECT_EQ(l.say({kB, kC}), FinishReason::kNone);
  EXPECT_EQ(l.text, "BC");
  EXPECT_EQ(l.say({kA, kB}), FinishReason::kStop);
  EXPECT_EQ(l.text, "BCA");
}

TEST(Answer, IgnoredEndsGoOn) {
  Request r;
  r.sampling.ignore_eos = true;
  r.show_special = true;
  Listener l(std::move(r));
  EXPECT_EQ(l.say({kA, kEnd, kB}), FinishReason::kNone);
  EXPECT_EQ(l.text, "A<end>B");
}

TEST(Answer, HalfACodePointWaitsForItsOtherHalf) {
  Listener l({});
  l.say({kEuroBegin});
  EXPECT_EQ(l.text, "");
  l.say({kEuroEnd});
  EXPECT_EQ(l.text, "\xe2\x82\xac");
}

TEST(Answer, HalfACodePointAtTheEndIsAReplacementCharacter) {
  Listener l({});
  l.say({kA, kEuroBegin});
  l.end(FinishReason::kLength);
  EXPECT_EQ(l.text, "A\xef\xbf\xbd");
}

TEST(Answer, AnErrorCarriesItsSentence) {
  Listener l({});
  l.say({kA});
  l.fail(invalid("Nothing may be drawn."));
  EXPECT_EQ(l.last.reason, FinishReason::kError);
  EXPECT_EQ(l.last.error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(l.last.error().message, "Nothing may be drawn.");
}

TEST(Answer, TheLastOutputComesOnce) {
  Listener l({});
  l.end(FinishReason::kCancelled);
  EXPECT_TRUE(l.last.finished);
  l.listen();  // fails if there were another one
}

// What a client heard of `tokens` in a row, and then of one that was resumed after any part of them.
TEST(Answer, ResumedItSendsWhatWouldHaveFollowed) {
  const auto hear = [](const Request& request, const std::vector<int>& tokens) {
    std::vector<std::string> heard;
    Listener l{Request(request)};
    for (const int t : tokens) {
      if (l.last.finished) break;
      l.say({t});
      heard.push_back(l.text);
    }
    if (!l.last.finished) l.end(FinishReason::kLength);
    heard.push_back(l.text);
    return heard;
  };
  Request late = stopping_at({"BB"});
  late.sampling.min_tokens = 3;
  const std::vector<int> tokens = {kA, kBlank, kUser, kEuroBegin, kEuroEnd, kB, kB, kBlank, kUser, kColon, kA};
  for (const Request& request : {Request(), stopping_at({"\n\nUser:"}), late, stopping_at({"B\n", "UserX"}),
                                 stopping_at({}, {TokenId{kColon}}, true)}) {
    const std::vector<std::string> heard = hear(request, tokens);
    const size_t n_tokens = heard.size() - 1;
    for (size_t n = 0; n < n_tokens; ++n) {
      Listener l{Request(request)};
      l.resume({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)});
      l.say({tokens.begin() + static_cast<std::ptrdiff_t>(n), tokens.begin() + static_cast<std::ptrdiff_t>(n_tokens)});
      if (!l.last.finished) l.end(FinishReason::kLength);
      EXPECT_EQ((n > 0 ? heard[n - 1] : "") + l.text, heard.back()) << "cut after " << n;
      EXPECT_EQ(l.n_tokens, n_tokens - n);
      EXPECT_EQ(l.last.usage.resumed_tokens, static_cast<int32_t>(n));
      EXPECT_EQ(l.last.usage.completion_tokens, static_cast<int32_t>(n_tokens));
    }
  }
}

TEST(Answer, ResumedAfterItsEndItHasEndedAndPastItFails) {
  Listener over(stopping_at({"BC"}));
  over.resume({kA, kB, kC});
  EXPECT_TRUE(over.last.finished);
  EXPECT_EQ(over.last.reason, FinishReason::kStop);
  EXPECT_EQ(over.last.ending->stop_text, "BC");
  EXPECT_EQ(over.text, "");
  Listener past({});
  past.resume({kA, kEnd, kB});
  EXPECT_TRUE(past.last.finished);
  EXPECT_EQ(past.last.reason, FinishReason::kError);
  EXPECT_EQ(past.last.error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(past.last.error().message, "resume has 3 tokens, and the answer ends with the first 2 of them.");
  EXPECT_EQ(past.n_tokens, 0u);
}

}  // namespace
}  // namespace ibid
