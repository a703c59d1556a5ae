// An intact record replays without a difference, with the model and without, for any requests: random lives of an
// engine with grammars, searches, vectors, verifiers, drafts of all shapes, ends and errors, too little memory, cancels
// and preemptions.
#include <gtest/gtest.h>

#include "fake_model.h"
#include "property/budget.h"
#include "random_sampling.h"
#include "recorded_life.h"
#include "sample/grammar/grammars.h"
#include "spelled_tokens.h"
#include "text/output/reasoning_budget.h"

namespace ibid {
namespace {

using testing::Blunt;
using testing::FakeModel;
using testing::kFakeVocabSize;

constexpr int32_t kContextLen = 96, kWidth = 4;

std::unique_ptr<ForwardPass> fake() { return std::make_unique<FakeModel>(kContextLen, 0, kWidth); }

// A letter or two each; the end is none.
std::shared_ptr<const Tokenizer> letters() {
  std::vector<std::string> words(kFakeVocabSize);
  for (size_t t = 1; t < words.size(); ++t) words[t] = std::string(1 + t / 40, static_cast<char>('a' + t % 20));
  return std::make_shared<const SpelledTokens>(words, std::vector{testing::kFakeEnd});
}

class RecordedLife {
 public:
  RecordedLife(uint64_t seed, bool redact)
      : random_(seed), grammars_(*tokenizer_), recorder_(Recorder::create({.path = path_, .redact = redact}).value()) {
    EngineOptions options = testing::small_engine(static_cast<PolicyKind>(seed % 3));
    options.max_rows = 5 + up_to(12);
    options.max_itl = up_to(2) == 0 ? 0 : 0.001;
    options.kv_bytes = (12 + up_to(16)) * KvStore::block_bytes(fake()->facts(), options.kv_dtype, options.block_len);
    options.host_bytes = up_to(2) * options.kv_bytes;
    options.prefix_cache = up_to(4) != 0;
    engine_ = Engine::create(fake(), tokenizer_, stream_, options, recorder_->clock(), PrefixHash(128, 1)).value();
    if (up_to(4) != 0) engine_->speculate(std::make_unique<Blunt>(seed), 5);
    recorder_->begin(*engine_, "fake", 1);
  }

  void live(int n_turns) {
    std::vector<Output> out;
    const auto turn = [&] {
      out.clear();
      const bool is_busy = engine_->step(out);
      for (const Output& o : out) n_failed += o.finished && o.reason == FinishReason::kError;
      return is_busy;
    };
    for (int i = 0; i < n_turns; ++i) {
      for (int32_t n = up_to(6) == 0 ? up_to(4) : 0; n > 0; --n) submit();
      if (up_to(12) == 0) engine_->cancel(RequestId{1 + random_() % next_id_});
      if (up_to(10) == 0) engine_->preempt(RequestId{1 + random_() % next_id_}, up_to(3));
      turn();
    }
    if (up_to(3) == 0) engine_->cancel_all();
    while (turn()) {
    }
    n_accepted = engine_->stats().accepted_tokens;
    n_refused = engine_->stats().drafted_tokens - n_accepted;
    engine_.reset();
    recorder_.reset();
  }

  std::string replay(bool with_model) {
    auto replay = Replay::open(path_).value();
    auto engine = with_model ? Engine::create(fake(), tokenizer_, stream_, replay->options(), replay->clock())
                             : replay->engine_without_model(stream_);
    const Result<ReplayResult> ran = replay->run(**engine, with_model ? tokenizer_ : nullptr);
    return ran ? ran->difference : ran.error().message;
  }

  int64_t n_failed = 0, n_accepted = 0, n_refused = 0, n_searches = 0, n_vectors = 0, n_held = 0, n_pinned = 0;

 private:
  int32_t up_to(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  void submit() {
    Request r;
    r.id = RequestId{next_id_++};
    for (int32_t n = up_to(40), i = 0; i < n; ++i) r.prompt.push_back(TokenId{5 + i % 7});
    for (int32_t n = 1 + up_to(12); n > 0; --n) r.prompt.push_back(TokenId{1 + up_to(kFakeVocabSize - 1)});
    r.tenant = up_to(2) == 0 ? "a" : "b";
    r.cache_salt = up_to(4) == 0 ? "salt" : "";
    r.priority = up_to(3);
    r.max_wait = up_to(20) == 0 ? 1e-6F : 0;
    r.sampling.seed = random_();
    const int32_t kind = up_to(8);
    if (kind == 0) {
      constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kLast, Pooling::kFirst, Pooling::kEach};
      r.pooling = kPoolings[up_to(4)];
      r.max_tokens = 0;
      ++n_vectors;
    } else if (kind == 1) {
      r.search = {.kind = SearchKind::kBeam, .width = 1 + up_to(4)};
      if (r.search.width % 2 == 0 && up_to(2) == 0) r.search.n_groups = 2, r.search.diversity_penalty = 0.5F;
      r.n = 1 + up_to(r.search.width);
      r.max_tokens = 1 + up_to(12);
      r.sampling.temperature = 1;
      ++n_searches;
    } else if (kind == 2) {
      r.search = {.kind = SearchKind::kContrastive, .width = 1 + up_to(4), .alpha = 0.5F};
      r.max_tokens = 1 + up_to(12);
      ++n_searches;
    } else {
      r.max_tokens = up_to(20) - 1;
      r.n = up_to(4) == 0 ? 1 + up_to(3) : 1;
      r.prompt_logprobs = up_to(6) == 0 ? 1 : -1;
      r.sampling = testing::random_sampling(random_, kFakeVocabSize);
      if (up_to(4) == 0) r.stops = StopSet::compile({"ab", "c"}, {TokenId{1 + up_to(60)}}).value();
      if (up_to(6) == 0)
        r.reasoning = std::make_shared<const ReasoningBudget>(
            tokenizer_, up_to(6), ReasoningMarkers{.begin = "b", .ends = {"f"}, .is_open = up_to(2) == 0});
      if (up_to(3) == 0) r.speculation.verifier = up_to(2) == 0 ? Verifier::kRejection : Verifier::kTypical;
      n_pinned += pins_drafts(r.speculation.verifier);
    }
    if (kind != 0 && up_to(2) == 0) hold(r);
    static_cast<void>(engine_->submit(std::move(r)));  // it may be full
  }

  // With grammars that end, that go on, and that leave the sampler no token after some tokens.
  void hold(Request& r) {
    static const char* const kTexts[] = {"root ::= [a-d]{2,9} [e-j]{1,30} \"k\"", "root ::= [a-t]*",
                                         "root ::= \"abc\" [d-f]+", "root ::= (\"ab\" | \"cd\"){1,20}",
                                         "root ::= [r-t] [s-t]{1,3} \"b\""};
    const auto compiled = grammars_.get({.language = grammar::Language::kGbnf, .text = kTexts[up_to(5)]}).value();
    r.grammar =
        std::make_shared<grammar::Matcher>(compiled, std::vector{testing::kFakeEnd}, r.n_sequences(), up_to(2) == 0);
    if (up_to(3) == 0 && !r.searches()) r.sampling.banned = {TokenId{1}, TokenId{21}, TokenId{41}, TokenId{61}};
    ++n_held;
  }

  TempFolder folder_;
  std::string path_ = folder_.path("record");
  std::mt19937_64 random_;
  std::shared_ptr<const Tokenizer> tokenizer_ = letters();
  grammar::Grammars grammars_;
  ThreadTeam team_{1};
  Stream stream_{team_};
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Engine> engine_;
  uint64_t next_id_ = 1;
};

void record_many(uint64_t first_seed, uint64_t n_seeds, int n_turns) {
  int64_t n_failed = 0, n_accepted = 0, n_refused = 0, n_searches = 0, n_vectors = 0, n_held = 0, n_pinned = 0;
  for (uint64_t seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    for (const bool redact : {false, true}) {
      RecordedLife life(seed, redact);
      life.live(n_turns);
      EXPECT_EQ(life.replay(false), "") << "seed " << seed << (redact ? ", redacted" : "");
      if (!redact) {
        EXPECT_EQ(life.replay(true), "") << "seed " << seed << ", with the model";
      }
      if (::testing::Test::HasFailure()) return;
      n_failed += life.n_failed, n_accepted += life.n_accepted, n_refused += life.n_refused;
      n_searches += life.n_searches, n_vectors += life.n_vectors, n_held += life.n_held, n_pinned += life.n_pinned;
    }
  }
  for (const int64_t n : {n_failed, n_accepted, n_refused, n_searches, n_vectors, n_held, n_pinned}) EXPECT_GT(n, 50);
}

TEST(RecordProperty, ALifeOfAnyRequestsRunsAgainWithTheModelAndWithout) { record_many(1, 12, 300); }
TEST(SlowRecordProperty, ALifeOfAnyRequestsRunsAgainWithTheModelAndWithout) {
  record_many(1000, static_cast<uint64_t>(testing::n_cases(200)), 600);
}

}  // namespace
}  // namespace ibid
