#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine_size.h"
#include "engine/measure_steps.h"
#include "engine/memory_plan.h"
#include "model/model.h"
#include "sample/grammar/matcher.h"
#include "spec/free_proposers.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/disk_thread.h"
#include "worker/model_pass.h"

namespace ibid {
namespace {

EngineObserver nobody;

BatchLimits batch_limits(const ModelFacts& facts, const EngineOptions& options) {
  return {.n_tokens = options.step_tokens,
          .n_sequences = options.max_sequences,
          .n_rows = options.max_rows,
          .context_len = facts.context_len,
          .block_len = options.block_len,
          .keeps_blocks = !facts.encoder};
}
// How long an engine without other work waits for a disk before it looks for requests again, in seconds.
constexpr double kFetchTurn = 0.002;
// Positions for which an idle engine brings memory, a block in each of its turns: a request that comes meanwhile waits
// for no more. Sixteen conversations of 512 tokens.
constexpr int32_t kBroughtPositions = 8192;

// A chain's drafts up to the first that the grammar of its request refuses: no row is spent on what cannot be drawn.
// What was drawn for rejection stays: that it is refused is a part of the law.
void cut_by_grammar(Sequence& s) {
  grammar::Matcher* matcher = s.request->grammar.get();
  const bool is_drawn = std::ranges::any_of(s.drafts.q, [](const auto& q) { return !q.empty(); });
  if (matcher == nullptr || is_drawn || s.drafts.must_run || !s.drafts.is_chain(s.drafts.size())) return;
  grammar::StateId state = s.sampler_state.grammar;
  for (int32_t i = 0; i < s.drafts.size(); ++i) {
    state = matcher->after(s.choice, state, s.drafts.tokens[static_cast<size_t>(i)]);
    if (state == grammar::kDead) return s.drafts.cut(i);
  }
}

// Rejection verifies all, whatever they cost: what is verified may not depend on the clock.
void pin(Drafts& drafts) { std::ranges::fill(drafts.likely, 1.0F); }

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(Model& model, std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                               const EngineOptions& options, const Clock& clock,
                                               std::unique_ptr<DurableStore> store) {
  if (options.block_len != 8 && options.block_len != 16 && options.block_len != 32) {
    return invalid("A block of " + std::to_string(options.block_len) +
                       " tokens was asked for; attention reads blocks of 8, 16 or 32.",
                   "block_len");
  }
  const ModelOptions& limits = model.options();
  const int32_t n_rows = std::max(rows_of(options), options.max_sequences);
  if (options.step_tokens > limits.step_tokens || options.max_sequences > limits.max_sequences ||
      n_rows > limits.max_rows) {
    return invalid("The model was loaded for steps of " + std::to_string(limits.step_tokens) + " tokens, " +
                   std::to_string(limits.max_sequences) + " sequences and " + std::to_string(limits.max_rows) +
                   " rows; the engine asks for more.");
  }
  std::vector<TokenId> end_of_generation = options.end_of_generation;
  if (end_of_generation.empty() && tokenizer) end_of_generation = tokenizer->vocabulary().end_of_generation;
  auto pass = std::make_unique<ModelPass>(model, stream, end_of_generation, options.model_digest);
  return create(std::move(pass), std::move(tokenizer), stream, options, clock, PrefixHash(), std::move(store));
}

Result<std::unique_ptr<DurableStore>> Engine::open_store(const Model& model, const EngineOptions& options) {
  return open_disk(
      options.disk_folder,
      {.block_len = options.block_len, .payload_bytes = kv_bytes_of_block(model, options.kv_dtype, options.block_len)});
}

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<ForwardPass> model,
                                               std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                               const EngineOptions& given, const Clock& clock, PrefixHash hash,
                                               std::unique_ptr<DurableStore> store) {
  ASSIGN_OR_RETURN(const EngineOptions options, size_engine(model->facts(), given));
  const int64_t block_bytes = KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
  const auto n_blocks_of = [&](int64_t bytes) {
    return model->facts().encoder ? 0 : static_cast<int32_t>(bytes / block_bytes);
  };
  const int32_t n_blocks = n_blocks_of(options.kv_bytes), n_host_blocks = n_blocks_of(options.host_bytes);
  // What contrastive search compares and vectors of sequences are made of stands after all layers.
  const int32_t n_layers = model->facts().n_layers();
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::create(std::move(model), stream,
                                                                  {.kv_dtype = options.kv_dtype,
                                                                   .block_len = options.block_len,
                                                                   .n_blocks = n_blocks,
                                                                   .n_host_blocks = n_host_blocks,
                                                                   .step_tokens = options.step_tokens,
                                                                   .max_rows = options.max_rows,
                                                                   .hidden_layers = {n_layers}}));
  std::unique_ptr<Engine> engine(
      new Engine(std::move(worker), std::move(tokenizer), options, n_blocks, n_host_blocks, clock, hash));
  TRY(engine->use_disk(std::move(store)));
  return engine;
}

Engine::Engine(std::unique_ptr<Worker> worker, std::shared_ptr<const Tokenizer> tokenizer, const EngineOptions& options,
               int32_t n_blocks, int32_t n_host_blocks, const Clock& clock, PrefixHash hash)
    : worker_(std::move(worker)),
      options_(options),
      has_text_(tokenizer != nullptr),
      cache_({.n_blocks = n_blocks,
              .n_host_blocks = n_host_blocks,
              .block_len = options.block_len,
              .prefix_cache = options.prefix_cache,
              .hash = hash}),
      scheduler_(cache_, {.budget = {.n_tokens = options.step_tokens, .n_rows = options.max_rows},
                          .max_itl = options.max_itl,
                          .max_sequences = options.max_sequences,
                          .context_len = worker_->facts().context_len,
                          .policy = options.policy,
                          .reads_whole = worker_->facts().encoder.has_value()}),
      runner_(*worker_, worker_->stream().team(), batch_limits(worker_->facts(), options), clock),
      settler_(cache_, scheduler_, clock, worker_->facts().context_len, worker_->facts().window),
      live_(worker_->facts(), options_, std::move(tokenizer), cache_.tree(), settler_, clock),
      notes_(clock, options.max_sequences),
      observer_(&nobody),
      n_to_bring_(std::min(n_blocks, kBroughtPositions / options.block_len)) {
  failures_.reserve(static_cast<size_t>(options.max_sequences));
  proposals_.reserve(static_cast<size_t>(options.max_sequences));
  proposed_to_.reserve(static_cast<size_t>(options.max_sequences));
  tap_rows_.reserve(static_cast<size_t>(options.step_tokens));
  const ModelFacts& facts = worker_->facts();
  for (const MeasuredStep& step : options.measured_steps) scheduler_.took(step);
  if (options.max_drafts > 0) speculate(free_proposers(facts, options.max_sequences), options.max_drafts);
}

Engine::~Engine() = default;

Status Engine::use_disk(std::unique_ptr<DurableStore> store) {
  if (store == nullptr && !options_.disk_folder.empty()) {
    if (worker_->facts().digest.empty()) {
      return invalid("Blocks that outlive the process need the digest of the model that they belong to.",
                     "model_digest");
    }
    const BlockFormat format = {.block_len = options_.block_len, .payload_bytes = worker_->kv().block_bytes()};
    ASSIGN_OR_RETURN(store, open_disk(options_.disk_folder, format));
  }
  if (store == nullptr || !options_.prefix_cache) return {};
  disk_ = std::make_unique<DiskTier>(cache_, *worker_, scheduler_.cost(), std::move(store), options_.disk_bytes);
  scheduler_.use_disk(*disk_);
  settler_.use_disk(*disk_);
  return {};
}

Result<AdmittedRequest> Engine::admit(Request request) const {
  const bool is_told_of_prompts = proposer_ != nullptr && proposer_->taps() != nullptr;
  if (pins_drafts(request.speculation.verifier) && is_told_of_prompts) request.speculation.reads_prompt = true;
  return ibid::admit(std::move(request), worker_->facts(), has_text_);
}

Status Engine::submit(Request request) {
  ASSIGN_OR_RETURN(AdmittedRequest admitted, admit(std::move(request)));
  return submit(std::move(admitted));
}

Status Engine::submit(AdmittedRequest request) {
  Status taken = take(request);
  observer_->submitted(request, taken);
  return taken;
}

void Engine::cancel(RequestId id) {
  live_.cancel(id);
  observer_->cancelled(id);
}

void Engine::cancel_all() {
  live_.cancel_all();
  observer_->cancelled_all();
}

Status Engine::take(const AdmittedRequest& request) try {
  if (live_.contains(request->id)) return invalid("A request with this id is still running.", "id");
  // Those that came since the last step will run in the next one as far as there are places.
  const int32_t n_unfinished = live_.n_unfinished();
  const auto n_beyond = [&](int32_t n) { return std::max(0, n_unfinished + n - options_.max_sequences); };
  TRY(may_wait(n_beyond(0), n_beyond(request->n_sequences()), options_.max_waiting));
  scheduler_.make_room(*request, static_cast<size_t>(n_unfinished + request->n_sequences()));
  Sequence& first = live_.add(request);
  scheduler_.enqueue(first);
  live_.watch(first);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

bool Engine::step(std::vector<Output>& out) {
  if (!live_.make_room(out)) return false;  // nothing may be lost between an end and the telling of it
  const size_t n_before = out.size();
  live_.end_cancelled(out);  // between steps nothing runs: ending is easy
  live_.end_overdue(notes_.begin(), out);
  settle_disk();
  weigh_host_tier();
  scheduler_.choose_decodes();
  propose();
  const StepPlan& plan = scheduler_.plan(notes_.proposed());  // policy: who runs, how many tokens, on which blocks
  notes_.planned(plan);
  observer_->planned(plan);
  failures_.take(plan.starved);
  if (!plan.empty()) {
    StepResult& result = runner_.run(plan);  // mechanism: batch, forward, draw, verify
    notes_.ran(result);
    observer_->ran(plan, result);
    const size_t n_told = out.size();
    // Facts: append, publish, share, stop, free, tell.
    settler_.settle(plan, notes_.begun_at(), result, failures_, out);
    show_taps(plan, result);
    show_hidden(plan, result);
    show_refused(plan, result);
    observer_->settled(plan);
    live_.publish_ended(plan, n_told, out);
    notes_.settled();
    scheduler_.took(notes_.seconds());
  }
  live_.end_failed(failures_, out);
  observer_->stepped(*this);
#ifndef NDEBUG
  try {
    self_check();
  } catch (const std::bad_alloc&) {  // nothing to count with
  }
#endif
  if (plan.empty() && live_.n_unfinished() == 0) bring_memory();
  const bool is_fetching = disk_ && disk_->is_fetching();
  if (plan.empty() && is_fetching) disk_->wait(kFetchTurn);
  return !plan.empty() || is_fetching || out.size() > n_before;
}

// Of what the largest step needs, and of a block that requests will need, before they come: a virtual machine's first
// write of a page was measured to take up to 27 us, and all of a prompt's a third of what reading it took.
void Engine::bring_memory() {
  if (has_memory_to_take_) has_memory_to_take_ = worker_->take_next() || (proposer_ && proposer_->take_next());
  if (n_brought_ == n_to_bring_) return;
  const BlockId block{n_brought_++};
  if (scheduler_.new_blocks().write(block)) worker_->kv().bring(block);
}

// All that comes from a disk comes in here.
void Engine::settle_disk() {
  if (!disk_) return;
  disk_->settle(notes_.begun_at(), static_cast<int32_t>(scheduler_.running().size()));
  for (Sequence* s : disk_->ended()) {
    s->ledger().pass(notes_.begun_at(), Phase::kSwapped);
    scheduler_.fetched(*s);
  }
}

// A block that goes down and comes up again is copied twice. Computing it is priced as the second of two, without what
// a step costs by itself.
void Engine::weigh_host_tier() {
  const StepCost& cost = scheduler_.cost();
  if (options_.host_copy_seconds <= 0 || !cost.is_known()) return;
  StepLoad one, two;
  one.add_prompt(0, options_.block_len, 0);
  two.add_prompt(0, 2 * options_.block_len, 0);
  const bool is_worth = 2 * options_.host_copy_seconds < cost.seconds(two) - cost.seconds(one);
  cache_.use_lower_tiers(is_worth);
}

void Engine::speculate(std::unique_ptr<Proposer> proposer, int32_t max_drafts) {
  proposer_ = std::move(proposer);
  max_drafts_ = std::min(max_drafts, kMaxDrafts);
  live_.set_proposer(proposer_.get());
  has_memory_to_take_ = true;
  runner_.keep_hidden(proposer_ && proposer_->reads_hidden());
  runner_.keep_refused(proposer_ && proposer_->reads_refused());
  runner_.tap(proposer_ ? proposer_->taps() : nullptr);
}

// For those that wait for their next token, as far as the answer may go on after it.
void Engine::propose() {
  if (!proposer_) return;
  proposals_.clear(), proposed_to_.clear();
  for (Sequence* s : scheduler_.running()) {
    s->drafts.clear();
    if (s->group != nullptr) continue;
    const Request& r = *s->request;
    const int32_t context_len = worker_->facts().context_len;
    int32_t n_left = context_len - s->n_tokens();
    if (r.max_tokens >= 0) n_left = std::min(n_left, r.max_tokens - s->n_answered());
    int32_t n = std::min(max_drafts_, n_left - 1);
    if (r.speculation.max_drafts >= 0) n = std::min(n, r.speculation.max_drafts);
    if (n <= 0 || s->n_tokens() - s->n_computed != 1 || s->sits_out) continue;
    const auto tokens = std::span<const TokenId>(s->tokens);
    const auto n_prompt = static_cast<size_t>(s->prompt_len);
    proposed_to_.push_back(s);
    proposals_.push_back({.input = {.sequence = raw(s->id),
                                    .prompt = tokens.first(n_prompt),
                                    .answer = tokens.subspan(n_prompt),
                                    .max_drafts = n,
                                    .prediction = r.speculation.prediction,
                                    .temperature = r.sampling.temperature,
                                    .sampler = s->sampler.get(),
                                    .state = s->sampler_state,
                                    .grammar = r.grammar.get(),
                                    .choice = s->choice,
                                    .verifier = r.speculation.verifier,
                                    .n_left = n_left,
                                    .scope = cache_.tree().spelled(s->scope),
                                    .free_alone = r.speculation.free_alone,
                                    .has_credit = s->draft_account.has_credit(),
                                    .blocks = cache_.keeps_blocks() ? &s->blocks : nullptr},
                          .drafts = &s->drafts});
  }
  if (proposals_.empty()) return;
  const StepPrices prices = scheduler_.prices();
  try {
    proposer_->begin_step(prices);
    proposer_->propose_all(proposals_);
    for (size_t i = 0; i < proposals_.size(); ++i) {
      const ProposalInput& input = proposals_[i].input;
      Drafts& drafts = *proposals_[i].drafts;
      drafts.cut(input.max_drafts);
      if (pins_drafts(input.verifier)) pin(drafts);
      DraftAccount& account = proposed_to_[i]->draft_account;
      account.begin_step(prices);
      const bool are_to_pay = !drafts.empty() && drafts.likely.front() < 1;  // who is certain has decided
      if (are_to_pay) drafts.cut(account.affordable(drafts.size()));
    }
    for (Sequence* s : scheduler_.running()) cut_by_grammar(*s);
  } catch (const std::bad_alloc&) {  // then there are none
    for (const Proposal& p : proposals_) p.drafts->clear();
  }
  charge_for_drafting();
}

// What drafting took is shared by those who have drafts of it; where nobody has, by all.
void Engine::charge_for_drafting() {
  const auto n_drafted = std::ranges::count_if(proposals_, [](const Proposal& p) { return !p.drafts->empty(); });
  const auto n = static_cast<double>(n_drafted > 0 ? n_drafted : std::ssize(proposals_));
  for (Sequence* s : proposed_to_) {
    if (n_drafted == 0 || !s->drafts.empty()) s->draft_account.drafted(proposer_->spent() / n);
  }
}

void Engine::measure_steps(const Clock& clock) {
  if (worker_->facts().encoder) return;  // no stream waits beside its sequences
  CHECK(live_.n_unfinished() == 0 && cache_.pool().n_free() == cache_.pool().n_total());
  options_.measured_steps =
      ibid::measure_steps(*worker_, batch_limits(worker_->facts(), options_), cache_.pool().n_total(), clock);
  for (const MeasuredStep& step : options_.measured_steps) scheduler_.took(step);
}

bool Engine::preempt(RequestId id, int32_t choice) {
  Sequence* s = live_.find(id, choice);
  if (s == nullptr || s->state != SequenceState::kRunning) return false;
  scheduler_.preempt(*s);
  observer_->preempted(id, choice);
  return true;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  notes_.tell(stats);
  const SettleCounts& counts = settler_.counts();
  stats.n_running = static_cast<int32_t>(scheduler_.running().size());
  stats.n_waiting = live_.n_unfinished() - stats.n_running;
  stats.blocks_total = cache_.pool().n_total();
  stats.blocks_free = cache_.pool().n_free();
  stats.blocks_cached = cache_.pool().n_cached();
  stats.blocks_in_use = cache_.pool().n_in_use();
  stats.blocks_shared = cache_.pool().n_shared();
  for (const Sequence* s : scheduler_.running())
    if (cache_.keeps_blocks())
      stats.slots_unfilled += static_cast<int64_t>(s->blocks.size()) * cache_.block_len() - s->n_tokens();
  stats.host_blocks_total = cache_.pool(Tier::kHost).n_total();
  stats.host_blocks_cached = cache_.pool(Tier::kHost).n_cached();
  stats.uses_host = stats.host_blocks_total > 0 && cache_.uses_lower_tiers();
  stats.n_blocks_down = cache_.n_moved_down();
  stats.n_blocks_up = cache_.n_moved_up();
  if (disk_) disk_->tell(stats.disk);
  stats.prompt_tokens = counts.prompt_tokens;
  stats.cached_tokens = counts.cached_tokens;
  stats.generated_tokens = counts.generated_tokens;
  stats.n_drafts = counts.n_drafts;
  stats.drafted_tokens = counts.drafted_tokens;
  stats.accepted_tokens = counts.accepted_tokens;
  stats.accepted_at = counts.accepted_at;
  stats.step_drafted = counts.step_drafted;
  stats.step_accepted = counts.step_accepted;
  stats.n_preemptions = scheduler_.n_preemptions();
  stats.n_finished = counts.n_finished;
  stats.n_cancelled = counts.n_cancelled;
  stats.n_failed = counts.n_failed;
  stats.n_overdue = live_.n_overdue();
  stats.step_error_p50 = scheduler_.cost().error_p50();
  stats.step_error_p95 = scheduler_.cost().error_p95();
  stats.step_prefill_tokens = counts.step_prefill_tokens;
  stats.step_decode_tokens = counts.step_decode_tokens;
  return stats;
}

}  // namespace ibid
