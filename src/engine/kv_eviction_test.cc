// Sequences that go on with the keys and values of fewer tokens: what they hold, what others find of theirs, and what
// cannot stand beside that. Answers of real models under schedules: tests/property/kv_eviction_test.cc.
#include "engine/state/kv_eviction.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/state/sequence.h"
#include "fake_model.h"

namespace ibid {
namespace {

using testing::FakeModel;

struct Fixture {
  explicit Fixture(EngineOptions options = {}, int32_t context_len = 512, int n_blocks = 128, int32_t window = 0) {
    auto fake = std::make_unique<FakeModel>(context_len, window);
    model = fake.get();
    options.kv_dtype = DType::kF32;
    options.kv_bytes = n_blocks * KvStore::block_bytes(fake->facts(), options.kv_dtype, options.block_len);
    core = Engine::create(std::move(fake), nullptr, stream, options, clock).value();
  }
  Request request(int prompt_len, int max_tokens, KvEviction eviction = {}) {
    Request r;
    r.id = RequestId{next_id++};
    for (int i = 0; i < prompt_len; ++i)
      r.prompt.push_back(TokenId{1 + static_cast<int32_t>(testing::mix(3, static_cast<uint64_t>(i)) % 63)});
    r.max_tokens = max_tokens;
    r.sampling.seed = 11;
    r.sampling.ignore_eos = true;
    r.kv_eviction = eviction;
    return r;
  }
  std::vector<TokenId> answer(Request r, Usage* usage = nullptr) {
    const RequestId id = r.id;
    EXPECT_TRUE(core->submit(std::move(r)).ok());
    std::vector<TokenId> tokens;
    for (std::vector<Output> out; core->step(out); out.clear()) {
      for (const Output& o : out) {
        if (o.request != id || o.choice != 0) continue;
        for (const TokenRecord& t : o.tokens) tokens.push_back(t.chosen.token);
        if (usage != nullptr) *usage = o.usage;
      }
    }
    EXPECT_EQ(model->faults(), std::vector<std::string>());
    return tokens;
  }
  std::string refusal(Request r) const {
    const auto admitted = core->admit(std::move(r));
    EXPECT_FALSE(admitted.ok());
    return admitted ? "" : admitted.error().where + ": " + admitted.error().message;
  }

  ThreadTeam team{1};
  Stream stream{team};
  ManualClock clock;
  FakeModel* model = nullptr;
  std::unique_ptr<Engine> core;
  uint64_t next_id = 1;
};

constexpr KvEviction kSnap = {.method = KvMethod::kSnapKv, .keep = 40, .window = 16};
constexpr KvEviction kHeavy = {.method = KvMethod::kHeavy, .keep = 40, .window = 16};
constexpr KvEviction kStream = {.method = KvMethod::kStreaming, .keep = 40};

TEST(KvEviction, PointsAreThePromptsEndAndEvery256TokensAfterIt) {
  EXPECT_EQ(KvEviction().next_point(100, 0), KvEviction::kNever);
  EXPECT_EQ(kSnap.next_point(100, 0), 100);
  EXPECT_EQ(kSnap.next_point(100, 99), 100);
  EXPECT_EQ(kSnap.next_point(100, 100), KvEviction::kNever);
  EXPECT_EQ(kSnap.next_point(40, 0), KvEviction::kNever) << "no more are there than are kept";
  EXPECT_EQ(kSnap.next_point(41, 0), 41);
  EXPECT_EQ(kStream.next_point(100, 0), 100);
  EXPECT_EQ(kStream.next_point(100, 100), 356);
  EXPECT_EQ(kStream.next_point(100, 355), 356);
  EXPECT_EQ(kStream.next_point(100, 356), 612);
  EXPECT_EQ(kStream.next_point(40, 0), 296);
  EXPECT_EQ(kStream.next_point(10, 0), 266);
  EXPECT_EQ((KvEviction{.method = KvMethod::kStreaming, .keep = 300}.next_point(10, 0)), 522)
      << "at 266 fewer are there";
}

TEST(KvEviction, KeepsTheBudgetAndNoMore) {
  EXPECT_EQ(kSnap.kept().n_last, 16);
  EXPECT_EQ(kSnap.kept().pool, 7);
  EXPECT_EQ(kHeavy.kept().n_last, 20);
  EXPECT_EQ(kHeavy.kept().pool, 1);
  EXPECT_EQ(kStream.kept().n_first, 4);
  EXPECT_EQ(kStream.kept().n_last, 36);
  for (const KvEviction& e : {kSnap, kHeavy, kStream}) EXPECT_EQ(e.kept().n, 40);
}

TEST(KvEviction, IsReadFromAFlag) {
  EXPECT_EQ(*parse_kv_eviction("snapkv:1024"), (KvEviction{.method = KvMethod::kSnapKv, .keep = 1024}));
  EXPECT_EQ(*parse_kv_eviction("h2o:25%"), (KvEviction{.method = KvMethod::kHeavy, .keep_share = 0.25F}));
  EXPECT_EQ(*parse_kv_eviction("none"), KvEviction());
  for (const char* wrong : {"", "snapkv", "snapkv:", "snapkv:x", "snapkv:0%", "snapkv:101%", "pyramidkv:9", "none:4",
                            "snapkv:63", "streaming:4", "h2o:-1", "h2o:99999999999"})
    EXPECT_FALSE(parse_kv_eviction(wrong).ok()) << wrong;
}

TEST(EngineEviction, ThePromptsBlocksAreGivenBackAndFound) {
  Fixture f;
  Request first = f.request(200, 8, kSnap);
  ASSERT_TRUE(f.core->submit(first).ok());
  std::vector<Output> out;
  while (f.core->stats().generated_tokens == 0) f.core->step(out);
  EXPECT_EQ(f.core->stats().blocks_in_use, 3) << "40 rows of the 200";
  EXPECT_EQ(f.core->stats().n_evictions, 1);
  EXPECT_EQ(f.core->stats().evicted_tokens, 160);
  EXPECT_EQ(f.core->stats().blocks_cached, 13);
  while (f.core->step(out)) {
  }
  EXPECT_EQ(f.core->stats().blocks_cached, 13) << "nothing that lies after the point is published";
  Usage usage;
  f.answer(f.request(200, 8), &usage);
  EXPECT_EQ(usage.cached_tokens, 199);
  f.answer(f.request(200, 8, kSnap), &usage);
  EXPECT_EQ(usage.cached_tokens, 200 - 16) << "the window is computed again";
  f.answer(f.request(200, 8, kStream), &usage);
  EXPECT_EQ(usage.cached_tokens, 199);
}

// Between two steps a sequence has what its policy leaves of a prompt of 200 tokens, and what came after that.
void expect_rows(const Fixture& f, RequestId id, int32_t choice) {
  const Sequence* s = f.core->find(id, choice);
  if (s == nullptr || s->n_computed() < 200) return;
  const int32_t n = s->n_computed() - 200;
  const bool streams = s->request->kv_eviction.method == KvMethod::kStreaming;
  EXPECT_EQ(s->place.n_rows(), 40 + (streams ? n % KvEviction::kInterval : n)) << s->n_computed();
}

// The fake's logits are those of all tokens, so its answers tell whether a sequence went on at its own place.
TEST(EngineEviction, SequencesGoOnAtTheirPlace) {
  Fixture f({.step_tokens = 37, .max_sequences = 4});  // a step would end among the last 16
  const std::vector<TokenId> expected = f.answer(f.request(200, 300));
  for (const KvEviction& e : {kSnap, kHeavy, kStream}) {
    EXPECT_EQ(f.answer(f.request(200, 300, e)), expected) << name_of(e.method);
    Request r = f.request(200, 300, e);
    r.n = 3;
    const RequestId id = r.id;
    ASSERT_TRUE(f.core->submit(std::move(r)).ok());
    std::vector<TokenId> tokens;
    int32_t n_steps = 0;
    for (std::vector<Output> out; f.core->step(out); out.clear()) {
      for (const Output& o : out)
        for (const TokenRecord& t : o.tokens)
          if (o.choice == 0) tokens.push_back(t.chosen.token);
      if (++n_steps % 50 == 20) f.core->preempt(id, n_steps / 50 % 3);
      for (int32_t choice = 0; choice < 3; ++choice) expect_rows(f, id, choice);
      f.core->self_check();
    }
    EXPECT_EQ(tokens, expected) << name_of(e.method);
    EXPECT_EQ(f.model->faults(), std::vector<std::string>());
    EXPECT_EQ(f.core->stats().blocks_in_use, 0);
  }
}

TEST(EngineEviction, DraftsStopBeforeAPoint) {
  Fixture f({.max_sequences = 1, .max_drafts = 5});
  Request r = f.request(200, 300, kStream);
  const std::vector<TokenId> expected = f.answer(r);
  r = f.request(200, 300, kStream);
  r.speculation.prediction = expected;
  const RequestId id = r.id;
  ASSERT_TRUE(f.core->submit(std::move(r)).ok());
  std::vector<TokenId> tokens;
  for (std::vector<Output> out; f.core->step(out); out.clear()) {
    for (const Output& o : out)
      for (const TokenRecord& t : o.tokens) tokens.push_back(t.chosen.token);
    expect_rows(f, id, 0);
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_GT(f.core->n_accepted_drafts(), 100);
  EXPECT_EQ(f.model->faults(), std::vector<std::string>());
}

TEST(EngineEviction, StreamingHoldsTheSameMemoryForFiftyThousandTokens) {
  constexpr int32_t kTokens = 50'000;
  Fixture f({.max_sequences = 1}, kTokens + 100, kTokens / 16 + 10);
  ASSERT_TRUE(f.core->submit(f.request(100, kTokens, kStream)).ok());
  int32_t most = 0;
  for (std::vector<Output> out; f.core->step(out); out.clear()) most = std::max(most, f.core->stats().blocks_in_use);
  EXPECT_EQ(f.model->faults(), std::vector<std::string>());
  EXPECT_EQ(f.core->stats().generated_tokens, kTokens);
  EXPECT_LE(most, (40 + KvEviction::kInterval) / 16 + 1);
  EXPECT_EQ(f.core->stats().n_evictions, 1 + (kTokens - 1) / KvEviction::kInterval);
  const std::vector<int32_t>& seen = f.model->rows_seen();
  ASSERT_GT(seen.size(), 40u);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_EQ(seen[4], seen.back() - static_cast<int32_t>(seen.size()) + 5) << "the last ones, without a gap";
}

TEST(EngineEviction, ShareOfThePromptIsNoLessThanTheWindow) {
  const Fixture f;
  const auto keep_of = [&f](int prompt_len, float share) {
    Fixture other;
    return other.core->admit(other.request(prompt_len, 4, {.method = KvMethod::kSnapKv, .keep_share = share}))
        .value()
        ->kv_eviction.keep;
  };
  EXPECT_EQ(keep_of(400, 0.25F), 100);
  EXPECT_EQ(keep_of(400, 0.1F), 64);
  EXPECT_EQ(keep_of(10, 0.5F), 64);
}

TEST(EngineEviction, WhatCannotStandBesideItIsRefusedByName) {
  Fixture f;
  const auto with = [&f](auto change) {
    Request r = f.request(200, 8, kSnap);
    change(r);
    return f.refusal(std::move(r));
  };
  EXPECT_EQ(with([](Request& r) { r.search.kind = SearchKind::kBeam, r.search.width = 2; }),
            "kv_eviction: Keys and values cannot be evicted beside a search.");
  EXPECT_EQ(with([](Request& r) { r.prompt_logprobs = 0; }),
            "kv_eviction: Keys and values cannot be evicted beside prompt_logprobs, which steps may cut anywhere.");
  EXPECT_EQ(
      with([](Request& r) { r.speculation.verifier = Verifier::kRejection; }),
      "kv_eviction: Keys and values cannot be evicted beside a verifier whose draws depend on drafts; use the coupled "
      "one.");
  EXPECT_EQ(with([](Request& r) { r.kv_eviction.keep = 15; }),
            "kv_eviction: keep of kv_eviction is 15; the 16 tokens of its window are always kept, so 16 is the least.");
  EXPECT_EQ(with([](Request& r) { r.kv_eviction.window = 257; }),
            "kv_eviction: window of kv_eviction is 257; expected 1 to 256.");
  Fixture windowed({}, 512, 128, 32);
  EXPECT_EQ(windowed.refusal(windowed.request(200, 8, kSnap)),
            "kv_eviction: Keys and values cannot be evicted: this model has layers with a sliding window.");
  Fixture narrow({.step_tokens = 18, .max_sequences = 4});
  EXPECT_EQ(
      narrow.refusal(narrow.request(200, 8, kSnap)),
      "kv_eviction: The window of kv_eviction has 16 tokens, which one step must compute, and 15 fit; start with a "
      "larger --max-tokens-per-step.");
  EXPECT_TRUE(narrow.core->admit(narrow.request(40, 8, kSnap)).ok()) << "nothing is evicted";
  Fixture small({}, 512, 32);
  Request r = small.request(500, 8, kSnap);
  EXPECT_EQ(
      small.refusal(std::move(r)),
      "kv_eviction: While keys and values are evicted there are 35 blocks, those of the prompt and those that are "
      "kept, and the cache has 32; start with a larger KV cache, or keep fewer.");
}

}  // namespace
}  // namespace ibid
