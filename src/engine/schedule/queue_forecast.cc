#include "engine/schedule/queue_forecast.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/schedule/prompt_turns.h"
#include "engine/state/sequence.h"

namespace ibid {
namespace {

constexpr int32_t kPartOfOldest = 4;     // as the scheduler has it
constexpr int64_t kEqualSteps = 16;      // at most, so that what they read more is a small part
constexpr int64_t kMostLooks = 1 << 16;  // at prompts, in all steps
constexpr SeqId kProbe{INT64_MAX};
constexpr auto ends_later = [](const auto& a, const auto& b) { return a.last_step > b.last_step; };

// Of a sequence that has n_answered tokens of its answer. Nothing is known of where it ends but the mean of others and
// the request's limit, which alone counts where the request goes on after an end.
int32_t n_to_come(const Sequence& s, const TypicalRequest& typical) {
  if (s.pools()) return 1;
  const int32_t most = s.request->max_tokens < 0 ? INT32_MAX : s.request->max_tokens - s.n_answered();
  if (s.request->sampling.ignore_eos && s.request->max_tokens >= 0) return std::max(1, most);
  return std::clamp(static_cast<int32_t>(typical.answer_tokens), 1, std::max(1, most));
}

}  // namespace

void QueueForecast::add(const Sequence& s, const TypicalRequest& typical) {
  const bool runs = s.state == SequenceState::kRunning;
  if (!runs && s.state != SequenceState::kWaiting && s.state != SequenceState::kFetching) return;
  const int32_t n_answer = n_to_come(s, typical);
  if (runs && s.n_missing() == 1 && s.n_answered() > 0) {
    decodes_.push_back({.key = s.account.key, .last_step = n_answer, .n_tokens = int64_t{s.n_tokens()} + n_answer});
    decode_tokens_ += s.n_computed();
    return;
  }
  const int32_t n_left = runs ? s.n_missing() : n_expected(s);
  queue_tokens_ += n_left;
  prompts_.push_back({.key = s.account.key,
                      .n_before = s.n_tokens() - n_left,
                      .n_left = n_left,
                      .n_answer = n_answer,
                      .n_sequences = 1 + static_cast<int32_t>(s.followers.size()),
                      .waits = !runs});
}

int64_t QueueForecast::whole_blocks(int64_t n_tokens) const {
  return (n_tokens + options_.block_len - 1) / options_.block_len * options_.block_len;
}

double QueueForecast::first_token_seconds(int32_t n_prompt) {
  if (!cost_.is_known()) return 0;
  n_free_ = int64_t{options_.n_free_blocks} * options_.block_len;
  n_running_prompts_ = static_cast<int32_t>(std::ranges::count(prompts_, false, &Prompt::waits));
  n_places_ = options_.max_sequences - static_cast<int64_t>(decodes_.size()) - n_running_prompts_;
  prompts_.push_back({.key = {.rank = options_.has_ranks ? ~0 : 0, .id = kProbe},
                      .n_left = std::max(1, n_prompt),
                      .n_answer = 1,
                      .waits = true,
                      .is_asked = true});
  std::ranges::sort(prompts_, {}, &Prompt::key);
  std::ranges::make_heap(decodes_, ends_later);
  double seconds = 0;
  while (true) {
    grant();
    if (granted_.empty() && decodes_.empty()) return seconds;  // it fits nowhere, and no answer ends for it
    const int64_t n_steps = n_equal_steps();
    seconds += static_cast<double>(n_steps) * cost_.seconds(load_of(n_steps));
    if (pass(n_steps)) return seconds;
    if (n_looks_ > kMostLooks) break;
  }
  const auto n_all = static_cast<double>(queue_tokens_ + std::max(1, n_prompt));
  return seconds * n_all / static_cast<double>(std::max<int64_t>(1, n_granted_));
}

// Those that run, and of those that wait as many as there are places for; one, where there are none.
void QueueForecast::list_candidates() {
  candidates_.clear();
  int64_t n_waiting = std::max<int64_t>(1, n_places_), n_running = n_running_prompts_;
  for (size_t i = 0; i < prompts_.size() && n_waiting + n_running > 0; ++i) {
    if ((prompts_[i].waits ? n_waiting : n_running)-- > 0) candidates_.push_back(i);
  }
  n_looks_ += 1 + std::ssize(candidates_);
}

// As PromptTurns has it, with one flow.
size_t QueueForecast::take_next() {
  const auto goes_later = [this](size_t a, size_t b) {
    const auto rank = [this](const Prompt& p) {
      return std::tuple(p.key.rank, policy_.shortest_first() ? p.n_left : 0, p.key.id);
    };
    return rank(prompts_[a]) > rank(prompts_[b]);
  };
  if (!has_looked_) std::ranges::make_heap(candidates_, goes_later);
  has_looked_ = true;
  std::ranges::pop_heap(candidates_, goes_later);
  const size_t next = candidates_.back();
  candidates_.pop_back();
  return next;
}

// What decodes of a step read, after n_more steps of the same.
StepLoad QueueForecast::decodes(int64_t n_more) const {
  StepLoad load;
  const auto n = static_cast<int32_t>(decodes_.size());
  load.n_decode_tokens = load.n_rows = load.n_sequences = n;
  load.decode_reads = decode_tokens_ + n * (n_more + 1);
  return load;
}

StepBudget QueueForecast::without_part_of(const Prompt& oldest, const StepLoad& load) const {
  StepBudget limit = budget_;
  limit.n_tokens -=
      std::min(oldest.n_left, (limit.n_tokens - load.n_decode_tokens + kPartOfOldest - 1) / kPartOfOldest);
  if (limit.seconds == Policy::kNoLimit) return limit;
  StepLoad with = load;
  with.add_prompt(oldest.n_before, oldest.n_left, 1);
  const double begin = cost_.seconds(load), whole = cost_.seconds(with);
  limit.seconds -= std::min(whole - begin, std::max(0.0, limit.seconds - begin) / kPartOfOldest);
  return limit;
}

// Scheduler::grant_prompts(), over numbers.
void QueueForecast::grant() {
  granted_.clear();
  has_admitted_ = has_looked_ = false;
  StepLoad load = decodes();
  budget_ = policy_.budget(load, Policy::kNoLimit);
  if (options_.reads_whole) budget_.seconds = Policy::kNoLimit;
  list_candidates();
  if (candidates_.empty()) return;
  const size_t oldest = candidates_.front();
  const bool parts = policy_.shortest_first() && candidates_.size() > 1;
  StepBudget limit = parts ? without_part_of(prompts_[oldest], load) : budget_;
  bool is_spent = false;  // but for the oldest
  bool is_oldest_served = false;
  while (!candidates_.empty() && !(is_spent && is_oldest_served)) {
    const size_t i = is_spent ? oldest : take_next();
    is_oldest_served |= i == oldest;
    Prompt& p = prompts_[i];
    if (i == oldest) limit = budget_;
    const int32_t n = n_within(limit, load, p);
    is_spent |= n < p.n_left;
    if (n <= 0 || (p.waits && !admit(p))) continue;
    load.add_prompt(p.n_before, n, n == p.n_left);
    granted_.push_back({i, n});
    n_granted_ += n;
  }
}

int32_t QueueForecast::n_within(const StepBudget& limit, const StepLoad& load, const Prompt& p) const {
  const int32_t n = std::min(p.n_left, limit.n_tokens - load.n_prompt_tokens - load.n_decode_tokens);
  if (n <= 1 || limit.seconds == Policy::kNoLimit) return n;
  const int32_t n_kept = limit.seconds < budget_.seconds ? kLeastPromptTokens / kPartOfOldest : 0;
  const int32_t n_least = kLeastPromptTokens - n_kept - load.n_prompt_tokens;
  return std::max(cost_.n_within(limit.seconds, load, p.n_before, n, p.n_left - 1), std::min(n, n_least));
}

const QueueForecast::Prompt* QueueForecast::first_waiting() const {
  const auto found = std::ranges::find(prompts_, true, &Prompt::waits);
  return found == prompts_.end() ? nullptr : &*found;
}

// Positions for all its tokens and one more.
int64_t QueueForecast::needs(const Prompt& p) const {
  return whole_blocks(int64_t{p.n_before} + p.n_left + 1) - p.n_before / options_.block_len * options_.block_len;
}

// As Scheduler::admit(): while the first of those that wait finds no blocks, no other comes in.
bool QueueForecast::admit(Prompt& p) {
  const Prompt& first = *first_waiting();
  if (&first != &p && refused_ == first.key.id) return false;
  const int64_t n_needed = needs(p);
  if (n_places_ <= 0) return false;
  if (n_needed > n_free_) {
    refused_ = p.key.id;
    return false;
  }
  --n_places_, ++n_running_prompts_;
  n_free_ -= n_needed;
  p.waits = false;
  return has_admitted_ = true;
}

// How many steps are like this one: until an answer ends, or a prompt has less left than it gets.
int64_t QueueForecast::n_equal_steps() const {
  if (has_admitted_) return 1;
  int64_t n = kEqualSteps;
  if (!decodes_.empty()) n = std::min(n, decodes_.front().last_step - step_);
  for (const Granted& g : granted_) n = std::min<int64_t>(n, prompts_[g.prompt].n_left / g.n_tokens);
  return std::max<int64_t>(1, n);
}

// Of one of n_steps, in their middle.
StepLoad QueueForecast::load_of(int64_t n_steps) const {
  StepLoad load = decodes((n_steps - 1) / 2);
  for (const Granted& g : granted_) {
    const Prompt& p = prompts_[g.prompt];
    load.add_prompt(p.n_before + g.n_tokens * (n_steps - 1) / 2, g.n_tokens, p.n_left == g.n_tokens * n_steps);
  }
  return load;
}

// They are over. True: the request that is asked for has its first token.
bool QueueForecast::pass(int64_t n_steps) {
  const auto n_decodes = static_cast<int64_t>(decodes_.size());
  step_ += n_steps;
  decode_tokens_ += n_decodes * n_steps;
  end_answers();
  n_free_ -= n_decodes * n_steps;
  bool has_ended = false;
  for (const Granted& g : granted_) {
    Prompt& p = prompts_[g.prompt];
    const auto n = static_cast<int32_t>(g.n_tokens * n_steps);
    p.n_before += n, p.n_left -= n;
    n_granted_ += n - g.n_tokens;
    if (p.n_left > 0) continue;
    if (p.is_asked) return true;
    begin_answer(p);
    has_ended = true;
  }
  if (has_ended) {
    std::erase_if(prompts_, [](const Prompt& p) { return p.n_left == 0; });
    n_looks_ += std::ssize(prompts_) / 16;
  }
  while (n_free_ < 0 && std::ssize(decodes_) + n_running_prompts_ > 1) preempt_last();
  return false;
}

// Its first token is there; further choices share its prompt, and have a place each.
void QueueForecast::begin_answer(const Prompt& p) {
  n_places_ += 1 - p.n_sequences, --n_running_prompts_;
  for (int32_t i = 0; i < p.n_sequences; ++i) {
    decodes_.push_back(
        {.key = p.key, .last_step = step_ + p.n_answer - 1, .n_tokens = int64_t{p.n_before} + p.n_answer});
    decode_tokens_ += p.n_before;
    std::ranges::push_heap(decodes_, ends_later);
  }
  end_answers();
}

// The last in order of those that run waits again, with all its tokens to compute.
void QueueForecast::preempt_last() {
  n_looks_ += 1 + std::ssize(decodes_) + std::ssize(prompts_) / 16;
  const auto decode = std::ranges::max_element(decodes_, {}, &Decode::key);
  const auto prompt = std::find_if(prompts_.rbegin(), prompts_.rend(), [](const Prompt& p) { return !p.waits; });
  ++n_places_;
  if (prompt != prompts_.rend() && (decode == decodes_.end() || decode->key < prompt->key)) {
    n_free_ += whole_blocks(int64_t{prompt->n_before} + prompt->n_left + 1);
    prompt->n_left += std::exchange(prompt->n_before, 0);
    prompt->waits = true;
    --n_running_prompts_;
    return;
  }
  const int64_t n_to_come = decode->last_step - step_, n_tokens = decode->n_tokens - n_to_come;
  n_free_ += whole_blocks(n_tokens);
  decode_tokens_ -= n_tokens - 1;
  const Prompt again = {.key = decode->key,
                        .n_left = static_cast<int32_t>(n_tokens),
                        .n_answer = static_cast<int32_t>(n_to_come),
                        .waits = true};
  decodes_.erase(decode);
  std::ranges::make_heap(decodes_, ends_later);
  prompts_.insert(std::ranges::upper_bound(prompts_, again.key, {}, &Prompt::key), again);
}

void QueueForecast::end_answers() {
  while (!decodes_.empty() && decodes_.front().last_step <= step_) {
    const Decode& d = decodes_.front();
    decode_tokens_ -= d.n_tokens - 1;
    n_free_ += whole_blocks(d.n_tokens);
    ++n_places_;
    std::ranges::pop_heap(decodes_, ends_later);
    decodes_.pop_back();
  }
}

}  // namespace ibid
