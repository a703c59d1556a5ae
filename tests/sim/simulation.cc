#include "sim/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "sim/cell_model.h"
#include "sim/inputs.h"
#include "sim/solo.h"
#include "sim/start.h"

namespace ibid::sim {
namespace {

struct Choice {
  Solo solo;
  std::string text;
  int32_t n_heard = 0;   // tokens of the answer
  int32_t n_scored = 0;  // records of the prompt
  bool was_in_a_step = false;
  bool finished = false;
};

struct Live {
  Request request;
  std::vector<Choice> choices;
  bool cancelled = false;
};

class Simulation final : public Witness {
 public:
  Simulation(const Script& script, const std::string& records);
  Verdict run();

 private:
  class FakeProposer final : public Proposer {
   public:
    explicit FakeProposer(Simulation& sim) : sim_(sim) {}
    void propose(const ProposalInput& input, Drafts& drafts) override {
      const auto it = sim_.sequences_.find(input.sequence);
      if (it == sim_.sequences_.end()) return sim_.accuse("drafts are asked for a text that was forgotten");
      const auto [id, choice] = it->second;
      draft(input, sim_.world_, sim_.live_.at(id).choices[static_cast<size_t>(choice)].solo.tokens, drafts);
    }
    void forget(int64_t sequence) override {
      sim_.expect(sim_.sequences_.erase(sequence) == 1, "a text is forgotten twice");
    }

   private:
    Simulation& sim_;
  };

  Truth truth_of(int32_t sequence_in_batch) override;
  void see(const ForwardBatch& batch) override;
  void accuse(std::string what) override {
    if (verdict_.failed) return;
    verdict_.failed = true;
    verdict_.step = step_;
    verdict_.what = std::move(what);
  }
  bool expect(bool condition, const char* what) {
    if (!condition) accuse(what);
    return condition;
  }

  void start();
  void restart();
  void happen(const Event& event);
  void submit(const Event& event);
  bool must_be_refused(int32_t n) const;
  bool turn();
  void hear(Output& output);
  void compare(const Live& live, const Choice& choice, const Output& output);
  void watch_the_first(bool busy);
  void count();
  void tell_tiers();
  int32_t n_unfinished() const;

  const Script& script_;
  const World& world_;
  ThreadTeam team_{1};
  Stream stream_{team_};
  ManualClock clock_;
  std::shared_ptr<testing::FakeMedium> medium_ = std::make_shared<testing::FakeMedium>();  // outlives the engine
  const std::string records_;
  std::unique_ptr<Recorder> recorder_;  // null: nothing is
  std::unique_ptr<Engine> engine_;
  int64_t step_ = 0;
  Verdict verdict_;

  std::unordered_map<uint64_t, Live> live_;
  std::set<std::pair<int64_t, uint64_t>> in_order_;                      // (rank, id) of those that have not ended
  std::map<uint64_t, std::vector<TokenId>> said_;                        // prompt and answer of the latest requests
  std::unordered_map<int64_t, std::pair<uint64_t, int32_t>> sequences_;  // by the engine's number; with a proposer
  int64_t next_sequence_ = 0;
  FreedBlocks freed_;
  std::vector<Output> outputs_;
  uint64_t first_ = 0;
  int64_t first_waits_ = 0;
  // Our own count of what the engine counts.
  int64_t n_finished_ = 0, n_cancelled_ = 0, n_failed_ = 0, n_generated_ = 0, n_prompt_tokens_ = 0,
          n_cached_tokens_ = 0, n_preempted_ = 0;
  int32_t n_prefill_ = 0, n_decode_ = 0;  // tokens of this step
};

Simulation::Simulation(const Script& script, const std::string& records)
    : script_(script), world_(script.world), records_(records) {
  clock_.advance(1);
  start();
}

void Simulation::start() {
  if (!records_.empty())
    recorder_ = Recorder::create({.path = records_ + '/' + std::to_string(verdict_.met.n_restarts)}, clock_).value();
  auto engine = sim::start(world_, verdict_.met.n_restarts, *this, stream_, clock_, medium_, recorder_.get());
  if (!engine) {
    accuse(engine.error().message);
    return;
  }
  engine_ = *std::move(engine);
  if (world_.max_drafts > 0)
    engine_->speculate(std::make_unique<FakeProposer>(*this), static_cast<int32_t>(world_.max_drafts));
  freed_ = {};
  freed_.poison(engine_->cache().pool(), engine_->kv().layers()[0]);
}

Verdict Simulation::run() {
  if (verdict_.failed) return verdict_;
  auto event = script_.events.begin();
  for (; step_ < world_.n_steps && !verdict_.failed; ++step_) {
    for (; event != script_.events.end() && event->step <= step_; ++event) happen(*event);
    turn();
  }
  // No new requests: all must end, and each step yields at least one token.
  int64_t n_left = 64;
  for (const auto& [id, live] : live_) n_left += static_cast<int64_t>(live.choices.size()) * (world_.context_len + 8);
  for (; !verdict_.failed && (turn() || !live_.empty()); ++step_) expect(--n_left > 0, "the rest does not end");
  if (!verdict_.failed) count();
  verdict_.met.n_steps = step_;
  return verdict_;
}

// The ends of requests running at this point are not received; their counters start again.
void Simulation::restart() {
  tell_tiers();
  ++verdict_.met.n_restarts;
  engine_.reset();
  live_.clear();
  in_order_.clear();
  sequences_.clear();
  next_sequence_ = 0;
  n_finished_ = n_cancelled_ = n_failed_ = n_generated_ = n_prompt_tokens_ = n_cached_tokens_ = n_preempted_ = 0;
  start();
}

// ---- what comes from outside --------------------------------------------------------------------------------------

void Simulation::happen(const Event& e) {
  const auto id = static_cast<uint64_t>(e.id);
  const auto cancel = [&](uint64_t which, Live& live) {
    live.cancelled = true;
    engine_->cancel(RequestId{which});
  };
  switch (e.kind) {
    case EventKind::kSubmit:
      return submit(e);
    case EventKind::kCancel:
      if (const auto it = live_.find(id); it != live_.end()) cancel(id, it->second);
      return;
    case EventKind::kHangUp:
      for (auto& [which, live] : live_) {
        if (live.request.tenant == "tenant " + std::to_string(e.tenant)) cancel(which, live);
      }
      return;
    case EventKind::kPreempt:
      if (const auto it = live_.find(id); it != live_.end() && e.n < it->second.request.n)
        engine_->preempt(RequestId{id}, static_cast<int32_t>(e.n));
      return;
    case EventKind::kStall:
      return clock_.advance(static_cast<double>(e.max_tokens) * 1e-3);
    case EventKind::kRestart:
      return restart();
  }
}

int32_t Simulation::n_unfinished() const {
  int32_t n = 0;
  for (const auto& [id, live] : live_) {
    for (const Choice& choice : live.choices) n += !choice.finished;
  }
  return n;
}

// The rule of the docs and messages: max_sequences run, max_waiting more wait, and one request may always wait.
bool Simulation::must_be_refused(int32_t n) const {
  const int64_t n_waiting = n_unfinished() - world_.max_sequences;
  if (n_waiting + n <= world_.max_waiting) return false;
  return !(n_waiting <= 0 && world_.max_waiting > 0);
}

void Simulation::submit(const Event& e) {
  const auto before = said_.find(static_cast<uint64_t>(e.after));
  Request r = request_of(e, world_, before == said_.end() ? std::vector<TokenId>() : before->second);
  const Status taken = engine_->submit(r);
  if (must_be_refused(r.n) != !taken.ok())
    accuse("the queue's bound is not kept: " + std::string(taken ? "" : taken.error().message));
  if (!taken) {
    ++verdict_.met.n_refused;
    return;
  }
  ++verdict_.met.n_submitted;
  Live& live = live_[raw(r.id)];
  for (int32_t i = 0; i < r.n; ++i) {
    live.choices.push_back({.solo = solo_answer(r, i, static_cast<int32_t>(world_.context_len))});
    if (world_.max_drafts > 0) sequences_[next_sequence_] = {raw(r.id), i};
    ++next_sequence_;
  }
  said_[raw(r.id)] = live.choices[0].solo.tokens;
  if (said_.size() > 16) said_.erase(said_.begin());
  in_order_.insert({world_.policy != 1 ? -r.priority : 0, raw(r.id)});
  live.request = std::move(r);
}

// ---- a step -------------------------------------------------------------------------------------------------------

Truth Simulation::truth_of(int32_t i) {
  const StepShare& share = engine_->last_step()[static_cast<size_t>(i)];
  const Choice& choice = live_.at(raw(share.request)).choices[static_cast<size_t>(share.choice)];
  return {.prefixes = choice.solo.prefixes,
          .tokens = choice.solo.tokens,
          .text_len = choice.solo.prompt_len + choice.n_heard,
          .scope = choice.solo.scope};
}

void Simulation::see(const ForwardBatch& b) {
  Met& met = verdict_.met;
  clock_.advance(1e-3 + 1e-4 * b.n_tokens);
  expect(b.n_tokens <= world_.step_tokens && b.n_rows <= world_.max_rows && b.n_sequences <= world_.max_sequences,
         "a step is larger than it may be");
  if (!expect(static_cast<size_t>(b.n_sequences) == engine_->last_step().size(), "a share is missing in the batch"))
    return;
  met.n_shares += b.n_sequences;
  met.n_tokens += b.n_tokens;
  for (int32_t s = 0; s < b.n_sequences; ++s) {
    const StepShare& share = engine_->last_step()[static_cast<size_t>(s)];
    if (raw(share.request) == first_) first_waits_ = -1;
    const int32_t first = b.positions[b.query_start[s]];
    const auto it = live_.find(raw(share.request));
    if (!expect(it != live_.end(), "one that has ended has a share")) return;
    Choice& choice = it->second.choices[static_cast<size_t>(share.choice)];
    expect(!choice.finished, "one that has ended has a share");
    const int32_t text_len = choice.solo.prompt_len + choice.n_heard;
    const int32_t n_text = std::min(share.n_tokens, text_len - first);
    (first >= choice.solo.prompt_len ? n_decode_ : n_prefill_) += n_text;
    if (!std::exchange(choice.was_in_a_step, true)) {
      if (share.choice == 0) {
        n_prompt_tokens_ += choice.solo.prompt_len;
        met.n_cached_tokens += first;
        n_cached_tokens_ += first;
      } else {
        met.n_forked += first > 0;
      }
    }
    met.digest = mix(met.digest, raw(share.request) << 8 ^ static_cast<uint64_t>(share.n_tokens));
  }
  for (int32_t i = 0; i < b.n_tokens; ++i) {
    const auto slot = static_cast<uint64_t>(b.slots[i]);
    met.digest = mix(met.digest, slot << 32 ^ static_cast<uint64_t>(b.positions[i]));
  }
}

bool Simulation::turn() {
  outputs_.clear();
  n_prefill_ = n_decode_ = 0;
  clock_.advance(1e-4);
  const bool busy = engine_->step(outputs_);
  for (Output& o : outputs_) hear(o);
  if (verdict_.failed) return false;
  engine_->self_check();
  verdict_.met.n_copies += engine_->n_last_copies();
  const EngineStats s = engine_->stats();
  if (!engine_->last_step().empty())
    expect(s.step_prefill_tokens == n_prefill_ && s.step_decode_tokens == n_decode_, "a step's tokens are miscounted");
  expect(s.n_finished == n_finished_ && s.n_cancelled == n_cancelled_ && s.n_failed == n_failed_,
         "ends are miscounted");
  expect(s.generated_tokens == n_generated_, "generated tokens are miscounted");
  expect(s.prompt_tokens == n_prompt_tokens_ && s.cached_tokens == n_cached_tokens_,
         "the prompts' tokens are miscounted");
  freed_.poison(engine_->cache().pool(), engine_->kv().layers()[0]);
  watch_the_first(busy);
  return busy;
}

// The first request in the policy's order takes blocks from any other and gives none away, so it waits at most until
// those that ran before it arrived have ended. If tenants share, the first requests of other tenants get their turns
// too, and while it waits for a disk, one that arrived after it may come in.
void Simulation::watch_the_first(bool busy) {
  const uint64_t first = in_order_.empty() ? 0 : in_order_.begin()->second;
  first_waits_ = first == first_ && first != 0 && busy ? first_waits_ + 1 : 0;
  first_ = first;
  verdict_.met.longest_wait = std::max(verdict_.met.longest_wait, first_waits_);
  const bool is_fair = kPolicies[static_cast<size_t>(world_.policy) % std::size(kPolicies)] == PolicyKind::kFair;
  const int32_t n_before = (is_fair ? 4 : 1) + (world_.disk_blocks > 0 ? 1 : 0);
  expect(first_waits_ <= n_before * (world_.context_len + 8), "the first in order starves");
}

void Simulation::hear(Output& o) {
  const auto it = live_.find(raw(o.request));
  if (!expect(it != live_.end(), "an output after the end")) return;
  Live& live = it->second;
  Choice& choice = live.choices.at(static_cast<size_t>(o.choice));
  if (!expect(!choice.finished, "an output after the end")) return;
  const Solo& solo = choice.solo;
  for (const TokenRecord& t : o.tokens) {
    if (!expect(choice.n_heard < solo.n_answered(), "an answer is longer than its request's own")) return;
    const auto i = static_cast<size_t>(choice.n_heard);
    const auto position = static_cast<size_t>(solo.prompt_len) + i;
    if (t.chosen.token != solo.tokens[position])
      return accuse("request " + std::to_string(raw(o.request)) + '.' + std::to_string(o.choice) +
                    " answers another token than alone, its " + std::to_string(i) + "th");
    expect(t.position == static_cast<int32_t>(position), "a token says another position");
    if (live.request.sampling.logprobs >= 0)
      expect(t.chosen.raw == solo.logprobs[i], "a log-probability is another than alone");
    ++choice.n_heard;
    ++n_generated_;
  }
  for (const TokenRecord& t : o.prompt) {
    expect(t.position == choice.n_scored && t.chosen.token == solo.tokens[static_cast<size_t>(choice.n_scored)],
           "a score is of another token");
    if (choice.n_scored > 0) expect(t.chosen.raw == score_of(solo, choice.n_scored), "a score is another than alone");
    ++choice.n_scored;
    ++verdict_.met.n_scored;
  }
  choice.text += o.text;
  verdict_.met.digest = mix(verdict_.met.digest, o.tokens.size() + 64 * o.text.size());
  expect(o.usage.completion_tokens == choice.n_heard && o.usage.prompt_tokens == solo.prompt_len,
         "usage does not add up");
  expect(o.usage.cached_tokens < o.usage.prompt_tokens, "all of a prompt came from the cache");
  if (!o.finished) return;
  choice.finished = true;
  ++n_finished_;
  n_cancelled_ += o.reason == FinishReason::kCancelled;
  n_failed_ += o.reason == FinishReason::kError;
  n_preempted_ += o.timing.n_preemptions;
  ++verdict_.met.n_finished;
  verdict_.met.n_cancelled += o.reason == FinishReason::kCancelled;
  verdict_.met.n_stopped += o.reason == FinishReason::kStop;
  compare(live, choice, o);
  if (!std::ranges::all_of(live.choices, &Choice::finished)) return;
  in_order_.erase({world_.policy != 1 ? -live.request.priority : 0, raw(o.request)});
  live_.erase(it);
}

void Simulation::compare(const Live& live, const Choice& choice, const Output& o) {
  const Solo& solo = choice.solo;
  if (live.cancelled && o.reason == FinishReason::kCancelled) {
    expect(choice.text == text_of(solo, choice.n_heard), "the text of a cancelled answer is not its tokens'");
    return;
  }
  expect(o.reason == solo.reason, "an answer ends for another reason than alone");
  expect(choice.n_heard == solo.n_answered(), "an answer is shorter than its request's own");
  expect(o.ending->stop_text == solo.stop_text, "another stop is told");
  if (o.reason != FinishReason::kError) expect(choice.text == solo.text, "the text is another than alone");
  const bool is_scored = live.request.prompt_logprobs >= 0 && o.choice == 0;
  expect(choice.n_scored == (is_scored ? solo.prompt_len : 0), "scores are missing");
  const Timing& t = o.timing;
  const double now = clock_.now() + 1e-9;  // what is on record knows whole nanoseconds
  expect(t.arrived > 0 && t.arrived <= t.admitted && t.admitted <= now, "admitted before it came");
  if (choice.n_heard > 0)
    expect(t.admitted <= t.first_token && t.first_token <= t.last_token && t.last_token <= now,
           "tokens came before their time");
}

// At the end, when nothing is left.
void Simulation::count() {
  const EngineStats s = engine_->stats();
  expect(live_.empty(), "a request never ends");
  expect(s.n_running == 0 && s.n_waiting == 0, "something runs or waits when all have ended");
  expect(s.blocks_in_use == 0 && s.blocks_free + s.blocks_cached == s.blocks_total, "a block does not come back");
  expect(s.n_preemptions == n_preempted_, "preemptions are miscounted");
  expect(sequences_.empty(), "a text is never forgotten");
  tell_tiers();
}

void Simulation::tell_tiers() {
  const EngineStats s = engine_->stats();
  Met& met = verdict_.met;
  met.n_preemptions += s.n_preemptions;
  met.n_accepted_drafts += engine_->n_accepted_drafts();
  met.n_down += s.n_blocks_down;
  met.n_up += s.n_blocks_up;
  met.n_fetched += s.disk.n_fetched;
  expect(s.disk.bytes <= engine_->options().disk_bytes, "the disk holds more than it may");
  met.n_broken = medium_->n_broken;
}

}  // namespace

Verdict simulate(const Script& script, const std::string& records) { return Simulation(script, records).run(); }

}  // namespace ibid::sim
