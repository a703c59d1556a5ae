#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine_size.h"
#include "engine/memory_plan.h"
#include "engine/step/measure_steps.h"
#include "model/model.h"
#include "model/vision/prompt_pictures.h"
#include "spec/lookup/free_proposers.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/disk_thread.h"
#include "worker/model_pass.h"

namespace ibid {
namespace {

EngineObserver no_observer;

BatchLimits batch_limits(const ModelFacts& facts, const EngineOptions& options) {
  return {.n_tokens = options.step_tokens,
          .n_sequences = options.max_sequences,
          .n_rows = options.max_rows,
          .context_len = facts.context_len,
          .block_len = options.block_len,
          .keeps_states = facts.state_bytes > 0,
          .turns_by_axes = facts.turns_by_axes,
          .sees_whole_pictures = facts.sees_whole_pictures,
          .keeps_blocks = !facts.encoder};
}
// How long an engine without other work waits for a disk before it looks for requests again, in seconds.
constexpr double kFetchTurn = 0.002;
// Positions for which an idle engine brings memory, a block in each of its turns: a request that comes meanwhile waits
// for no more. Sixteen conversations of 512 tokens.
constexpr int32_t kBroughtPositions = 8192;

CostTerms cost_terms(const ModelFacts& facts, const EngineOptions& options) {
  CostTerms terms = {
      .n_experts = facts.n_experts, .n_experts_used = facts.n_experts_used, .has_state = facts.state_bytes > 0};
  // By the elements alone: a replay without the model has heads of other lengths, and the same prices.
  const auto bits = [](KvTypes types) {
    return static_cast<double>(kv_type_bits(types.key) + kv_type_bits(types.value));
  };
  if (KvStore::block_bytes(facts, KvTypes(), options.block_len) > 0)
    terms.kv_bytes = bits(options.kv_dtype) / bits(KvTypes());
  return terms;
}

// Where blocks outlive the process; null: nowhere. `given` is one that is open already.
Result<std::unique_ptr<DurableStore>> store_of(std::unique_ptr<DurableStore> given, const EngineOptions& options,
                                               const Worker& worker) {
  if (given == nullptr && !options.disk_folder.empty()) {
    if (worker.facts().digest.empty()) {
      return invalid("Blocks that outlive the process need the digest of the model that they belong to.",
                     "model_digest");
    }
    const BlockFormat format = {.block_len = options.block_len,
                                .payload_bytes = worker.kv().block_bytes(),
                                .state_bytes = worker.facts().state_bytes};
    ASSIGN_OR_RETURN(given, open_disk(options.disk_folder, format));
  }
  if (!options.prefix_cache) given.reset();
  return given;
}

}  // namespace

struct Engine::Parts {
  std::unique_ptr<Worker> worker;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<DurableStore> store;
  const EngineOptions& options;
  int32_t n_blocks = 0, n_host_blocks = 0;
  const Clock& clock;
  PrefixHash hash;
};

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
  return open_disk(options.disk_folder, {.block_len = options.block_len,
                                         .payload_bytes = kv_bytes_of_block(model, options.kv_dtype, options.block_len),
                                         .state_bytes = model.state_layout().slot_bytes()});
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
  const auto n_states_of = [&](int64_t bytes) {
    const int64_t state_bytes = model->facts().state_bytes;
    return state_bytes == 0 ? 0 : static_cast<int32_t>(bytes / state_bytes);
  };
  const int32_t n_states = n_states_of(options.states_bytes), n_host_states = n_states_of(options.host_states_bytes);
  // What contrastive search compares and vectors of sequences are made of stands after all layers.
  const int32_t n_layers = model->facts().n_layers();
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::create(std::move(model), stream,
                                                                  {.kv_dtype = options.kv_dtype,
                                                                   .block_len = options.block_len,
                                                                   .n_blocks = n_blocks,
                                                                   .n_host_blocks = n_host_blocks,
                                                                   .n_states = n_states,
                                                                   .n_host_states = n_host_states,
                                                                   .step_tokens = options.step_tokens,
                                                                   .max_rows = options.max_rows,
                                                                   .hidden_layers = {n_layers}}));
  ASSIGN_OR_RETURN(store, store_of(std::move(store), options, *worker));
  return std::unique_ptr<Engine>(new Engine({.worker = std::move(worker),
                                             .tokenizer = std::move(tokenizer),
                                             .store = std::move(store),
                                             .options = options,
                                             .n_blocks = n_blocks,
                                             .n_host_blocks = n_host_blocks,
                                             .clock = clock,
                                             .hash = hash}));
}

Engine::Engine(Parts parts)
    : worker_(std::move(parts.worker)),
      options_(parts.options),
      has_text_(parts.tokenizer != nullptr),
      cache_({.n_blocks = parts.n_blocks,
              .n_host_blocks = parts.n_host_blocks,
              .n_states = worker_->states().slots().n_slots,
              .n_host_states = worker_->states().n_host_slots(),
              .state_step = options_.state_step,
              .block_len = options_.block_len,
              .prefix_cache = options_.prefix_cache,
              .hash = parts.hash}),
      cost_(cost_terms(worker_->facts(), options_)),
      disk_(parts.store
                ? std::make_unique<DiskTier>(cache_, *worker_, cost_, std::move(parts.store), options_.disk_bytes)
                : nullptr),
      scheduler_(cache_, cost_, disk_.get(),
                 {.budget = {.n_tokens = options_.step_tokens, .n_rows = options_.max_rows},
                  .max_itl = options_.max_itl,
                  .max_sequences = options_.max_sequences,
                  .context_len = worker_->facts().context_len,
                  .policy = options_.policy,
                  .sees_whole_pictures = worker_->facts().sees_whole_pictures,
                  .reads_whole = worker_->facts().encoder.has_value()}),
      speculation_(worker_->facts(), options_, cache_, scheduler_),
      runner_(*worker_, worker_->stream().host(), batch_limits(worker_->facts(), options_), parts.clock),
      settler_(cache_, scheduler_, disk_.get(), parts.clock, worker_->facts()),
      live_(worker_->facts(), options_, std::move(parts.tokenizer), cache_.tree(), settler_, speculation_, parts.clock),
      notes_(parts.clock, options_.max_sequences),
      observer_(&no_observer),
      n_to_bring_(std::min(parts.n_blocks, kBroughtPositions / options_.block_len)) {
  failures_.reserve(static_cast<size_t>(options_.max_sequences));
  for (const MeasuredStep& step : options_.measured_steps) scheduler_.took(step);
  if (options_.max_drafts > 0) speculate(free_proposers(worker_->facts(), options_.max_sequences), options_.max_drafts);
}

Engine::~Engine() = default;

Result<AdmittedRequest> Engine::admit(Request request) const {
  if (pins_drafts(request.speculation.verifier) && speculation_.reads_prompts())
    request.speculation.reads_prompt = true;
  if (request.pictures != nullptr && worker_->facts().sees_whole_pictures) {
    const int32_t most = options_.step_tokens - options_.max_sequences;  // beside decodes
    for (const PlacedPicture& p : request.pictures->all()) {
      if (p.rows->n_cells() <= most) continue;
      return invalid("A picture has " + std::to_string(p.rows->n_cells()) +
                         " tokens, which one step must compute, and " + std::to_string(most) +
                         " fit; start with a larger --max-tokens-per-step.",
                     "image_url");
    }
  }
  ASSIGN_OR_RETURN(AdmittedRequest admitted, ibid::admit(std::move(request), worker_->facts(), has_text_));
  if (admitted->kv_eviction) TRY(fits_eviction(*admitted));
  return admitted;
}

// Whether one step can compute what is scored, and the cache hold what there was beside what remains.
Status Engine::fits_eviction(const Request& request) const {
  const KvEviction& e = request.kv_eviction;
  const auto n_prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t most = options_.step_tokens - options_.max_sequences + 1;  // beside decodes
  const int64_t context_len = worker_->facts().context_len;
  const int64_t most_len =
      request.max_tokens < 0 ? context_len : std::min(context_len, int64_t{n_prompt} + request.max_tokens);
  if (e.next_point(n_prompt, 0) > most_len) return {};
  if (e.n_together() > most) {
    return invalid("The window of kv_eviction has " + std::to_string(e.window) +
                       " tokens, which one step must compute, and " + std::to_string(most) +
                       " fit; start with a larger --max-tokens-per-step.",
                   "kv_eviction");
  }
  const int64_t len = options_.block_len;
  const int64_t n_before = e.next_point(n_prompt, n_prompt) <= most_len ? e.most_rows(n_prompt) - e.keep : n_prompt;
  const int64_t n_blocks = (n_before + len - 1) / len + (e.keep + len - 1) / len;
  if (n_blocks <= cache_.pool().n_total()) return {};
  return invalid("While keys and values are evicted there are " + std::to_string(n_blocks) +
                     " blocks, those of the prompt and those that are kept, and the cache has " +
                     std::to_string(cache_.pool().n_total()) + "; start with a larger KV cache, or keep fewer.",
                 "kv_eviction");
}

Status Engine::submit(Request request) {
  ASSIGN_OR_RETURN(AdmittedRequest admitted, admit(std::move(request)));
  return submit(std::move(admitted));
}

Status Engine::submit(AdmittedRequest request) {
  const Status taken = take(request);
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

Status Engine::take(AdmittedRequest& request) try {
  if (live_.contains(request->id)) return invalid("A request with this id is still running.", "id");
  // Those that came since the last step will run in the next one as far as there are places.
  const int32_t n_unfinished = live_.n_unfinished();
  const auto n_beyond = [&](int32_t n) { return std::max(0, n_unfinished + n - options_.max_sequences); };
  TRY(may_wait(n_beyond(0), n_beyond(request->n_sequences()), options_.max_waiting));
  scheduler_.make_room(*request, static_cast<size_t>(n_unfinished + request->n_sequences()));
  Sequence& first = live_.add(request);
  request.set_over(first.answer->reason());
  scheduler_.enqueue(first);
  typical_.saw_prompt(n_expected(first));
  live_.watch(first);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

bool Engine::step(std::vector<Output>& out) {
  if (!live_.make_room(out)) return false;  // without room for outputs nothing begins
  const size_t n_before = out.size();
  begin(out);                                       // end what was cancelled, take in blocks that a disk has read
  scheduler_.choose_decodes();                      // whose next token the step computes
  speculation_.propose();                           // draft tokens for these
  const StepPlan& plan = this->plan();              // who runs, how many tokens, on which blocks
  if (!plan.empty()) settle(plan, run(plan), out);  // batch, forward pass, draw, verify; then append, publish, stop
  live_.end_failed(failures_, out);
  return finish(plan) || out.size() > n_before;
}

// Between steps nothing runs, so that ending a request is easy.
void Engine::begin(std::vector<Output>& out) {
  live_.end_cancelled(out);
  live_.end_over(out);
  live_.end_overdue(notes_.begin(), out);
  settle_disk();
  weigh_host_tier();
}

const StepPlan& Engine::plan() {
  const StepPlan& plan = scheduler_.plan(notes_.proposed());
  notes_.planned(plan);
  observer_->planned(plan);
  failures_.take(plan.starved);
  return plan;
}

StepResult& Engine::run(const StepPlan& plan) {
  StepResult& result = runner_.finish(plan, runner_.launch(plan, speculation_.wants()));
  notes_.ran(result);
  observer_->ran(plan, result);
  return result;
}

void Engine::settle(const StepPlan& plan, StepResult& result, std::vector<Output>& out) {
  const size_t n_before = out.size();
  settler_.settle(plan, notes_.begun_at(), result, failures_, out);
  speculation_.settled(plan, result);
  observer_->settled(plan);
  live_.publish_ended(plan, n_before, out);
  for (size_t i = n_before; i < out.size(); ++i) {
    if (out[i].finished) typical_.saw_answer(out[i].usage.completion_tokens);
  }
  notes_.settled();
  scheduler_.took(notes_.seconds());
}

// What an engine does between steps. Whether the step, or a disk, had work.
bool Engine::finish(const StepPlan& plan) {
  observer_->stepped(*this);
  if (cache_observer_ != nullptr) cache_observer_->stepped();
#ifndef NDEBUG
  try {
    self_check();
  } catch (const std::bad_alloc&) {  // nothing to count with
  }
#endif
  if (plan.empty() && live_.n_unfinished() == 0) bring_memory();
  const bool is_fetching = disk_ && disk_->is_fetching();
  if (plan.empty() && is_fetching) disk_->wait(kFetchTurn);
  return !plan.empty() || is_fetching;
}

// Of what the largest step needs, and of a block that requests will need, before they come: a virtual machine's first
// write of a page was measured to take up to 27 us, and all of a prompt's a third of what reading it took.
void Engine::bring_memory() {
  if (has_memory_to_take_) has_memory_to_take_ = worker_->take_next() || speculation_.take_next();
  if (n_brought_ == n_to_bring_) return;
  const BlockId block{n_brought_++};
  if (scheduler_.new_blocks().write(block)) worker_->bring(block);
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
  if (options_.host_copy_seconds <= 0 || !cost_.is_known()) return;
  StepLoad one, two;
  one.add_prompt(0, options_.block_len, 0);
  two.add_prompt(0, 2 * options_.block_len, 0);
  const bool is_worth = 2 * options_.host_copy_seconds < cost_.seconds(two) - cost_.seconds(one);
  cache_.use_lower_tiers(is_worth);
}

void Engine::speculate(std::unique_ptr<Proposer> proposer, int32_t max_drafts) {
  speculation_.use(std::move(proposer), max_drafts);
  worker_->set_taps(speculation_.taps());
  has_memory_to_take_ = true;
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

Engine::Forecast Engine::forecast(int32_t n_prompt) const {
  QueueForecast queue(scheduler_.policy(), cost_,
                      {.max_sequences = options_.max_sequences,
                       .block_len = options_.block_len,
                       .n_free_blocks = cache_.pool().n_available(),
                       .refused = scheduler_.refused(),
                       .has_ranks = options_.policy != PolicyKind::kFirstCome,
                       .reads_whole = worker_->facts().encoder.has_value()});
  live_.each_sequence([&](const Sequence& s) { queue.add(s, typical_); });
  const int32_t n = n_prompt < 0 ? static_cast<int32_t>(typical_.prompt_tokens) : n_prompt;
  return {.queue_tokens = queue.queue_tokens(), .first_token_seconds = queue.first_token_seconds(n)};
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
      stats.slots_unfilled +=
          static_cast<int64_t>(s->place.blocks().size()) * cache_.block_len() - (s->n_tokens() - s->place.n_evicted());
  stats.host_blocks_total = cache_.pool(Tier::kHost).n_total();
  stats.host_blocks_cached = cache_.pool(Tier::kHost).n_cached();
  stats.uses_host = stats.host_blocks_total > 0 && cache_.uses_lower_tiers();
  stats.n_blocks_down = cache_.n_moved_down();
  stats.n_blocks_up = cache_.n_moved_up();
  stats.state_bytes = worker_->facts().state_bytes;
  const BlockPool &states = cache_.states().pool(Tier::kDevice), &host_states = cache_.states().pool(Tier::kHost);
  stats.states_total = states.n_total();
  stats.states_free = states.n_free();
  stats.states_cached = states.n_cached();
  stats.states_in_use = states.n_in_use();
  stats.n_snapshots = cache_.states().n_snapshots();
  stats.host_states_total = host_states.n_total();
  stats.host_states_cached = host_states.n_cached();
  stats.n_states_down = cache_.states().n_moved_down();
  stats.n_states_up = cache_.states().n_moved_up();
  stats.n_snapshot_hits = counts.n_snapshot_hits;
  stats.tokens_without_snapshot = counts.tokens_without_snapshot;
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
  stats.n_evictions = counts.n_evictions;
  stats.evicted_tokens = counts.evicted_tokens;
  stats.n_finished = counts.n_finished;
  stats.n_cancelled = counts.n_cancelled;
  stats.n_failed = counts.n_failed;
  stats.n_overdue = live_.n_overdue();
  stats.step_error_p50 = cost_.error_p50();
  stats.step_error_p95 = cost_.error_p95();
  stats.step_prefill_tokens = counts.step_prefill_tokens;
  stats.step_decode_tokens = counts.step_decode_tokens;
  return stats;
}

}  // namespace ibid
