// Requests under random schedules over a real model: the answer of each choice, as one SHA-256 of its tokens and the
// bits of its log-probabilities, and schedules drawn from a seed.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "engine/engine.h"
#include "engine/record/recorder.h"
#include "engine/record/replay.h"
#include "model/model.h"
#include "model/testing/tiny_model.h"
#include "model/vision/prompt_pictures.h"
#include "spec/experimental/lookahead_proposer.h"
#include "spec/experimental/store_proposer.h"
#include "spec/heads/eagle_proposer.h"
#include "spec/heads/heads_proposer.h"
#include "spec/lookup/free_proposers.h"
#include "spec/model/draft_model.h"
#include "spec/model/window_proposer.h"
#include "temp_folder.h"
#include "tiny_eagle.h"
#include "tiny_heads.h"
#include "worker/model_pass.h"

namespace ibid::testing {

// The proposer of a schedule.
enum class DraftKind : uint8_t {
  kMixed,      // trees and chains of right and wrong drafts
  kLookup,     // the engine's own
  kRight,      // the expected answer
  kWrong,      // always
  kRandom,     // of any id
  kEnds,       // ends of generation among right drafts
  kRepeated,   // trees with equal children
  kItself,     // a draft model that is the target: with KV of one dtype it is always right
  kModel,      // another draft model, beside the engine's own look-up
  kHeads,      // draft heads on the target that were never trained
  kStore,      // a file of texts, some of them answers and some noise, with the engine's own look-up
  kAnswers,    // the same tenant's earlier answers, with the same look-up
  kEagle,      // an EAGLE head that was never trained
  kEagle3,     // one of the third kind, whose outputs are a part of the vocabulary, beside the engine's own look-up
  kSkip,       // the target itself without its first layer
  kMtp,        // an MTP layer that was never trained
  kWindow,     // the target itself over a part of its sequences' own blocks
  kLookAhead,  // the target's tokens after rejected drafts
};
inline constexpr int32_t kDraftKinds = 18;

// A schedule, as data; printed where a digest differs.
struct Schedule {
  uint64_t seed = 0;
  int32_t block_len = 16;
  int32_t n_contexts = 1;  // size of the pool, in full contexts
  int32_t step_tokens = 512;
  int32_t max_sequences = 8;
  bool prefix_cache = true;
  int32_t hash_bits = 128;
  int32_t warmth = 0;           // 0 cold, 1 partly warm (beginnings of the prompts), 2 warm (all was asked before)
  int32_t steps_between = 0;    // submits come up to so many steps apart
  int32_t preempt_one_in = 0;   // steps; 0: never by hand
  int32_t n_strangers = 0;      // other requests in between, cancelled at random
  int32_t n_host_contexts = 0;  // size of the host tier; 0: none
  bool has_disk = false;        // a folder, and a restart between the warm-up and the requests
  int32_t max_drafts = 0;       // of a sequence in a step
  DraftKind drafts = DraftKind::kMixed;
  int32_t preempt_at = -1;  // all that run, after this step
  PolicyKind policy = PolicyKind::kFair;
  bool has_ranks = false;    // requests of several priorities; strangers of other tenants, weights and targets
  double max_itl = 0;        // in real time: what it leads to is another schedule each time
  bool is_recorded = false;  // and replayed, without the model and, where no disk gave blocks, with it
};

inline Schedule random_schedule(uint64_t seed, int32_t step_tokens, int32_t max_sequences) {
  std::mt19937_64 random(seed * 77 + 5);
  const auto up_to = [&random](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  Schedule s;
  s.seed = seed;
  s.block_len = 8 << up_to(3);
  s.n_contexts = 1 + up_to(4);
  s.max_sequences = 1 + up_to(max_sequences);
  s.step_tokens = up_to(3) == 0 ? step_tokens : s.max_sequences + up_to(std::min(step_tokens - s.max_sequences, 48));
  s.prefix_cache = up_to(5) != 0;
  s.hash_bits = up_to(4) == 0 ? 8 : 128;
  s.warmth = up_to(3);
  s.steps_between = up_to(4);
  s.preempt_one_in = up_to(3) == 0 ? 0 : 2 + up_to(12);
  // Without prefix hits, a long prompt in small pieces must have a chance between two of them.
  if (!s.prefix_cache && s.preempt_one_in > 0) s.preempt_one_in += 400 / s.step_tokens;
  s.n_strangers = up_to(4);
  s.max_drafts = up_to(2) == 0 ? 0 : 1 + up_to(7);
  s.n_host_contexts = up_to(3);
  if (s.n_host_contexts > 0) s.n_contexts = 1 + s.n_contexts % 2;  // so that it is needed
  s.has_disk = up_to(2) == 0;
  s.drafts = static_cast<DraftKind>(up_to(kDraftKinds));
  s.policy = static_cast<PolicyKind>(up_to(3));
  s.has_ranks = up_to(2) == 0;
  s.max_itl = up_to(3) * 0.0005;
  return s;
}

inline std::string spelled(const Schedule& s) {
  std::ostringstream out;
  out << "seed " << s.seed << ": block_len " << s.block_len << ", contexts " << s.n_contexts << ", step_tokens "
      << s.step_tokens << ", max_sequences " << s.max_sequences << ", prefix_cache " << s.prefix_cache << ", hash_bits "
      << s.hash_bits << ", warmth " << s.warmth << ", steps_between " << s.steps_between << ", preempt_one_in "
      << s.preempt_one_in << ", strangers " << s.n_strangers << ", max_drafts " << s.max_drafts << " of kind "
      << static_cast<int>(s.drafts) << ", host_contexts " << s.n_host_contexts << ", disk " << s.has_disk
      << ", preempt_at " << s.preempt_at << ", policy " << name_of(s.policy) << ", ranks " << s.has_ranks
      << ", max_itl " << s.max_itl;
  return out.str();
}

// One choice's answer as received.
class Transcript {
 public:
  void hear(const Output& o) {
    for (const TokenRecord& t : o.prompt) add(t);
    for (const TokenRecord& t : o.tokens) {
      add(t);
      tokens_.push_back(t.chosen.token);
    }
    text_ += o.text;
    if (o.finished) {
      finished_ = true;
      reason_ = o.reason;
      if (o.ending) score_ = o.ending->score;
      sha_.add(text_.data(), text_.size());
      sha_.add(&o.reason, sizeof o.reason);
      digest_ = sha_.hex();
    }
  }
  bool finished() const { return finished_; }
  const std::string& digest() const { return digest_; }
  const std::string& text() const { return text_; }
  int64_t n_records() const { return n_records_; }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  FinishReason reason() const { return reason_; }
  double score() const { return score_; }  // of a search

 private:
  void add(const TokenLogprob& t) {
    sha_.add(&t.token, sizeof t.token);
    sha_.add(&t.raw, sizeof t.raw);
    sha_.add(&t.processed, sizeof t.processed);
  }
  void add(const TokenRecord& t) {
    ++n_records_;
    add(t.chosen);
    for (const TokenLogprob& u : t.top) add(u);
    sha_.add(&t.support, sizeof t.support);
  }
  Sha256 sha_;
  std::string text_, digest_;
  std::vector<TokenId> tokens_;
  FinishReason reason_ = FinishReason::kNone;
  double score_ = 0;
  bool finished_ = false;
  int64_t n_records_ = 0;
};

using Digests = std::vector<std::string>;  // of all choices of all requests, in order

struct Totals {
  int64_t n_schedules = 0, n_preemptions = 0, cached_tokens = 0, n_steps = 0, n_drafted = 0, n_accepted = 0;
  int64_t n_blocks_up = 0, n_fetched = 0;  // from the host, from a disk
  int64_t n_replays = 0;
  std::set<DraftKind> drafted;     // what some schedule had drafts of
  std::set<FinishReason> reasons;  // of answers
};

// Proposes the earlier answer to the same prompt, with possible errors of a proposer; any number of drafts each time.
class Memory final : public Proposer {
 public:
  Memory(DraftKind kind, uint64_t seed, int32_t vocab_size, TokenId end)
      : kind_(kind), random_(seed), vocab_size_(vocab_size), end_(end) {}
  static void remember(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answer) {
    auto& answers = said()[prompt];
    if (std::ranges::find(answers, answer) == answers.end() && answers.size() < 32) answers.push_back(answer);
  }
  // Each prompt with each of its answers.
  template <typename Visit>
  static void each_text(Visit visit) {
    for (const auto& [prompt, answers] : said()) {
      for (const auto& answer : answers) visit(prompt, answer);
    }
  }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const std::vector<TokenId> prompt(input.prompt.begin(), input.prompt.end());
    const bool is_tree = kind_ == DraftKind::kMixed && one_in(2);
    const auto n = 1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(input.max_drafts));
    int32_t right = -1;
    for (size_t i = input.answer.size(); drafts.size() < n; ++i) {
      const int32_t parent = right;
      if (is_tree && one_in(3)) drafts.add(any_token(), parent);
      right = drafts.size();
      drafts.add(token(prompt, input.answer, i), parent);
      if (is_tree && one_in(3)) drafts.add(any_token(), parent);
      if (kind_ == DraftKind::kRepeated && one_in(2)) drafts.add(drafts.tokens.back(), parent);
    }
  }

 private:
  static std::map<std::vector<TokenId>, std::vector<std::vector<TokenId>>>& said() {
    static std::map<std::vector<TokenId>, std::vector<std::vector<TokenId>>> all;
    return all;
  }
  bool one_in(uint64_t n) { return random_() % n == 0; }
  TokenId any_token() { return TokenId{static_cast<int32_t>(random_() % static_cast<uint64_t>(vocab_size_))}; }
  TokenId token(const std::vector<TokenId>& prompt, std::span<const TokenId> answer, size_t i) {
    const TokenId right = next(prompt, answer, i);
    switch (kind_) {
      case DraftKind::kMixed:
        return one_in(6) ? any_token() : right;
      case DraftKind::kRandom:
        return any_token();
      case DraftKind::kWrong:
        return TokenId{(raw(right) + 1) % vocab_size_};
      case DraftKind::kEnds:
        return one_in(3) ? end_ : right;
      default:
        return right;
    }
  }
  TokenId next(const std::vector<TokenId>& prompt, std::span<const TokenId> answer, size_t i) {
    for (const std::vector<TokenId>& once : said()[prompt]) {
      if (i < once.size() && std::equal(answer.begin(), answer.end(), once.begin())) return once[i];
    }
    return any_token();
  }
  DraftKind kind_;
  std::mt19937_64 random_;
  int32_t vocab_size_;
  TokenId end_;
};

// Runs `requests` (ids 1, 2, ...) under a schedule and returns their digests. `prepare` is called of each, and of those
// that warm up, before it is submitted: for what a request may not share with another.
class ScheduleRun {
 public:
  using Prepare = std::function<void(Request&)>;
  ScheduleRun(Model& model, Stream& stream, std::shared_ptr<const Tokenizer> tokenizer, KvTypes kv_dtype,
              const Schedule& schedule, const std::vector<Request>& requests, Prepare prepare = nullptr)
      : random_(schedule.seed),
        schedule_(schedule),
        requests_(requests),
        model_(model),
        stream_(stream),
        tokenizer_(tokenizer),
        kv_dtype_(kv_dtype),
        prepare_(std::move(prepare)) {
    if (schedule.has_disk) folder_ = std::make_unique<TempFolder>();
    if (schedule.is_recorded) records_ = std::make_unique<TempFolder>();
    start();
  }

  void start() {
    finish_record();
    std::vector<TokenId> ends;
    if (tokenizer_) ends = tokenizer_->vocabulary().end_of_generation;
    auto pass = std::make_unique<ModelPass>(model_, stream_, ends, "digest");
    const Schedule& schedule = schedule_;
    const KvTypes kv_dtype = kv_dtype_;
    EngineOptions options;
    options.block_len = schedule.block_len;
    options.kv_dtype = kv_dtype;
    const int32_t n_blocks = (pass->facts().context_len + schedule.block_len - 1) / schedule.block_len;
    options.kv_bytes =
        KvStore::block_bytes(pass->facts(), kv_dtype, schedule.block_len) * n_blocks * schedule.n_contexts;
    options.step_tokens = schedule.step_tokens;
    options.max_sequences = schedule.max_sequences;
    options.max_rows = model_.options().max_rows;
    options.host_bytes =
        schedule.n_host_contexts * n_blocks * KvStore::block_bytes(pass->facts(), kv_dtype, schedule.block_len);
    options.state_step = 8 * schedule.block_len;
    options.host_states_bytes = schedule.n_host_contexts * 4 * pass->facts().state_bytes;
    if (schedule.block_len == 8) options.host_copy_seconds = 1e-5;  // on the edge of being worth it
    if (folder_) options.disk_folder = folder_->path("kv");
    options.disk_bytes = int64_t{1} << 30;
    options.prefix_cache = schedule.prefix_cache;
    options.policy = schedule.policy;
    options.max_itl = schedule.max_itl;
    if (schedule.drafts == DraftKind::kLookup) options.max_drafts = schedule.max_drafts;
    vocab_size_ = pass->facts().vocab_size;
    std::unique_ptr<DurableStore> store;
    if (records_) {
      recorder_ = Recorder::create({.path = records_->path("record")}).value();
      if (folder_) store = recorder_->recording(Engine::open_store(model_, options).value());
    }
    core_ =
        Engine::create(std::move(pass), tokenizer_, stream_, options, recorder_ ? recorder_->clock() : steady_clock(),
                       PrefixHash(schedule.hash_bits, 9), std::move(store))
            .value();
    if (recorder_) recorder_->begin(*core_, "tiny", 1);
    DraftKind kind = schedule.drafts;
    const auto is_eagle = [&kind] {
      return kind == DraftKind::kEagle || kind == DraftKind::kEagle3 || kind == DraftKind::kMtp;
    };
    // An MTP layer is of llama's shape, and as the model's last layer that attends.
    static const ModelFile nothing{ModelFile::Parts()};
    if (kind == DraftKind::kMtp && !mtp_block_config(model_.config(), nothing).ok()) kind = DraftKind::kEagle;
    // A view spares nothing where no layer reads far back.
    if (kind == DraftKind::kWindow && core_->facts().window > 0) kind = DraftKind::kRandom;
    // What recurrent layers make of a sequence cannot be drafted from a part of its tokens, nor by a model that has
    // some.
    const bool is_own = kind == DraftKind::kItself || kind == DraftKind::kSkip || kind == DraftKind::kWindow;
    if (is_own && core_->facts().state_bytes > 0) kind = DraftKind::kRandom;
    // A model made by hand shows no embeddings and outputs, which heads read.
    if ((is_eagle() || kind == DraftKind::kHeads) && model_.vocabulary() == nullptr) kind = DraftKind::kRandom;
    if (schedule.max_drafts > 0 && kind != DraftKind::kLookup) {
      const bool is_model = kind == DraftKind::kItself || kind == DraftKind::kModel || kind == DraftKind::kSkip;
      if (is_model) return core_->speculate(draft_model(ends), schedule.max_drafts);
      if (kind == DraftKind::kHeads) return core_->speculate(draft_heads(ends), schedule.max_drafts);
      if (is_eagle()) return core_->speculate(eagle(ends, kind == DraftKind::kMtp), schedule.max_drafts);
      if (kind == DraftKind::kWindow) return core_->speculate(window(ends), schedule.max_drafts);
      if (kind == DraftKind::kLookAhead)
        return core_->speculate(std::make_unique<LookAheadProposer>(LookAheadOptions{
                                    .n_window = schedule.max_drafts, .end_of_generation = ends, .always = true}),
                                schedule.max_drafts);
      const bool is_store = kind == DraftKind::kStore || kind == DraftKind::kAnswers;
      if (is_store) return core_->speculate(stores(ends), schedule.max_drafts);
      const TokenId end = ends.empty() ? TokenId{0} : ends.front();
      core_->speculate(std::make_unique<Memory>(kind, schedule.seed, vocab_size_, end), schedule.max_drafts);
    }
  }

  Digests run(Totals* totals = nullptr) {
    warm_up();
    if (schedule_.has_disk) start();
    for (const Request& r : requests_) transcripts_[r.id].resize(static_cast<size_t>(r.n));
    std::vector<Request> arrivals = requests_;
    for (int32_t i = 0; i < schedule_.n_strangers; ++i) arrivals.push_back(stranger(i));
    std::ranges::shuffle(arrivals, random_);
    for (Request& r : arrivals) {
      const bool is_stranger = !transcripts_.contains(r.id);
      const RequestId id = r.id;
      if (schedule_.has_ranks) r.priority = up_to(3) - 1;
      if (prepare_ && !is_stranger) prepare_(r);
      CHECK(core_->submit(std::move(r)).ok());
      for (int32_t i = up_to(schedule_.steps_between + 1); i > 0; --i) turn();
      if (is_stranger && up_to(2) == 0) core_->cancel(id);
    }
    while (turn()) {
    }
    core_->self_check();
    CHECK(core_->cache().pool().n_in_use() == 0, "blocks outlive their requests");
    if (totals != nullptr) {
      ++totals->n_schedules;
      totals->n_preemptions += core_->stats().n_preemptions;
      totals->cached_tokens += core_->stats().cached_tokens;
      totals->n_steps += core_->stats().n_steps;
      totals->n_drafted += core_->stats().drafted_tokens;
      totals->n_accepted += core_->stats().accepted_tokens;
      if (core_->stats().drafted_tokens > 0) totals->drafted.insert(schedule_.drafts);
      totals->n_blocks_up += core_->stats().n_blocks_up;
      totals->n_fetched += core_->stats().disk.n_fetched;
    }
    finish_record();
    Digests out;
    for (const Request& r : requests_) {
      for (const Transcript& t : transcripts_[r.id]) {
        out.push_back(t.digest());
        Memory::remember(r.prompt, t.tokens());
        if (totals != nullptr) totals->reasons.insert(t.reason());
      }
    }
    return out;
  }
  int32_t n_paused() const { return n_paused_; }  // by Schedule::preempt_at
  // Of its records, which are those of each start: how their replays differ.
  const std::vector<std::string>& differences() const { return differences_; }
  int32_t n_replays() const { return n_replays_; }
  const Transcript& transcript(RequestId id, int32_t choice = 0) {
    return transcripts_[id].at(static_cast<size_t>(choice));
  }

 private:
  static constexpr uint64_t kWarmUp = 1000, kStranger = 2000;

  // The engine goes, and what it did is done again.
  void finish_record() {
    core_.reset();
    if (!recorder_) return;
    recorder_.reset();
    const std::string path = records_->path("record");
    for (const bool with_model : {false, true}) {
      auto replay = Replay::open(path).value();
      const bool shows = std::ranges::any_of(requests_, [](const Request& r) { return r.pictures != nullptr; });
      if (with_model && (shows || replay->head().disk.image_bytes > 0)) continue;  // no record has pictures
      std::vector<TokenId> ends = replay->options().end_of_generation;
      if (tokenizer_) ends = tokenizer_->vocabulary().end_of_generation;
      auto engine = with_model ? Engine::create(std::make_unique<ModelPass>(model_, stream_, ends, "digest"),
                                                tokenizer_, stream_, replay->options(), replay->clock())
                               : replay->engine_without_model(stream_);
      replay->use_adapters([this](const std::string& digest) {
        const auto has = [&](const Request& r) { return r.adapter && r.adapter->adapter->digest() == digest; };
        const auto found = std::ranges::find_if(requests_, has);
        return found != requests_.end() ? found->adapter : nullptr;
      });
      const Result<ReplayResult> ran = replay->run(**engine, with_model ? tokenizer_ : nullptr);
      ++n_replays_;
      const std::string difference = ran ? ran->difference : ran.error().message;
      if (!difference.empty())
        differences_.push_back((with_model ? "with the model, " : "without the model, ") + difference);
    }
    std::filesystem::remove(path);
  }

  // Drafts regardless of cost. The other model is as wide as any tiny one and unrelated to the target.
  std::unique_ptr<Proposer> draft_model(const std::vector<TokenId>& ends) {
    Model* model = &model_;
    if (schedule_.drafts == DraftKind::kModel) {
      const TinyModelOptions tiny = {.seed = 9, .vocab_size = vocab_size_, .context_len = model_.context_len()};
      draft_ = load_model(tiny_model_file(tiny),
                          {.context_len = model_.context_len(), .step_tokens = 64, .max_rows = 8, .max_sequences = 8},
                          stream_)
                   .value();
      model = draft_.get();
    }
    if (schedule_.drafts == DraftKind::kSkip) {
      const std::vector<int32_t> first = {0};
      // One that is made by hand has no such part, and drafts for itself.
      auto part = model_without(
          model_, first, {.context_len = model_.context_len(), .step_tokens = 64, .max_rows = 8, .max_sequences = 8},
          stream_);
      if (part) draft_ = std::move(*part), model = draft_.get();
    }
    auto pass = std::make_unique<ModelPass>(*model, stream_, ends, "");
    DraftModelOptions options = {.kv_dtype = kv_dtype_, .block_len = 8 << up_to(3), .end_of_generation = ends};
    options.vocab_size = vocab_size_;
    options.step_tokens = 64;
    options.max_sequences = std::min(8, schedule_.max_sequences);
    options.prefix_cache = schedule_.prefix_cache;
    options.always = true;
    const int32_t n_window = 1 + up_to(24);
    const bool may_err = schedule_.drafts != DraftKind::kItself;
    if (may_err && schedule_.max_drafts % 2 == 0 && 8 + 2 * n_window + kMaxDrafts <= model->context_len())
      options.n_sink = up_to(8), options.n_window = n_window;
    options.kv_bytes = 24 * 32 / options.block_len * KvStore::block_bytes(pass->facts(), kv_dtype_, options.block_len);
    std::unique_ptr<Proposer> made = DraftModel::create(std::move(pass), stream_, options).value();
    if (schedule_.drafts != DraftKind::kModel) return made;
    return free_proposers(core_->facts(), schedule_.max_sequences, std::move(made));
  }

  std::unique_ptr<Proposer> draft_heads(const std::vector<TokenId>& ends) {
    const auto file =
        tiny_heads_file({.width = model_.config().width, .vocab_size = vocab_size_, .seed = schedule_.seed});
    const auto named = named_tree({{0}, {0, 0}, {1}, {2}, {1, 0}, {0, 1}, {3}, {1, 1}, {0, 2}}, kMaxDrafts).value();
    const HeadsOptions options = {.max_sequences = std::min(3, schedule_.max_sequences),
                                  .vocab_size = vocab_size_,
                                  .context_len = static_cast<int32_t>(model_.context_len()),
                                  .end_of_generation = ends,
                                  .always = true,
                                  .branches = schedule_.max_drafts % 2 == 0 ? HeadsProposer::kBranches : 1,
                                  .tree = schedule_.max_drafts % 4 == 0 ? named : std::vector<DraftPlace>()};
    auto heads = DraftHeads::load(file, model_, stream_, HeadsProposer::n_rows(options)).value();
    return std::make_unique<HeadsProposer>(std::move(heads), stream_, options);
  }

  // For sequences so short that a large part of them is left out.
  std::unique_ptr<Proposer> window(const std::vector<TokenId>& ends) {
    return WindowProposer::create(core_->seat(), {.n_sink = 8 * up_to(3),
                                                  .n_window = 1 + up_to(24),
                                                  .max_sequences = std::min(3, schedule_.max_sequences),
                                                  .end_of_generation = ends,
                                                  .always = schedule_.max_drafts % 5 != 0})
        .value();
  }

  std::unique_ptr<Proposer> eagle(const std::vector<TokenId>& ends, bool is_mtp) {
    TinyEagle tiny = {.width = model_.config().width,
                      .vocab_size = vocab_size_,
                      .is_third = schedule_.drafts == DraftKind::kEagle3,
                      .seed = schedule_.seed};
    for (int64_t i = 0; tiny.is_third && i < vocab_size_; i += 2) tiny.ids.push_back(i);
    EagleSizes sizes =
        EagleProposer::sizes(std::min(3, schedule_.max_sequences), static_cast<int32_t>(model_.context_len()),
                             static_cast<int32_t>(model_.options().step_tokens));
    sizes.kv_dtype = kv_dtype_;
    sizes.block_len = schedule_.block_len;
    if (up_to(2) == 0) sizes.n_blocks = 1 + sizes.n_blocks / 4;  // some sequences find no room
    const auto file =
        is_mtp ? tiny_mtp_file(model_.config(), schedule_.seed % 2 == 0, schedule_.seed) : tiny_eagle_file(tiny);
    auto made = std::make_unique<EagleProposer>(
        EagleHead::load(file, model_, stream_, sizes).value(), stream_,
        EagleOptions{.vocab_size = vocab_size_,
                     .end_of_generation = ends,
                     .always = schedule_.max_drafts % 5 != 0,
                     .branches = schedule_.max_drafts % 2 == 0 ? EagleProposer::kBranches : 1});
    if (!tiny.is_third) return made;
    return free_proposers(core_->facts(), schedule_.max_sequences, std::move(made));
  }

  std::unique_ptr<Proposer> stores(const std::vector<TokenId>& ends) {
    std::shared_ptr<const TextStore> store;
    std::unique_ptr<OwnAnswers> own;
    if (schedule_.drafts == DraftKind::kAnswers) {
      own = std::make_unique<OwnAnswers>(OwnAnswers::kLeastBytes);
    } else {
      store = store_of_texts();
    }
    return free_proposers(
        core_->facts(), schedule_.max_sequences, nullptr,
        std::make_unique<StoreProposer>(
            std::move(store), std::move(own),
            StoreProposerOptions{.max_sequences = std::min(3, schedule_.max_sequences), .end_of_generation = ends}));
  }

  std::shared_ptr<const TextStore> store_of_texts() {
    Vocabulary vocabulary;
    for (int32_t i = 0; i < vocab_size_; ++i) vocabulary.tokens.push_back(std::to_string(i));
    TextStoreWriter writer(1 << 20);
    // The process may have run models of other vocabularies.
    const auto is_spelled = [this](const std::vector<TokenId>& text) {
      return std::ranges::all_of(text, [this](TokenId token) { return raw(token) < vocab_size_; });
    };
    Memory::each_text([&](const auto& prompt, const auto& answer) {
      if (!is_spelled(prompt) || !is_spelled(answer)) return;
      writer.add(prompt);
      writer.add(answer);
      writer.end_text();
    });
    for (int32_t i = 0; i < 3000; ++i) {
      const TokenId any{up_to(vocab_size_)};
      writer.add({&any, 1});
      if (up_to(50) == 0) writer.end_text();
    }
    const TempFolder folder;
    CHECK(writer.write(folder.path("store"), vocabulary, "tiny").ok());
    return TextStore::open(folder.path("store"), vocabulary).value();  // stays mapped
  }

  int32_t up_to(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }

  // The prompt's beginning, with the pictures that are whole in it.
  static void cut_prompt(Request& r, size_t n) {
    r.prompt.resize(n);
    if (r.pictures == nullptr) return;
    std::vector<PlacedPicture> left;
    for (const PlacedPicture& p : r.pictures->all()) {
      if (p.end() <= static_cast<int32_t>(n)) left.push_back(p);
    }
    r.pictures = std::make_shared<const PromptPictures>(std::move(left));
  }

  void warm_up() {
    uint64_t id = kWarmUp;
    for (Request r : requests_) {
      if (schedule_.warmth == 0) return;
      r.id = RequestId{id++};
      if (schedule_.warmth == 1) cut_prompt(r, 1 + r.prompt.size() / 2);
      if (prepare_) prepare_(r);
      CHECK(core_->submit(std::move(r)).ok());
    }
    while (turn()) {
    }
  }

  Request stranger(int32_t i) {
    Request r;
    r.id = RequestId{kStranger + static_cast<uint64_t>(i)};
    r.prompt = requests_[static_cast<size_t>(up_to(static_cast<int32_t>(requests_.size())))].prompt;
    r.prompt.resize(1 + r.prompt.size() / 2);
    for (int32_t n = 1 + up_to(20); n > 0; --n) r.prompt.push_back(TokenId{up_to(vocab_size_)});
    r.prompt.resize(std::min(r.prompt.size(), requests_.front().prompt.size() + 40));
    r.max_tokens = 1 + up_to(10);
    r.n = 1 + up_to(2);
    r.sampling.seed = random_();
    if (schedule_.has_ranks) {
      r.tenant = up_to(2) == 0 ? "a" : "b";
      r.weight = static_cast<float>(1 + up_to(3));
      r.tpot_target = up_to(3) == 0 ? 0.001f : 0;
    }
    return r;
  }

  bool turn() {
    out_.clear();
    const bool busy = core_->step(out_);
    core_->self_check();
    for (const Output& o : out_) {
      CHECK(o.reason != FinishReason::kError, o.error().message.c_str());
      if (const auto it = transcripts_.find(o.request); it != transcripts_.end()) {
        it->second.at(static_cast<size_t>(o.choice)).hear(o);
      }
    }
    if (n_turns_++ == schedule_.preempt_at) {
      for (const Request& r : requests_) {
        for (int32_t choice = 0; choice < r.n; ++choice) n_paused_ += core_->preempt(r.id, choice);
      }
    }
    if (schedule_.preempt_one_in > 0 && up_to(schedule_.preempt_one_in) == 0) {
      const Request& r = requests_[static_cast<size_t>(up_to(static_cast<int32_t>(requests_.size())))];
      core_->preempt(r.id, up_to(r.n));
    }
    return busy;
  }

  std::mt19937_64 random_;
  Schedule schedule_;
  std::vector<Request> requests_;
  Model& model_;
  Stream& stream_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  KvTypes kv_dtype_;
  Prepare prepare_;
  std::unique_ptr<TempFolder> folder_;  // of the disk tier; null: there is none
  std::unique_ptr<TempFolder> records_;
  std::unique_ptr<Recorder> recorder_;
  std::vector<std::string> differences_;
  int32_t n_replays_ = 0;
  std::unique_ptr<Model> draft_;  // of kModel and kSkip
  std::unique_ptr<Engine> core_;
  int32_t vocab_size_ = 0, n_turns_ = 0, n_paused_ = 0;
  std::map<RequestId, std::vector<Transcript>> transcripts_;
  std::vector<Output> out_;
};

// Each choice of each request in an engine of its own: cold, whole prompt at once, no other requests or choices.
inline Digests alone(Model& model, Stream& stream, const std::shared_ptr<const Tokenizer>& tokenizer, KvTypes kv_dtype,
                     int32_t step_tokens, const std::vector<Request>& requests) {
  Digests out;
  for (const Request& r : requests) {
    for (int32_t choice = 0; choice < r.n; ++choice) {
      Request one = r;
      one.n = 1;
      one.sampling.seed += static_cast<uint64_t>(choice);
      if (choice > 0) one.prompt_logprobs = -1;
      ScheduleRun run(model, stream, tokenizer, kv_dtype, {.step_tokens = step_tokens, .prefix_cache = false}, {one});
      out.push_back(run.run().front());
    }
  }
  return out;
}

}  // namespace ibid::testing
