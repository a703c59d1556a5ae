#include "engine/engine_core.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/grow.h"
#include "engine/engine_size.h"
#include "kernels/arithmetic_version.h"

namespace ibid {

Result<std::unique_ptr<EngineCore>> EngineCore::create(std::unique_ptr<ForwardPass> model,
                                                       std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                                                       const EngineOptions& given, const Clock& clock,
                                                       PrefixHash hash) {
  ASSIGN_OR_RETURN(const EngineOptions options, size_engine(model->facts(), given));
  const std::vector<KvLayout> layers = kv_layouts(model->facts().layers, options.kv_dtype, options.block_len);
  const auto n_blocks = static_cast<int32_t>(options.kv_bytes / kv_block_bytes(layers));
  ASSIGN_OR_RETURN(KvStore kv, KvStore::create(layers, n_blocks));
  return std::unique_ptr<EngineCore>(
      new EngineCore(std::move(model), std::move(tokenizer), stream, options, clock, std::move(kv), hash));
}

EngineCore::EngineCore(std::unique_ptr<ForwardPass> model, std::shared_ptr<const Tokenizer> tokenizer, Stream& stream,
                       const EngineOptions& options, const Clock& clock, KvStore kv, PrefixHash hash)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      clock_(clock),
      kv_(std::move(kv)),
      cache_({.n_blocks = kv_.layers().front().n_blocks,
              .block_len = options.block_len,
              .prefix_cache = options.prefix_cache,
              .hash = hash}),
      scheduler_(cache_, {.budget = {.n_tokens = options.max_tokens, .n_rows = options.max_rows},
                          .max_sequences = options.max_sequences,
                          .context_len = model_->facts().context_len,
                          .policy = options.policy}),
      runner_(*model_, kv_, stream,
              {.n_tokens = options.max_tokens,
               .n_sequences = options.max_sequences,
               .n_rows = options.max_rows,
               .context_len = model_->facts().context_len,
               .block_len = options.block_len},
              clock),
      settler_(cache_, scheduler_, clock, model_->facts().context_len, model_->facts().window) {
  const auto n = static_cast<size_t>(options.max_sequences);
  last_step_.reserve(n);
  starved_.reserve(2 * n + 1);
  unsound_.reserve(n);
}

EngineCore::~EngineCore() = default;

Result<AdmittedRequest> EngineCore::admit(Request request) const {
  return ibid::admit(std::move(request), model_->facts(), tokenizer_ != nullptr);
}

Status EngineCore::submit(Request request) {
  ASSIGN_OR_RETURN(AdmittedRequest admitted, admit(std::move(request)));
  return submit(std::move(admitted));
}

Status EngineCore::submit(AdmittedRequest given) try {
  if (requests_.contains(given->id)) return invalid("A request with this id is still running.", "id");
  // Those that came since the last step will run in the next one as far as there are places.
  const auto n_beyond = [this](int32_t n) { return std::max(0, n_unfinished() + n - options_.max_sequences); };
  TRY(may_wait(n_beyond(0), n_beyond(given->n), options_.max_waiting));
  const RequestId id = given->id;
  Live made = make_sequences(given);
  // All that may fail comes before all that changes something.
  const size_t n_choices = made.sequences.size();
  grow(cancelled_, requests_.size() + 1);
  scheduler_.make_room(static_cast<size_t>(n_unfinished()) + n_choices);
  Live& live = requests_.emplace(id, std::move(made)).first->second;
  try {
    hold_scopes(live);
  } catch (const std::bad_alloc&) {
    requests_.erase(id);
    throw;
  }
  n_submitted_ += static_cast<int64_t>(n_choices);
  scheduler_.enqueue(*live.sequences.front());
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

EngineCore::Live EngineCore::make_sequences(const AdmittedRequest& given) {
  const ModelFacts& facts = model_->facts();
  const std::shared_ptr<const Request>& request = given.request();
  Live out;
  for (int32_t choice = 0; choice < request->n; ++choice) {
    auto s = std::make_unique<Sequence>();
    s->id = SeqId{next_sequence_++};
    s->sampler = given.sampler();
    s->sampler_state = s->sampler->initial_state(static_cast<uint64_t>(choice));
    s->request = request;
    s->choice = choice;
    s->state = SequenceState::kHeld;
    s->tokens = request->prompt;
    s->prompt_len = static_cast<int32_t>(request->prompt.size());
    const bool scores = request->prompt_logprobs >= 0 && choice == 0;
    s->n_scored = scores ? 0 : s->prompt_len - 1;
    s->answer = std::make_unique<Answer>(request, choice, tokenizer_, facts.end_of_generation);
    s->answer->timing().arrived = clock_.now();
    if (scores) s->answer->add_prompt_record({.chosen = {.token = request->prompt.front()}});
    if (choice > 0) out.sequences.front()->followers.push_back(s.get());
    out.sequences.push_back(std::move(s));
  }
  return out;
}

void EngineCore::hold_scopes(Live& live) {
  const ModelFacts& facts = model_->facts();
  const Request& request = *live.sequences.front()->request;
  const CacheScope scope = {
      .arithmetic = std::to_string(kArithmeticVersion),
      .model = facts.digest,
      .kv_dtype = std::string(traits(options_.kv_dtype).name),
      .rope = facts.rope,
      .salt = request.cache_salt.empty() ? request.tenant : request.tenant + '\n' + request.cache_salt};
  size_t n_held = 0;
  try {
    for (; n_held < live.sequences.size(); ++n_held) live.sequences[n_held]->scope = cache_.tree().hold(scope);
  } catch (const std::bad_alloc&) {
    while (n_held > 0) cache_.tree().let_go(live.sequences[--n_held]->scope);
    throw;
  }
}

void EngineCore::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it != requests_.end() && !std::exchange(it->second.is_cancelled, true)) cancelled_.push_back(id);
}

void EngineCore::cancel_all() {
  for (auto& [id, live] : requests_) cancel(id);
}

bool EngineCore::step(std::vector<Output>& out) {
  if (!make_room(out)) return false;
  const size_t n_before = out.size();
  end_cancelled(out);
  const double begin = clock_.now();
  propose();
  const StepPlan& plan = scheduler_.plan();
  note(plan);
  const double planned = clock_.now();
  starved_.assign(plan.starved.begin(), plan.starved.end());
  unsound_.clear();
  if (!plan.empty()) {
    timing_.step_plan = planned - begin;
    run(plan, out);
  }
  end_starved(out);
  end_unsound(out);
#ifndef NDEBUG
  try {
    self_check();
  } catch (const std::bad_alloc&) {  // nothing to count with
  }
#endif
  return !plan.empty() || out.size() > n_before;
}

void EngineCore::speculate(std::unique_ptr<Proposer> proposer, int32_t max_drafts) {
  proposer_ = std::move(proposer);
  max_drafts_ = std::min(max_drafts, kMaxDrafts);
}

// For those that wait for their next token, as far as the answer may go on behind it.
void EngineCore::propose() {
  if (!proposer_) return;
  for (Sequence* s : scheduler_.running()) {
    s->drafts.clear();
    int32_t n = std::min(max_drafts_, model_->facts().context_len - s->n_tokens() - 1);
    if (s->request->max_tokens >= 0) n = std::min(n, s->request->max_tokens - s->n_answered() - 1);
    if (n <= 0 || s->n_tokens() - s->n_computed != 1) continue;
    const auto tokens = std::span<const TokenId>(s->tokens);
    const auto n_prompt = static_cast<size_t>(s->prompt_len);
    try {
      proposer_->propose({raw(s->id), tokens.first(n_prompt), tokens.subspan(n_prompt), n}, s->drafts);
    } catch (const std::bad_alloc&) {  // then there are none
      s->drafts.clear();
    }
    s->drafts.cut(n);
  }
}

void EngineCore::run(const StepPlan& plan, std::vector<Output>& out) {
  settler_.admit(plan);
  const size_t n_before = out.size();
  StepResult& result = runner_.run(plan);
  cache_.transferred(plan.copies);
  const double ran = clock_.now();
  settler_.settle(plan, result, starved_, unsound_);
  for (const Share& share : plan.shares) publish(*share.sequence, out);
  for (size_t i = n_before; i < out.size(); ++i) {
    if (out[i].finished) forget_if_finished(out[i].request);
  }
  ++timing_.n_steps;
  timing_.step_forward = result.forward_seconds;
  timing_.step_sample = result.sample_seconds;
  timing_.step_settle = clock_.now() - ran;
}

// Nothing may be lost between a sequence's end and the telling of it.
bool EngineCore::make_room(std::vector<Output>& out) const {
  try {
    grow(out, out.size() + 2 * static_cast<size_t>(n_unfinished()));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void EngineCore::note(const StepPlan& plan) {
  n_last_copies_ = static_cast<int32_t>(plan.copies.size());
  last_step_.clear();
  for (const Share& share : plan.shares) {
    last_step_.push_back({share.sequence->request->id, share.sequence->choice, share.n_tokens});
  }
}

template <typename End>
void EngineCore::end_requests(const std::vector<RequestId>& ids, std::vector<Output>& out, End end) {
  for (const RequestId id : ids) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) continue;
    for (auto& s : it->second.sequences) {
      end(*s);
      publish(*s, out);
    }
    forget_if_finished(id);
  }
}

void EngineCore::end_cancelled(std::vector<Output>& out) {
  end_requests(cancelled_, out, [this](Sequence& s) {
    try {
      settler_.end(s, FinishReason::kCancelled);
    } catch (const std::bad_alloc&) {
      settler_.fail(s, out_of_memory());
    }
  });
  cancelled_.clear();
}

void EngineCore::end_starved(std::vector<Output>& out) {
  end_requests(starved_, out, [this](Sequence& s) { settler_.fail(s, out_of_memory()); });
}

void EngineCore::end_unsound(std::vector<Output>& out) {
  end_requests(unsound_, out, [this](Sequence& s) {
    try {
      settler_.fail(s, unsound_row());
    } catch (const std::bad_alloc&) {
      settler_.fail(s, out_of_memory());
    }
  });
}

void EngineCore::publish(Sequence& s, std::vector<Output>& out) {
  if (auto output = s.answer->take()) out.push_back(std::move(*output));
}

void EngineCore::forget_if_finished(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  const auto finished = [](const auto& s) { return s->state == SequenceState::kFinished; };
  if (!std::ranges::all_of(it->second.sequences, finished)) return;
  for (const auto& s : it->second.sequences) {
    if (proposer_) proposer_->forget(raw(s->id));
  }
  requests_.erase(it);
}

int32_t EngineCore::n_unfinished() const { return static_cast<int32_t>(n_submitted_ - settler_.counts().n_finished); }

bool EngineCore::preempt(RequestId id, int32_t choice) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return false;
  Sequence& s = *it->second.sequences.at(static_cast<size_t>(choice));
  if (s.state != SequenceState::kRunning) return false;
  scheduler_.preempt(s);
  return true;
}

void EngineCore::self_check() const {
  cache_.self_check();
  std::vector<int32_t> n_entries(static_cast<size_t>(cache_.pool().n_total()), 0);
  int64_t n_holders = 0;
  for (const auto& [id, live] : requests_) {
    for (const auto& s : live.sequences) {
      n_holders += s->scope != ScopeId::kNone;
      for (const BlockId block : s->blocks) {
        if (block != BlockId::kNone) ++n_entries[static_cast<size_t>(raw(block))];
      }
      CHECK(s->n_computed <= s->n_wanted() &&
            cache_.n_blocks_for(s->n_computed) <= static_cast<int32_t>(s->blocks.size()));
    }
  }
  CHECK(n_holders == cache_.tree().n_holders(), "a scope is held for a sequence that has ended");
  for (size_t i = 0; i < n_entries.size(); ++i) {
    CHECK(n_entries[i] == cache_.pool().n_references(BlockId{static_cast<int32_t>(i)}),
          "a block's references are not the tables' entries");
  }
}

EngineStats EngineCore::stats() const {
  EngineStats stats = timing_;
  const SettleCounts& counts = settler_.counts();
  stats.n_running = static_cast<int32_t>(scheduler_.running().size());
  stats.n_waiting = n_unfinished() - stats.n_running;
  stats.blocks_total = cache_.pool().n_total();
  stats.blocks_free = cache_.pool().n_free();
  stats.blocks_cached = cache_.pool().n_cached();
  stats.blocks_in_use = cache_.pool().n_in_use();
  stats.blocks_shared = cache_.pool().n_shared();
  stats.prompt_tokens = counts.prompt_tokens;
  stats.cached_tokens = counts.cached_tokens;
  stats.generated_tokens = counts.generated_tokens;
  stats.n_preemptions = scheduler_.n_preemptions();
  stats.n_finished = counts.n_finished;
  stats.n_cancelled = counts.n_cancelled;
  stats.n_failed = counts.n_failed;
  stats.step_prefill_tokens = counts.step_prefill_tokens;
  stats.step_decode_tokens = counts.step_decode_tokens;
  return stats;
}

}  // namespace ibid
