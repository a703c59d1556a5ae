#include "server/access/quotas.h"

#include <gtest/gtest.h>

namespace ibid {
namespace {

Quotas quotas(const char* keys, int64_t n_places = 100) { return {ApiKeys::parse(keys)->terms(), n_places}; }

TEST(Quotas, ATenantMayHaveSoManySequencesAtOnce) {
  Quotas q = quotas("a:key-of-a-1 sequences=3\nb:key-of-b-1\n");
  EXPECT_FALSE(q.enter("a", 2, 0));
  const std::optional<ApiError> refusal = q.enter("a", 2, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 429);
  EXPECT_EQ(refusal->code, "tenant_sequences");
  EXPECT_FALSE(q.enter("b", 2, 0)) << "another's terms are not this one's";
  q.leave("a", 1, 1);
  EXPECT_FALSE(q.enter("a", 2, 1));
}

TEST(Quotas, ATenantWhoseKeyIsGoneIsRefused) {
  Quotas q = quotas("a:key-of-a-1 sequences=3\n");
  EXPECT_TRUE(q.knows("a"));
  for (const char* gone : {"b", ""}) {
    EXPECT_FALSE(q.knows(gone));
    const std::optional<ApiError> refusal = q.enter(gone, 1, 0);
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->status, 403);
    EXPECT_EQ(q.terms_of(gone).sequences, TenantTerms().sequences);
    q.leave(gone, 0, 0);
  }
}

TEST(Quotas, RequestThatCanNeverFitIsNotRetryable) {
  Quotas q = quotas("a:key-of-a-1 sequences=3\n");
  const std::optional<ApiError> refusal = q.enter("a", 4, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->status, 400);
  EXPECT_EQ(refusal->param, "n");
  EXPECT_NE(refusal->message.find("has 4 sequences"), std::string::npos) << refusal->message;
  EXPECT_NE(refusal->message.find("may have 3"), std::string::npos) << refusal->message;
  EXPECT_FALSE(q.enter("a", 3, 0));
}

TEST(Quotas, TokensAMinuteArePaidOffByTheMinute) {
  Quotas q = quotas("a:key-of-a-1 tokens-per-minute=600\n");
  EXPECT_FALSE(q.enter("a", 1, 0));
  q.charge("a", 900, 0);
  const std::optional<ApiError> refusal = q.enter("a", 1, 10);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, "tenant_tokens");
  EXPECT_EQ(refusal->retry_after_s, 20);  // 900 less 100 paid: 200 too many at 10 a second
  EXPECT_TRUE(q.enter("a", 1, 29));
  EXPECT_FALSE(q.enter("a", 1, 31));
}

TEST(Quotas, AFullQueueRefusesTheHeaviestFirst) {
  Quotas q = quotas("a:key-of-a-1\nb:key-of-b-1\n");
  int64_t n = 0;
  while (!q.enter("a", 1, 0)) ++n;
  EXPECT_EQ(n, 75);  // three times what it leaves free
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(q.enter("b", 1, 0)) << i;
  EXPECT_EQ(q.enter("a", 1, 0)->code, "queue_full");
  // Whoever is light finds room for as long as there is any.
  EXPECT_FALSE(q.enter("b", 1, 0));
}

TEST(Quotas, AHeavierWeightHasMoreOfTheQueue) {
  Quotas q = quotas("a:key-of-a-1 weight=3\nb:key-of-b-1\n");
  int64_t of_a = 0, of_b = 0;
  for (int i = 0; i < 300; ++i) {
    if (of_a > 0) q.leave("a", 1, 0), --of_a;
    if (of_b > 0) q.leave("b", 1, 0), --of_b;
    for (int tries = 0; tries < 3; ++tries) {
      of_a += !q.enter("a", 1, 0);
      of_b += !q.enter("b", 1, 0);
    }
  }
  EXPECT_GT(of_a, 2 * of_b);
  EXPECT_LT(of_a + of_b, 100);
}

TEST(Quotas, ATenantAloneHasAllOfTheQueueOrItsShareOfIt) {
  Quotas all = quotas("a:key-of-a-1\n");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(all.enter("a", 1, 0));
  Quotas part = quotas("a:key-of-a-1 queue-share=0.25\n");
  int64_t n = 0;
  while (!part.enter("a", 1, 0)) ++n;
  EXPECT_EQ(n, 25);
  Quotas nobody({}, 100);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(nobody.enter("", 1, 0));
}

TEST(Quotas, RetryAfterIsWhenSoManyWillHaveEnded) {
  Quotas q = quotas("a:key-of-a-1\n");
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(q.enter("a", 1, 0));
  EXPECT_EQ(q.retry_after(1, 0), 1);
  for (int i = 1; i <= 50; ++i) q.leave("a", 1, 4.0 * i);
  EXPECT_NEAR(q.retry_after(1, 200), 4, 1);
  EXPECT_NEAR(q.retry_after(5, 200), 20, 1);
  EXPECT_GE(q.retry_after(1, 260), 60) << "nothing has ended for a minute";
}

TEST(Quotas, AnIdleHourIsNoReasonToComeBackLate) {
  Quotas q = quotas("a:key-of-a-1\n");
  EXPECT_FALSE(q.enter("a", 1, 0));
  q.leave("a", 1, 1);
  EXPECT_FALSE(q.enter("a", 1, 3600));
  EXPECT_LE(q.retry_after(1, 3601), 2);
}

TEST(Quotas, FiguresHaveABoundedNumberOfLabels) {
  std::string keys;
  for (int i = 100; i < 160; ++i) keys += "tenant" + std::to_string(i) + ":key-number-" + std::to_string(i) + "\n";
  Quotas q(ApiKeys::parse(keys)->terms(), 1000);
  for (int i = 100; i < 160; ++i) q.charge("tenant" + std::to_string(i), 10, 0);
  const std::vector<TenantFigures> figures = q.figures();
  ASSERT_EQ(figures.size(), 33u);
  EXPECT_EQ(figures.back().tenant, "other");
  EXPECT_EQ(figures.back().tokens, 280);
}

}  // namespace
}  // namespace ibid
