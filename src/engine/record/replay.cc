#include "engine/record/replay.h"

#include <algorithm>
#include <atomic>

#include "base/caught.h"
#include "engine/record/step_digest.h"
#include "engine/state/sequence.h"
#include "kernels/arithmetic_version.h"
#include "model/adapters.h"

namespace ibid {

using record::Event;
using record::EventKind;
using record::ShareOutcome;
using record::Step;

namespace {

// A model's seat without a model.
class NoModel final : public ForwardPass {
 public:
  static constexpr int64_t kStateBytes = 8;  // never read
  explicit NoModel(const record::Head& head)
      : facts_{.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8, .window = head.window}},
               .state_bytes = head.n_states > 0 ? kStateBytes : 0,
               .vocab_size = head.vocab_size,
               .width = 1,  // what is made of hidden states is made of something, in as many pieces
               .picture_row_len = record::kRecordedRowLen,
               .sees_whole_pictures = head.sees_whole_pictures,
               .window = head.window,
               .n_experts = head.n_experts,
               .n_experts_used = head.n_experts_used,
               .context_len = head.context_len,
               .digest = head.options.model_digest,
               .rope = head.disk.image_bytes > 0 ? head.disk.rope : "none",
               .end_of_generation = head.end_of_generation} {}
  const ModelFacts& facts() const override { return facts_; }
  void run(const ForwardBatch& batch, std::span<const PagedKv>, const TensorView&, const HiddenStates& out) override {
    for (const TensorView& states : out.out)
      std::fill_n(states.row_as<float>(0), int64_t{batch.n_tokens} * facts_.width, 0.0F);
  }

 private:
  ModelFacts facts_;
};

std::string named(const ShareOutcome& s) {
  return "request " + std::to_string(static_cast<uint64_t>(s.request)) +
         (s.choice > 0 ? " (choice " + std::to_string(s.choice) + ")" : "");
}

std::string listed(const std::vector<ShareOutcome>& shares) {
  constexpr size_t kMost = 8;
  std::string out;
  for (size_t i = 0; i < std::min(shares.size(), kMost); ++i) out += (i > 0 ? ", " : "") + named(shares[i]);
  if (shares.size() > kMost) out += " and " + std::to_string(shares.size() - kMost) + " more";
  return out.empty() ? "none" : out;
}

bool is_same(const SearchTurn& a, const SearchTurn& b) {
  const auto is_equal = [](const SearchChild& x, const SearchChild& y) {
    return x.parent == y.parent && x.token == y.token;
  };
  return std::ranges::equal(a.children, b.children, is_equal) && a.ends == b.ends;
}

std::string token_difference(const Step& was, const Step& is) {
  size_t at = 0;
  for (size_t i = 0; i < std::min(was.shares.size(), is.shares.size()); ++i) {
    const ShareOutcome &a = was.shares[i], &b = is.shares[i];
    for (int32_t k = 0; k < std::min(a.n_drawn, b.n_drawn); ++k) {
      const int32_t old_token = raw(was.tokens[at + static_cast<size_t>(k)]),
                    new_token = raw(is.tokens[at + static_cast<size_t>(k)]);
      if (old_token != new_token)
        return named(a) + " drew token " + std::to_string(old_token) + ", and now " + std::to_string(new_token);
    }
    if (a.n_drawn != b.n_drawn)
      return named(a) + " drew " + std::to_string(a.n_drawn) + " tokens, and now " + std::to_string(b.n_drawn);
    if (a.turn.has_value() != b.turn.has_value() || (a.turn && !is_same(*a.turn, *b.turn)))
      return "the search of " + named(a) + " goes on with other beams";
    if (a.reason != b.reason) {
      return named(a) + " went on or ended as \"" + finish_reason_name(a.reason) + "\", and now as \"" +
             finish_reason_name(b.reason) + "\"";
    }
    at += static_cast<size_t>(a.n_drawn);
  }
  return "what was drawn or failed is another";
}

}  // namespace

double ReplayClock::now() const {
  if (next_ < readings_.size()) {
    last_ = static_cast<double>(readings_[next_++]) * 1e-9;
  } else {
    ++n_beyond_;
  }
  return last_;
}

void ReplayClock::give(std::vector<int64_t> readings) {
  readings_ = std::move(readings);
  next_ = 0;
  n_beyond_ = 0;
}

// Gathers what the replay does and reports differences.
class Replay::Checker final : public EngineObserver {
 public:
  Checker(EngineObserver* watcher) : watcher_(watcher != nullptr ? watcher : &no_observer_) {}
  void submitted(const AdmittedRequest& request, const Status& taken) noexcept override {
    watcher_->submitted(request, taken);
  }
  void cancelled(RequestId id) noexcept override { watcher_->cancelled(id); }
  void cancelled_all() noexcept override { watcher_->cancelled_all(); }
  void preempted(RequestId id, int32_t choice) noexcept override { watcher_->preempted(id, choice); }
  void planned(const StepPlan& plan) noexcept override {
    gatherer_.planned(plan);
    watcher_->planned(plan);
  }
  void ran(const StepPlan& plan, const StepResult& result) noexcept override {
    gatherer_.ran(plan, result);
    watcher_->ran(plan, result);
  }
  void settled(const StepPlan& plan) noexcept override {
    gatherer_.settled(plan);
    watcher_->settled(plan);
  }
  void stepped(const Engine& engine) noexcept override {
    gatherer_.stepped(engine);
    watcher_->stepped(engine);
  }

  std::string difference(const Step& was) const {
    const Step& is = gatherer_.step();
    if (was.was_run != is.was_run)
      return was.was_run ? "it computed for " + listed(was.shares) + ", and now there is nothing to do"
                         : "there was nothing to do, and now it computes for " + listed(is.shares);
    if (!was.was_run) return "";
    if (was.digest.batch != is.digest.batch)
      return "the batch is another: it computed for " + listed(was.shares) + ", and now for " + listed(is.shares) +
             (was.shares.size() == is.shares.size() ? ", or other numbers of tokens" : "");
    if (was.digest.blocks != is.digest.blocks) return "the same batch lies on other blocks, or copies others";
    if (was.digest.tokens != is.digest.tokens) return token_difference(was, is);
    if (was.digest.state != is.digest.state) return "the cache or the queue is another after the step";
    return "";
  }

 private:
  EngineObserver no_observer_;
  EngineObserver* watcher_;
  record::StepGatherer gatherer_;
};

// The tokens of the step that is under way.
class Replay::Draws final : public RecordedDraws {
 public:
  explicit Draws(bool has_all) : has_all_(has_all) {}
  int64_t n_recorded() const { return n_recorded_; }
  bool has(const Sequence& sequence) const override {
    return has_all_ || pins_drafts(sequence.request->speculation.verifier);
  }
  void begin(const Step& step) {
    step_ = &step;
    next_.clear();
    size_t at = 0;
    for (const ShareOutcome& s : step.shares) {
      next_.push_back(at);
      at += static_cast<size_t>(s.n_drawn);
    }
  }
  Result<TokenRecord> next(const StepPlan& plan, size_t share) override {
    const ShareOutcome* was = outcome(plan, share);
    const size_t end = was == nullptr ? 0 : share + 1 < next_.size() ? begin_of(share + 1) : step_->tokens.size();
    if (was == nullptr || next_[share] >= end) return invalid("The record has no token here.");
    TokenRecord record;
    record.chosen.token = step_->tokens[next_[share]++];
    record.position = plan.shares[share].sequence->n_tokens();
    ++n_recorded_;
    return record;
  }
  Result<TokenRecord> first(const Sequence& sequence, FinishReason& end) override {
    for (size_t i = 0; i < step_->shares.size(); ++i) {
      const ShareOutcome& was = step_->shares[i];
      if (was.request != sequence.request->id || was.choice != sequence.choice || was.n_drawn == 0) continue;
      TokenRecord record;
      record.chosen.token = step_->tokens[begin_of(i)];
      record.position = sequence.n_tokens();
      end = was.reason == FinishReason::kError ? FinishReason::kNone : was.reason;
      ++n_recorded_;
      return record;
    }
    return invalid("The record has no token here.");
  }
  void mark(const StepPlan& plan, size_t share, ShareResult& result) override {
    const ShareOutcome* was = outcome(plan, share);
    if (was == nullptr) return;
    result.out_of_memory |= was->is_starved;
    result.is_unsound |= was->is_unsound;
    if (was->reason != FinishReason::kError) result.recorded_end = was->reason;
    if (was->turn) result.recorded_turn = &*was->turn;
    const bool is_failed_row = was->has_failed && plan.shares[share].sequence->group != nullptr;
    if (is_failed_row) result.failure = invalid("It failed when it was recorded.");
  }

 private:
  size_t begin_of(size_t share) const {
    size_t at = 0;
    for (size_t i = 0; i < share; ++i) at += static_cast<size_t>(step_->shares[i].n_drawn);
    return at;
  }
  // Null where the replay has gone another way.
  const ShareOutcome* outcome(const StepPlan& plan, size_t share) const {
    if (share >= step_->shares.size()) return nullptr;
    const ShareOutcome& was = step_->shares[share];
    const Sequence& is = *plan.shares[share].sequence;
    return was.request == is.request->id && was.choice == is.choice ? &was : nullptr;
  }
  const bool has_all_;
  std::atomic<int64_t> n_recorded_ = 0;
  const Step* step_ = nullptr;
  std::vector<size_t> next_;  // of each share, into the step's tokens
};

// Proposes what was verified then: for each sequence as many drafts, those that were right and, after them, wrong ones.
// So neither a proposer's state nor its code is needed to run the same steps again. How many ran comes from the record:
// the engine must not choose among them, since they are made up.
class Replay::RecordedDrafts final : public Proposer {
 public:
  explicit RecordedDrafts(const Engine& engine) : engine_(engine) {}
  void begin(const Step& step) { step_ = &step; }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const TokenId* drawn = step_->tokens.data();
    for (const ShareOutcome& s : step_->shares) {
      const Sequence* sequence = s.n_drafts > 0 ? engine_.find(s.request, s.choice) : nullptr;
      if (sequence != nullptr && raw(sequence->id) == input.sequence) return add(s, drawn, drafts);
      drawn += s.n_drawn;
    }
  }

 private:
  void add(const ShareOutcome& s, const TokenId* drawn, Drafts& drafts) const {
    // All but the last drawn token are drafts; where the draw after them failed, all are.
    const int32_t n_right = s.has_failed ? s.n_drawn : s.n_drawn - 1;
    for (int32_t i = 0; i < s.n_drafts; ++i) {
      const TokenId was = i < s.n_drawn ? drawn[i] : TokenId{0};
      drafts.add(i < n_right ? was : TokenId{(raw(was) + 1) % engine_.facts().vocab_size}, i - 1);
    }
    drafts.must_run = true;
  }
  const Engine& engine_;
  const Step* step_ = nullptr;
};

Replay::Replay(record::FileReader file) : file_(std::move(file)) {}
Replay::~Replay() = default;

Result<std::unique_ptr<Replay>> Replay::open(const std::string& path) {
  ASSIGN_OR_RETURN(record::FileReader file, record::FileReader::open(path));
  std::unique_ptr<Replay> replay(new Replay(std::move(file)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Event> first, replay->file_.next());
  if (!first || first->kind != EventKind::kHead)
    return invalid("The record " + path + " does not state what engine it is of; it is " +
                       (first ? "no record of ibid serve" : replay->file_.how_it_ended()) + ".",
                   path);
  replay->head_ = std::move(first->head);
  replay->clock_.give(std::move(first->readings));
  return replay;
}

Result<std::unique_ptr<Engine>> Replay::engine_without_model(Stream& stream) {
  const bool has_disk = head_.disk.image_bytes > 0 && head_.options.prefix_cache;
  // Names of blocks are computed from it.
  if (has_disk && head_.arithmetic != arithmetic_id()) {
    return unsupported("The record is of an engine with a disk tier and of arithmetic " + head_.arithmetic +
                       "; this ibid, of " + arithmetic_id() + ", would look for other blocks.");
  }
  recorded_ = std::make_unique<Draws>(true);
  has_model_ = false;
  return caught([&]() -> Result<std::unique_ptr<Engine>> {
    auto pass = std::make_unique<NoModel>(head_);
    EngineOptions options = head_.options;
    options.disk_folder.clear();
    const int64_t block_bytes = KvStore::block_bytes(pass->facts(), options.kv_dtype, options.block_len);
    options.kv_bytes = head_.n_blocks * block_bytes;
    options.host_bytes = head_.n_host_blocks * block_bytes;
    options.states_bytes = head_.n_states * NoModel::kStateBytes;
    options.host_states_bytes = head_.n_host_states * NoModel::kStateBytes;
    std::unique_ptr<record::ReplayStore> store;
    if (has_disk) {
      const BlockFormat format = {
          .block_len = options.block_len, .payload_bytes = block_bytes, .state_bytes = pass->facts().state_bytes};
      store = std::make_unique<record::ReplayStore>(format, std::move(head_.disk));
      disk_ = store.get();
    }
    ASSIGN_OR_RETURN(auto engine,
                     Engine::create(std::move(pass), nullptr, stream, options, clock_, PrefixHash(), std::move(store)));
    return engine;
  });
}

// What is another, where something is.
std::string Replay::apply(Engine& engine, const Event& event, std::vector<Output>& outputs) {
  switch (event.kind) {
    case EventKind::kSubmit: {
      const std::string who = "request " + std::to_string(static_cast<uint64_t>(event.request->id));
      Request request = *event.request;
      if (request.adapter && has_model_) {
        const std::string digest = request.adapter->adapter->digest();
        request.adapter = find_adapter_ ? find_adapter_(digest) : nullptr;
        if (!request.adapter) return who + " used an adapter that is not loaded; its digest is " + digest;
      }
      if (request.pictures != nullptr && has_model_) return who + " shows pictures, which a record does not have";
      Result<AdmittedRequest> admitted = engine.admit(std::move(request));
      if (!admitted) return who + " was let in, and now it is not: " + admitted.error().message;
      if (!has_model_) admitted->set_over(event.over);
      const Status taken = engine.submit(*std::move(admitted));
      if (taken.ok() == event.was_taken) return "";
      return event.was_taken ? who + " was taken, and now it is not: " + taken.error().message
                             : who + " was refused, and now it is taken";
    }
    case EventKind::kCancel:
      engine.cancel(event.id);
      return "";
    case EventKind::kCancelAll:
      engine.cancel_all();
      return "";
    case EventKind::kPreempt:
      return engine.preempt(event.id, event.choice) ? "" : "a sequence that lost its blocks does not run now";
    case EventKind::kStep:
      recorded_->begin(event.step);
      recorded_drafts_->begin(event.step);
      outputs.clear();
      engine.step(outputs);
      return "";
    default:
      return "";
  }
}

Result<ReplayResult> Replay::run(Engine& engine, const std::shared_ptr<const Tokenizer>& tokenizer,
                                 EngineObserver* watcher) {
  ReplayResult out;
  Checker checker(watcher);
  engine.observe(checker);
  auto recorded_drafts = std::make_unique<RecordedDrafts>(engine);
  recorded_drafts_ = recorded_drafts.get();
  engine.speculate(std::move(recorded_drafts), kMaxDrafts);
  if (!recorded_) recorded_ = std::make_unique<Draws>(false);
  engine.draw_from(*recorded_);
  std::vector<Output> outputs;
  double first = -1;
  int64_t n_events = 0;
  while (out.difference.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Event> event, file_.next(tokenizer));
    if (!event) break;
    if (event->kind == EventKind::kHead) return invalid("The record has a second head; it is no record of one engine.");
    ++n_events;
    clock_.give(std::move(event->readings));
    if (disk_ == nullptr && !event->disk.empty())
      return invalid("The record has answers of a disk that its head does not have.");
    if (disk_ != nullptr) disk_->give(std::move(event->disk));
    if (event->kind == EventKind::kEnd) break;
    std::vector<TokenId> tokens = event->step.tokens;
    for (const ShareOutcome& share : event->step.shares) {
      if (!share.turn) continue;
      for (const SearchChild& child : share.turn->children) tokens.push_back(child.token);
    }
    for (const TokenId token : tokens) {
      if (raw(token) >= 0 && raw(token) < engine.facts().vocab_size) continue;
      return invalid("The record has token " + std::to_string(raw(token)) + ", and the model has " +
                     std::to_string(engine.facts().vocab_size) + "; it is no record of this model.");
    }
    const bool is_step = event->kind == EventKind::kStep;
    std::string what = apply(engine, *event, outputs);
    if (what.empty() && is_step) what = checker.difference(event->step);
    if (what.empty() && disk_ != nullptr && disk_->is_off()) what = "the disk was asked for something else";
    if (what.empty() && clock_.n_left() + static_cast<size_t>(clock_.n_beyond()) > 0)
      what = "the clock was read " + std::to_string(clock_.n_left()) + " times more, or " +
             std::to_string(clock_.n_beyond()) + " times less, than now";
    if (first < 0) first = clock_.last();
    out.seconds = clock_.last() - first;
    out.n_turns += is_step;
    out.n_steps += is_step && event->step.was_run;
    out.n_requests += event->kind == EventKind::kSubmit && event->was_taken;
    out.n_tokens += static_cast<int64_t>(event->step.tokens.size());
    if (!what.empty())
      out.difference = "event " + std::to_string(n_events) + " (" + std::string(kind_name(event->kind)) +
                       (is_step ? " " + std::to_string(out.n_steps) : "") + "): " + what;
  }
  out.end = file_.how_it_ended();
  out.n_recorded = recorded_->n_recorded();
  return out;
}

}  // namespace ibid
