// Random lives of an engine over the fake model: submits, cancels, forks, stops, preemptions, pressure. After every
// step the accounting holds, freed blocks are poisoned, and every answer is that of its request alone.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "engine/engine.h"
#include "engine/record/recorder.h"
#include "engine/record/replay.h"
#include "fake_disk.h"
#include "fake_model.h"
#include "property/budget.h"
#include "random_sampling.h"
#include "temp_folder.h"

namespace ibid {
namespace {

using testing::ExpectedAnswer;
using testing::FakeModel;

struct Life {
  int32_t block_len, n_blocks, context_len, step_tokens, max_sequences, max_rows, hash_bits, window;
  bool prefix_cache;
  int32_t max_drafts;
  PolicyKind policy;
  int32_t n_host_blocks, n_disk_blocks;  // 0: no such tier
  int32_t fault_one_in;                  // of the disk's operations; 0: never
  int32_t n_starts;                      // number of processes, one after another
  // Of a model with a state: how many of them the device and the host have, and after how many tokens one is left.
  int32_t n_states = 0, n_host_states = 0, state_step = 1;
};

Life random_life(std::mt19937_64& random) {
  const auto up_to = [&random](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  Life l;
  l.block_len = 8 << up_to(3);
  l.context_len = 40 + up_to(60);
  const int32_t n_context_blocks = (l.context_len + l.block_len - 1) / l.block_len;
  l.n_blocks = n_context_blocks + up_to(3 * n_context_blocks);
  l.max_sequences = 1 + up_to(6);
  l.step_tokens = l.max_sequences + up_to(40);
  l.max_rows = l.max_sequences + up_to(8);
  l.window = up_to(3) == 0 ? 2 + up_to(30) : 0;
  l.hash_bits = up_to(2) == 0 ? 8 : 128;
  l.prefix_cache = up_to(4) != 0;
  l.max_drafts = up_to(2) == 0 ? 0 : 1 + up_to(6);
  l.n_host_blocks = up_to(2) == 0 ? 0 : up_to(4 * n_context_blocks);
  l.n_disk_blocks = up_to(3) == 0 ? 0 : 16 + up_to(200);
  l.fault_one_in = up_to(2) == 0 ? 0 : 2 + up_to(30);
  l.n_starts = l.n_disk_blocks == 0 ? 1 : 1 + up_to(3);
  constexpr PolicyKind kPolicies[] = {PolicyKind::kFair, PolicyKind::kPriority, PolicyKind::kFirstCome};
  l.policy = kPolicies[up_to(3)];
  return l;
}

class RandomEngine {
 public:
  explicit RandomEngine(uint64_t seed, bool has_state = false)
      : random_(seed), life_(random_life(random_)), is_recorded_(seed % 3 == 0) {
    if (has_state) give_state();
    for (std::vector<TokenId>& text : texts_) {
      for (int i = 0; i < 100; ++i) text.push_back(TokenId{1 + up_to(testing::kFakeVocabSize - 1)});
    }
  }

  void live(int n_steps) {
    for (int32_t i = 0; i < life_.n_starts && !::testing::Test::HasFailure(); ++i) {
      start();
      live_once(n_steps / life_.n_starts);
    }
  }

  int64_t n_choices_ = 0;
  int64_t n_replays_ = 0;   // of its records
  int64_t n_learning_ = 0;  // requests whose sampler learns from its draws
  int64_t n_generated_ = 0;
  struct Totals {  // of all processes
    int64_t n_accepted_drafts = 0, n_preemptions = 0, cached_tokens = 0, n_blocks_down = 0, n_blocks_up = 0;
    int64_t n_fetched = 0, n_abandoned = 0, n_bad_files = 0, n_failed = 0, n_evicted = 0;
    int64_t n_states_down = 0, n_states_up = 0, n_states_fetched = 0;
    void operator+=(const Totals& o) {
      n_accepted_drafts += o.n_accepted_drafts, n_preemptions += o.n_preemptions, cached_tokens += o.cached_tokens;
      n_blocks_down += o.n_blocks_down, n_blocks_up += o.n_blocks_up, n_fetched += o.n_fetched;
      n_abandoned += o.n_abandoned, n_bad_files += o.n_bad_files, n_failed += o.n_failed, n_evicted += o.n_evicted;
      n_states_down += o.n_states_down, n_states_up += o.n_states_up;
      n_states_fetched += o.n_states_fetched;
    }
  };
  const Totals& totals() const { return totals_; }

 private:
  // Few of them, so that they are evicted.
  void give_state() {
    life_.n_states = 2 + up_to(4 * life_.max_sequences);
    life_.n_host_states = up_to(2) == 0 ? 0 : up_to(12);
    life_.state_step = 1 + up_to(60);
  }
  std::unique_ptr<FakeModel> fake() const {
    return std::make_unique<FakeModel>(life_.context_len, life_.window, 0, life_.n_states > 0);
  }

  // A process with a cold memory, over the disk as the last process left it.
  void start() {
    core_.reset();
    recorder_.reset();
    if (is_recorded_) recorder_ = Recorder::create({.path = records_.path("record")}, clock_).value();
    auto model = fake();
    model_ = model.get();
    EngineOptions options;
    options.block_len = life_.block_len;
    options.kv_dtype = DType::kF32;
    const int64_t block_bytes = KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    options.kv_bytes = life_.n_blocks * block_bytes;
    options.step_tokens = life_.step_tokens;
    options.max_sequences = life_.max_sequences;
    options.max_rows = life_.max_rows;
    options.max_waiting = 64;
    options.prefix_cache = life_.prefix_cache;
    options.policy = life_.policy;
    options.host_bytes = life_.n_host_blocks * block_bytes;
    options.host_copy_seconds = 1e-6 * up_to(3);
    options.states_bytes = life_.n_states * model->facts().state_bytes;
    options.host_states_bytes = life_.n_host_states * model->facts().state_bytes;
    options.state_step = life_.state_step;
    std::unique_ptr<DurableStore> store;
    if (life_.n_disk_blocks > 0) {
      const BlockFormat format = {
          .block_len = life_.block_len, .payload_bytes = block_bytes, .state_bytes = model->facts().state_bytes};
      options.disk_bytes = life_.n_disk_blocks * format.image_bytes(ImageKind::kState);
      store = std::make_unique<testing::FakeDisk>(medium_, format,
                                                  testing::FakeDiskScript{.seed = random_(),
                                                                          .n_images = 1 + up_to(20),
                                                                          .most_per_turn = 1 + up_to(20),
                                                                          .most_idle = up_to(4),
                                                                          .fault_one_in = life_.fault_one_in});
    }
    if (recorder_ && store) store = recorder_->recording(std::move(store));
    core_ = Engine::create(std::move(model), nullptr, stream_, options, recorder_ ? recorder_->clock() : clock_,
                           PrefixHash(life_.hash_bits, 1 + random_()), std::move(store))
                .value();
    if (recorder_) recorder_->begin(*core_, "fake", 1);
    if (life_.max_drafts > 0) core_->speculate(std::make_unique<FakeProposer>(*this), life_.max_drafts);
    n_choices_before_ = n_choices_;
    n_generated_before_ = n_generated_;
  }

  void live_once(int n_steps) {
    for (int i = 0; i < n_steps && !::testing::Test::HasFailure(); ++i) {
      if (up_to(4) == 0) submit();
      if (up_to(25) == 0) cancel();
      if (up_to(12) == 0) preempt();
      if (up_to(30) == 0) clock_.advance(0.05);  // some disks are too slow
      turn();
    }
    for (int i = 0; i < 5000 && turn(); ++i) {
    }
    EXPECT_TRUE(running_.empty()) << running_.size() << " requests never ended";
    EXPECT_EQ(core_->cache().pool().n_in_use(), 0);
    for (const Tier tier : kAllTiers) {
      EXPECT_EQ(core_->cache().pool(tier).n_in_transfer(), 0);
      EXPECT_EQ(core_->cache().states().pool(tier).n_in_use(), 0);
      EXPECT_EQ(core_->cache().states().pool(tier).n_in_transfer(), 0);
    }
    EXPECT_EQ(model_->faults(), std::vector<std::string>());
    const EngineStats stats = core_->stats();
    EXPECT_EQ(stats.n_waiting + stats.n_running, 0);
    EXPECT_EQ(stats.n_finished, n_choices_ - n_choices_before_);
    EXPECT_EQ(stats.n_failed, 0);
    EXPECT_EQ(stats.generated_tokens, n_generated_ - n_generated_before_);
    add(stats);
    if (recorder_) replay_both_ways();
  }

  // Recorded lives are replayed, without the model and, if no disk provided blocks, with it.
  void replay_both_ways() {
    core_.reset();
    recorder_.reset();
    const std::string path = records_.path("record");
    for (const bool with_model : {false, true}) {
      auto replay = Replay::open(path).value();
      if (with_model && replay->head().disk.image_bytes > 0) continue;
      auto engine = with_model ? Engine::create(fake(), nullptr, stream_, replay->options(), replay->clock())
                               : replay->engine_without_model(stream_);
      const Result<ReplayResult> ran = replay->run(**engine, nullptr);
      EXPECT_EQ(ran ? ran->difference : ran.error().message, "") << (with_model ? "with" : "without") << " the model";
      ++n_replays_;
    }
    std::filesystem::remove(path);
  }

  void add(const EngineStats& stats) {
    totals_.n_accepted_drafts += core_->n_accepted_drafts();
    totals_.n_preemptions += stats.n_preemptions;
    totals_.cached_tokens += stats.cached_tokens;
    totals_.n_blocks_down += stats.n_blocks_down;
    totals_.n_blocks_up += stats.n_blocks_up;
    totals_.n_fetched += stats.disk.n_fetched;
    totals_.n_abandoned += stats.disk.n_abandoned;
    totals_.n_bad_files += stats.disk.n_corrupt + stats.disk.n_foreign;
    totals_.n_failed += stats.disk.n_failed_reads + stats.disk.n_failed_writes + stats.disk.n_no_space;
    totals_.n_evicted += stats.disk.n_evicted;
    totals_.n_states_down += core_->cache().states().n_moved_down();
    totals_.n_states_up += core_->cache().states().n_moved_up();
    totals_.n_states_fetched += stats.disk.n_states_fetched;
  }

  // Proposes each request's expected answer, with occasional errors.
  class FakeProposer final : public Proposer {
   public:
    explicit FakeProposer(RandomEngine& engine) : engine_(engine) {}
    void propose(const ProposalInput& input, Drafts& drafts) override {
      EXPECT_FALSE(forgotten_.contains(input.sequence));
      for (const auto& [id, running] : engine_.running_) {
        if (!std::ranges::equal(running.request.prompt, input.prompt)) continue;
        for (const ExpectedAnswer& expected : running.expected) {
          const std::vector<TokenId>& answer = expected.tokens;
          if (answer.size() < input.answer.size() ||
              !std::equal(input.answer.begin(), input.answer.end(), answer.begin()))
            continue;
          const bool is_tree = engine_.up_to(2) == 0;
          int32_t right = -1;
          const auto n = static_cast<size_t>(1 + engine_.up_to(input.max_drafts + 2));  // more are cut off
          for (size_t i = input.answer.size(); i < answer.size() && i < input.answer.size() + n; ++i) {
            // Half of them are trees: wrong siblings before and after the right one.
            const int32_t parent = right;
            if (is_tree && engine_.up_to(3) == 0) drafts.add(any_token(), parent);
            right = drafts.size();
            drafts.add(engine_.up_to(6) == 0 ? any_token() : answer[i], parent);
            if (is_tree && engine_.up_to(3) == 0) drafts.add(any_token(), engine_.up_to(2) == 0 ? parent : right);
          }
          return;
        }
      }
    }
    void forget(int64_t sequence) override { EXPECT_TRUE(forgotten_.insert(sequence).second); }

   private:
    TokenId any_token() { return TokenId{engine_.up_to(testing::kFakeVocabSize)}; }

    RandomEngine& engine_;
    std::set<int64_t> forgotten_;
  };
  struct Heard {  // of one choice
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    std::vector<TokenRecord> prompt;
    bool finished = false;
  };
  struct Running {
    Request request;
    std::vector<Heard> choices;
    bool cancelled = false;
    std::vector<ExpectedAnswer> expected;  // of each choice
  };

  int32_t up_to(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  void submit() {
    Request r;
    r.id = RequestId{next_id_++};
    // Prefixes of a few sequences, so that prefixes match; sometimes a sequence of its own.
    const auto& text = texts_[static_cast<size_t>(up_to(4))];
    const int32_t len = 1 + up_to(up_to(3) == 0 ? life_.context_len : life_.context_len / 2);
    r.prompt.assign(text.begin(), text.begin() + len);
    if (up_to(2) == 0) r.prompt[static_cast<size_t>(up_to(len))] = TokenId{1 + up_to(testing::kFakeVocabSize - 1)};
    r.max_tokens = up_to(3) == 0 ? -1 : up_to(30);
    r.n = up_to(4) == 0 ? 1 + up_to(4) : 1;
    r.priority = up_to(3) == 0 ? up_to(3) : 0;
    r.prompt_logprobs = up_to(6) == 0 ? up_to(3) : -1;
    r.tenant = up_to(5) == 0 ? "other" : "";
    if (up_to(4) == 0) r.weight = 3;
    // Every row of a batch has a sampler of its own; Mirostat's carries its state through preemptions.
    r.sampling = testing::random_sampling(random_, testing::kFakeVocabSize);
    r.sampling.logprobs = 0;
    n_learning_ += r.sampling.mirostat != 0;
    r.sampling.ignore_eos = up_to(4) == 0;
    if (r.max_tokens > 3) r.sampling.min_tokens = up_to(3);
    const Status taken = core_->submit(r);
    if (!taken) {
      EXPECT_EQ(taken.error().kind, ErrorKind::kExhausted) << taken.error().message;
      return;
    }
    n_choices_ += r.n;
    Running& running = running_[r.id] = {r, std::vector<Heard>(static_cast<size_t>(r.n)), false, {}};
    for (int32_t i = 0; i < r.n; ++i) running.expected.push_back(testing::expected_answer(r, i, life_.context_len));
  }

  RequestId any_running() {
    auto it = running_.begin();
    std::advance(it, up_to(static_cast<int32_t>(running_.size())));
    return it->first;
  }
  void cancel() {
    if (running_.empty()) return;
    const RequestId id = any_running();
    running_.at(id).cancelled = true;
    core_->cancel(id);
  }
  void preempt() {
    if (running_.empty()) return;
    const RequestId id = any_running();
    core_->preempt(id, up_to(running_.at(id).request.n));
  }

  bool turn() {
    std::vector<Output> out;
    const bool busy = core_->step(out);
    for (Output& o : out) hear(o);
    core_->self_check();
    int32_t n_tokens = 0;
    for (const StepShare& share : core_->last_step()) n_tokens += share.n_tokens;
    EXPECT_LE(n_tokens, life_.step_tokens);
    const EngineStats s = core_->stats();
    EXPECT_EQ(s.blocks_free + s.blocks_cached + s.blocks_in_use, s.blocks_total);
    poison();
    return busy;
  }

  void poison() {
    const BlockPool& pool = core_->cache().pool();
    for (int32_t b = 0; b < pool.n_total(); ++b) {
      if (pool.n_references(BlockId{b}) > 0 || pool.node_of(BlockId{b}) != NodeId::kNone) continue;
      for (const PagedKv& kv : core_->kv().layers()) {
        std::memset(kv.blocks + b * kv.block_bytes, 0xee, static_cast<size_t>(kv.layer_bytes));
      }
    }
    const StatePool& states = core_->cache().states();
    const StateSlots& slots = core_->state_slots();
    for (int32_t i = 0; i < slots.n_slots; ++i) {
      const auto reads = [i](const StateCopy& c) { return c.from_tier == Tier::kDevice && c.from == StateId{i}; };
      const bool is_to_be_copied = std::ranges::any_of(states.copies(), reads);  // at the start of the next step
      if (states.n_references(StateId{i}) > 0 || states.is_snapshot(StateId{i}) || is_to_be_copied) continue;
      std::memset(slots.slot(i), 0xee, static_cast<size_t>(slots.slot_bytes));
    }
  }

  void hear(Output& o) {
    const auto it = running_.find(o.request);
    ASSERT_NE(it, running_.end()) << "an output after the end";
    Running& r = it->second;
    Heard& h = r.choices.at(static_cast<size_t>(o.choice));
    ASSERT_FALSE(h.finished) << "an output after the end";
    for (const TokenRecord& t : o.tokens) {
      EXPECT_EQ(t.position, static_cast<int32_t>(r.request.prompt.size() + h.tokens.size()));
      h.tokens.push_back(t.chosen.token);
      h.logprobs.push_back(t.chosen.raw);
    }
    for (TokenRecord& t : o.prompt) h.prompt.push_back(std::move(t));
    EXPECT_EQ(o.usage.completion_tokens, static_cast<int32_t>(h.tokens.size()));
    EXPECT_EQ(o.usage.prompt_tokens, static_cast<int32_t>(r.request.prompt.size()));
    EXPECT_LT(o.usage.cached_tokens, o.usage.prompt_tokens);
    if (!o.finished) return;
    h.finished = true;
    n_generated_ += static_cast<int64_t>(h.tokens.size());
    compare(r, o, h);
    if (std::ranges::all_of(r.choices, &Heard::finished)) running_.erase(it);
  }

  void compare(const Running& r, const Output& o, const Heard& h) {
    ExpectedAnswer expected = r.expected[static_cast<size_t>(o.choice)];
    if (r.cancelled && o.reason == FinishReason::kCancelled) {
      ASSERT_LE(h.tokens.size(), expected.tokens.size());
      expected.tokens.resize(h.tokens.size());
      expected.logprobs.resize(h.tokens.size());
    } else {
      EXPECT_EQ(o.reason, expected.reason);
      const bool scored = r.request.prompt_logprobs >= 0 && o.choice == 0;
      EXPECT_EQ(h.prompt.size(), scored ? r.request.prompt.size() : 0);
    }
    EXPECT_EQ(h.tokens, expected.tokens);
    EXPECT_EQ(h.logprobs, expected.logprobs);
    uint64_t hash = testing::mix(77, 0);
    std::vector<float> logits(testing::kFakeVocabSize);
    SamplerScratch scratch;
    for (size_t i = 0; i < h.prompt.size(); ++i) {
      EXPECT_EQ(h.prompt[i].chosen.token, r.request.prompt[i]);
      EXPECT_EQ(h.prompt[i].position, static_cast<int32_t>(i));
      if (i > 0) {
        testing::fake_logits(hash, logits);
        const TokenRecord s = score_row(logits, r.request.prompt[i], r.request.prompt_logprobs, scratch).value();
        EXPECT_EQ(h.prompt[i].chosen.raw, s.chosen.raw);
        EXPECT_EQ(h.prompt[i].top.size(), s.top.size());
      }
      hash = testing::mix(hash, static_cast<uint64_t>(raw(r.request.prompt[i])));
    }
  }

  std::mt19937_64 random_;
  Life life_;
  ThreadTeam team_{1};
  Stream stream_{team_};
  ManualClock clock_;
  FakeModel* model_ = nullptr;
  const bool is_recorded_;
  TempFolder records_;
  std::unique_ptr<Recorder> recorder_;
  std::shared_ptr<testing::FakeMedium> medium_ = std::make_shared<testing::FakeMedium>();
  std::unique_ptr<Engine> core_;
  Totals totals_;
  int64_t n_choices_before_ = 0, n_generated_before_ = 0;  // the process that lives now
  std::vector<TokenId> texts_[4];
  uint64_t next_id_ = 1;
  std::map<RequestId, Running> running_;
};

void live_many(uint64_t first_seed, uint64_t n_seeds, int n_steps) {
  int64_t n_choices = 0, n_learning = 0, n_replays = 0;
  RandomEngine::Totals all;
  for (uint64_t seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomEngine engine(seed);
    engine.live(n_steps);
    n_choices += engine.n_choices_;
    n_learning += engine.n_learning_;
    n_replays += engine.n_replays_;
    all += engine.totals();
    if (::testing::Test::HasFailure()) {
      FAIL() << "seed " << seed << " of " << n_steps << " steps fails";
    }
  }
  EXPECT_GT(all.n_preemptions, 0);
  EXPECT_GT(all.cached_tokens, 0);
  EXPECT_GT(n_choices, 0);
  EXPECT_GT(n_learning, 0);
  EXPECT_GT(n_replays, static_cast<int64_t>(n_seeds / 3));
  EXPECT_GT(all.n_accepted_drafts, 100);
  EXPECT_GT(all.n_blocks_down, 0);
  EXPECT_GT(all.n_blocks_up, 0);
  EXPECT_GT(all.n_fetched, 0);
  EXPECT_GT(all.n_abandoned, 0);
  EXPECT_GT(all.n_bad_files, 0);
  EXPECT_GT(all.n_failed, 0);
  EXPECT_GT(all.n_evicted, 0);
}

// The same lives over a model that can go on only where its state was kept: a wrong state is a wrong answer.
void live_with_state(uint64_t first_seed, uint64_t n_seeds, int n_steps) {
  int64_t n_replays = 0;
  RandomEngine::Totals all;
  for (uint64_t seed = first_seed; seed < first_seed + n_seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomEngine engine(seed, true);
    engine.live(n_steps);
    n_replays += engine.n_replays_;
    all += engine.totals();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << " of " << n_steps << " steps fails";
  }
  EXPECT_GT(n_replays, static_cast<int64_t>(n_seeds / 3));
  EXPECT_GT(all.n_preemptions, 0);
  EXPECT_GT(all.cached_tokens, 0);
  EXPECT_GT(all.n_accepted_drafts, 100);
  EXPECT_GT(all.n_blocks_up, 0);
  EXPECT_GT(all.n_states_down, 0);
  EXPECT_GT(all.n_states_up, 0);
  EXPECT_GT(all.n_fetched, 0);
  EXPECT_GT(all.n_states_fetched, 0);
  EXPECT_GT(all.n_abandoned, 0);
  EXPECT_GT(all.n_bad_files, 0);
  EXPECT_GT(all.n_evicted, 0);
}

TEST(EngineProperty, EveryAnswerIsTheRequestsOwnWhateverHappensAround) { live_many(1, 60, 300); }
TEST(EngineProperty, SoItIsOfAModelThatGoesOnOnlyWhereItsStateWasKept) { live_with_state(1, 60, 300); }
TEST(SlowEngineProperty, SoItIsOfAModelThatGoesOnOnlyWhereItsStateWasKept) {
  live_with_state(1000, static_cast<uint64_t>(testing::n_cases(200)), 2000);
}
TEST(SlowEngineProperty, EveryAnswerIsTheRequestsOwnWhateverHappensAround) {
  live_many(1000, static_cast<uint64_t>(testing::n_cases(1000)), 2000);
}

}  // namespace
}  // namespace ibid
