#include "engine/runner.h"

#include <algorithm>
#include <new>

namespace ibid {
namespace {

bool resize(std::vector<Sample>& samples, size_t n) {
  try {
    samples.resize(n);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Runner::Runner(ForwardPass& model, const KvStore& kv, Stream& stream, const BatchLimits& limits, const Clock& clock)
    : model_(model),
      kv_(kv),
      stream_(stream),
      clock_(clock),
      builder_(limits),
      logits_(static_cast<size_t>(limits.n_rows) * static_cast<size_t>(model.facts().vocab_size)),
      scratch_(static_cast<size_t>(stream.team().n_threads())) {
  tasks_.reserve(static_cast<size_t>(limits.n_rows));
  result_.shares.reserve(static_cast<size_t>(limits.n_sequences));
}

StepResult& Runner::run(const StepPlan& plan) {
  const double begin = clock_.now();
  kv_.copy(stream_, plan.copies);
  if (plan.n_tokens > 0) {
    const ForwardBatch batch = builder_.build(plan);
    model_.run(batch, kv_.layers(), TensorView(logits_.data(), DType::kF32, {plan.n_rows, model_.facts().vocab_size}));
  }
  const double forwarded = clock_.now();
  list_tasks(plan);
  stream_.team().parallel_for(static_cast<int64_t>(tasks_.size()), [&](int64_t task, int thread) {
    do_task(plan, tasks_[static_cast<size_t>(task)], scratch_[static_cast<size_t>(thread)]);
  });
  for (const RowTask& task : tasks_) {
    result_.shares[task.share].out_of_memory |= task.out_of_memory;
    result_.shares[task.share].is_unsound |= task.is_unsound;
  }
  result_.forward_seconds = forwarded - begin;
  result_.sample_seconds = clock_.now() - forwarded;
  return result_;
}

void Runner::list_tasks(const StepPlan& plan) {
  tasks_.clear();
  result_.shares.resize(plan.shares.size());
  int32_t row = 0;
  for (size_t i = 0; i < plan.shares.size(); ++i) {
    const Share& share = plan.shares[i];
    const Sequence& s = *share.sequence;
    ShareResult& result = result_.shares[i];
    result.drawn.reset();
    result.is_unsound = false;
    const int32_t end = s.n_computed + share.n_tokens, begin = end - share.n_rows;
    result.out_of_memory =
        !resize(result.scored, static_cast<size_t>(std::max(0, std::min(end, s.n_wanted() - 1) - begin)));
    for (int32_t t = begin; t < end; ++t, ++row) {
      if (result.out_of_memory) continue;
      if (t + 1 < s.n_wanted()) {
        tasks_.push_back({i, row, s.tokens[static_cast<size_t>(t) + 1], static_cast<size_t>(t - begin)});
      } else if (s.may_answer()) {
        tasks_.push_back({i, row, TokenId::kNone, 0});
      }
    }
  }
}

void Runner::do_task(const StepPlan& plan, RowTask& task, SamplerScratch& scratch) {
  try {
    do_row(plan, task, scratch);
  } catch (const std::bad_alloc&) {
    task.out_of_memory = true;
    scratch = {};  // what it holds between draws may not be what the next draw expects
  }
}

void Runner::do_row(const StepPlan& plan, RowTask& task, SamplerScratch& scratch) {
  Sequence& s = *plan.shares[task.share].sequence;
  ShareResult& result = result_.shares[task.share];
  const auto vocab_size = static_cast<size_t>(model_.facts().vocab_size);
  const std::span<const float> logits(logits_.data() + static_cast<size_t>(task.row) * vocab_size, vocab_size);
  if (task.next != TokenId::kNone) {
    Result<Sample> scored = score_row(logits, task.next, s.request->prompt_logprobs, scratch);
    task.is_unsound = !scored;
    if (scored) result.scored[task.scored] = *std::move(scored);
    return;
  }
  const auto tokens = std::span<const TokenId>(s.tokens);
  const SampleHistory history{tokens.first(static_cast<size_t>(s.prompt_len)),
                              tokens.subspan(static_cast<size_t>(s.prompt_len))};
  result.drawn.emplace(s.sampler->sample(logits, history, s.sampler_state, scratch));
}

}  // namespace ibid
