// Failed allocations inside the engine: for any failing allocation, at most the request that it was for ends, with an
// error that reports it; all others answer as if nothing had happened, every block comes back, and the engine goes on.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "conformance/fake_backend.h"
#include "engine/engine.h"
#include "fake_disk.h"
#include "fake_model.h"
#include "replaced_new.h"
#include "spec/lookup/free_proposers.h"
#include "spec/model/draft_model.h"

namespace ibid {
namespace {

using testing::PlantedFault;
using testing::Spared;

// The fake checks what it reads with sets and lists of its own.
class SparedModel final : public ForwardPass {
 public:
  explicit SparedModel(int32_t context_len) : fake_(context_len) {}
  const ModelFacts& facts() const override { return fake_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    const Spared spared;
    fake_.run(batch, kv, logits, hidden);
  }
  const std::vector<std::string>& faults() const { return fake_.faults(); }

 private:
  testing::FakeModel fake_;
};

// The fake disk, whose own allocations are no part of the engine.
class SparedDisk final : public DurableStore {
 public:
  SparedDisk(std::shared_ptr<testing::FakeMedium> medium, const BlockFormat& format)
      : fake_(std::move(medium), format, {.n_images = 3, .most_idle = 1, .seconds = 1e-9}) {}
  const BlockFormat& format() const override { return fake_.format(); }
  std::vector<DurableEntry> take_found() override { return fake_.take_found(); }
  int64_t opened_at() const override { return fake_.opened_at(); }
  std::span<std::byte> image_to_write(ImageKind kind) override { return fake_.image_to_write(kind); }
  bool write(const DurableKey& key, int64_t age, std::span<std::byte> image) override {
    const Spared spared;
    return fake_.write(key, age, image);
  }
  bool read(const DurableKey& key, int64_t age, int64_t ticket, ImageKind kind) override {
    const Spared spared;
    return fake_.read(key, age, ticket, kind);
  }
  void touch(const DurableKey& key, int64_t age) override {
    const Spared spared;
    fake_.touch(key, age);
  }
  void remove(const DurableKey& key) override {
    const Spared spared;
    fake_.remove(key);
  }
  void collect(std::vector<Done>& done) override {
    const Spared spared;
    fake_.collect(done);
  }
  void release(std::span<std::byte> image) override { fake_.release(image); }
  int32_t n_under_way() const override { return fake_.n_under_way(); }
  void wait(double) override {}

 private:
  testing::FakeDisk fake_;
};

// Everything that allocates for a request: choices that share a prompt, scores, every kind of penalty, stop strings,
// several scopes, prefixes that are found, and answers long enough to outgrow the cache.
std::vector<Request> requests() {
  std::vector<Request> out;
  for (int i = 0; i < 6; ++i) {
    Request r;
    r.id = RequestId{static_cast<uint64_t>(i) + 1};
    for (int t = 0; t < 20 + 3 * i; ++t) r.prompt.push_back(TokenId{1 + t % 7 + (t > 16 ? i : 0)});
    r.max_tokens = 24;
    r.sampling.seed = static_cast<uint64_t>(i);
    r.sampling.ignore_eos = true;
    r.sampling.temperature = i % 2 == 0 ? 1.0f : 0.0f;
    out.push_back(std::move(r));
  }
  out[0].n = 3;
  out[1].prompt_logprobs = 2;
  out[1].sampling.logprobs = 3;
  out[2].sampling.repetition_penalty = 1.2f;
  out[2].sampling.frequency_penalty = 0.3f;
  out[2].sampling.dry_multiplier = 0.5f;
  out[2].sampling.no_repeat_ngram = 3;
  out[2].sampling.top_p = 0.9f;
  out[2].sampling.typical_p = 0.9f;
  out[3].stops = StopSet::compile({"never comes", "nor this"}).value();
  out[3].tenant = "another tenant, whose name is longer than a short string";
  out[4].sampling.frequency_penalty = 0.1f;
  out[4].sampling.mirostat = 2;
  out[4].sampling.processed_logprobs = true;
  out[4].sampling.logprobs = 2;
  return out;
}

struct Heard {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason reason = FinishReason::kNone;
  ErrorKind error = ErrorKind::kInvalid;
  bool operator==(const Heard&) const = default;
};
using Answers = std::map<std::pair<RequestId, int32_t>, Heard>;

class Bench {
 public:
  explicit Bench(int n_threads, std::shared_ptr<testing::FakeMedium> medium = nullptr) : team_(n_threads) {
    auto model = std::make_unique<SparedModel>(64);
    model_ = model.get();
    EngineOptions options{.block_len = 8, .step_tokens = 24, .max_sequences = 4};
    options.kv_dtype = DType::kF32;
    const int64_t block_bytes = KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    options.kv_bytes = 14 * block_bytes;
    options.max_drafts = 3;
    std::unique_ptr<DurableStore> disk;
    if (medium) {
      const BlockFormat format = {.block_len = options.block_len, .payload_bytes = block_bytes};
      options.host_bytes = 4 * block_bytes;
      options.disk_bytes = 30 * format.image_bytes();
      disk = std::make_unique<SparedDisk>(std::move(medium), format);
    }
    engine_ = Engine::create(std::move(model), std::make_shared<ByteTokenizer>(), stream_, options, steady_clock(),
                             PrefixHash(), std::move(disk))
                  .value();
    if (options.disk_bytes == 0) draft_by_model();
  }

  // All of them, the last one cancelled on the way; then, the fault gone, one more.
  void run() {
    std::vector<Request> asked;
    {
      const Spared spared;
      asked = requests();
    }
    for (Request& r : asked) submit(std::move(r));
    for (int turn = 0; turn < 2000; ++turn) {
      const bool busy = engine_->step(out_);
      hear();
      if (turn == 12) engine_->cancel(RequestId{6});
      if (!busy && engine_->stats().n_running + engine_->stats().n_waiting == 0) break;
    }
  }
  const Answers& answers() const { return answers_; }
  void expect_sound(const Answers& whole) {
    engine_->self_check();
    EXPECT_EQ(engine_->cache().pool().n_in_use(), 0);
    EXPECT_EQ(engine_->stats().n_running + engine_->stats().n_waiting, 0);
    for (const std::string& fault : model_->faults()) ADD_FAILURE() << fault;
    Request after = requests()[2];
    after.id = RequestId{100};
    submit(std::move(after));
    while (engine_->step(out_)) {
    }
    hear();
    EXPECT_EQ((answers_[{RequestId{100}, 0}]), (whole.at({RequestId{3}, 0})));
  }
  int64_t n_preemptions() const { return engine_->stats().n_preemptions; }
  int64_t n_fetched() const { return engine_->stats().disk.n_fetched; }
  int64_t cached_tokens() const { return engine_->stats().cached_tokens; }
  const Heard& answer(uint64_t id, int32_t choice = 0) { return answers_[{RequestId{id}, choice}]; }

 private:
  // Beside the look-up; it drafts whatever that costs, for as many as it has places for.
  void draft_by_model() {
    const DraftModelOptions options{.block_len = 8,
                                    .kv_bytes = 1 << 17,
                                    .step_tokens = 24,
                                    .max_sequences = 3,
                                    .vocab_size = engine_->facts().vocab_size,
                                    .always = true};
    auto draft = DraftModel::create(std::make_unique<SparedModel>(64), stream_, options).value();
    engine_->speculate(free_proposers(engine_->facts(), 4, std::move(draft)), 3);
  }
  void submit(Request request) {
    const RequestId id = request.id;
    const int32_t n = request.n;
    const Status taken = engine_->submit(std::move(request));
    const Spared spared;
    if (taken) return;
    for (int32_t choice = 0; choice < n; ++choice)
      answers_[{id, choice}] = {{}, {}, "", FinishReason::kError, taken.error().kind};
  }
  void hear() {
    const Spared spared;
    for (const Output& o : out_) {
      Heard& h = answers_[{o.request, o.choice}];
      EXPECT_EQ(h.reason, FinishReason::kNone) << "an output after the last one";
      for (const TokenRecord& t : o.prompt) h.logprobs.push_back(t.chosen.raw);
      for (const TokenRecord& t : o.tokens) {
        h.tokens.push_back(t.chosen.token);
        h.logprobs.push_back(t.chosen.raw);
        for (const TokenLogprob& top : t.top) h.logprobs.push_back(top.processed);
      }
      h.text += o.text;
      if (!o.finished) continue;
      h.reason = o.reason;
      if (o.reason == FinishReason::kError) h.error = o.error().kind;
    }
    out_.clear();
  }

  ThreadTeam team_;
  Stream stream_{team_};
  SparedModel* model_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::vector<Output> out_;
  Answers answers_;
};

// The requests that ended for want of memory; all others must be as in `whole`, but for where the cancelled one was
// cut.
std::set<RequestId> starved(const Answers& answers, const Answers& whole) {
  std::set<RequestId> out;
  for (const auto& [key, heard] : answers) {
    if (heard.reason == FinishReason::kError) {
      EXPECT_EQ(heard.error, ErrorKind::kNoMemory);
      out.insert(key.first);
    }
  }
  for (const auto& [key, heard] : whole) {
    const auto it = answers.find(key);
    if (it == answers.end()) {
      ADD_FAILURE() << "request " << raw(key.first) << " was never answered";
      continue;
    }
    EXPECT_NE(it->second.reason, FinishReason::kNone) << "request " << raw(key.first) << " never ended";
    if (out.contains(key.first) || heard.reason == FinishReason::kCancelled) continue;
    EXPECT_EQ(it->second, heard) << "request " << raw(key.first) << ", choice " << key.second;
  }
  return out;
}

TEST(EngineFaults, TheNthFailedAllocationEndsItsRequestAlone) {
  Bench untouched(1);
  untouched.run();
  const Answers whole = untouched.answers();
  ASSERT_GT(untouched.n_preemptions(), 0);
  ASSERT_GT(untouched.cached_tokens(), 0);
  int64_t n = 0, n_harmed = 0;
  for (bool struck = true; struck && !HasFailure(); ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    Bench bench(1);
    PlantedFault fault(n, 1);
    bench.run();
    fault.uproot();
    struck = fault.has_struck();
    const std::set<RequestId> harmed = starved(bench.answers(), whole);
    EXPECT_LE(harmed.size(), 1u);
    n_harmed += static_cast<int64_t>(harmed.size());
    bench.expect_sound(whole);
  }
  EXPECT_GT(n, 200);
  EXPECT_GT(n_harmed, n / 8) << "many allocations of a step are for one request";
  RecordProperty("allocations", static_cast<int>(n));
}

TEST(EngineFaults, ManyFailuresInARowEndRequestsAndNothingElse) {
  Bench untouched(2);
  untouched.run();
  const Answers whole = untouched.answers();
  for (int64_t first = 0; first < 1200 && !HasFailure(); first += 17) {
    SCOPED_TRACE("from allocation " + std::to_string(first));
    Bench bench(2);
    PlantedFault fault(first, 40);
    bench.run();
    fault.uproot();
    starved(bench.answers(), whole);
    bench.expect_sound(whole);
  }
}

// A host of four blocks, and a disk that has what an earlier process computed.
TEST(EngineFaults, TiersLoseBlocksAndNoRequestButTheOneThatItWasFor) {
  auto whole_medium = std::make_shared<testing::FakeMedium>();
  Bench first(1, whole_medium);
  first.run();
  const Answers whole = first.answers();
  int64_t n = 0, n_fetched = 0;
  for (bool struck = true; struck && !HasFailure(); ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    Bench bench(1, std::make_shared<testing::FakeMedium>(*whole_medium));
    PlantedFault fault(n, 1);
    bench.run();
    fault.uproot();
    struck = fault.has_struck();
    EXPECT_LE(starved(bench.answers(), whole).size(), 1u);
    n_fetched += bench.n_fetched();
    bench.expect_sound(whole);
  }
  EXPECT_GT(n, 200);
  EXPECT_GT(n_fetched, n);
}

}  // namespace
}  // namespace ibid
