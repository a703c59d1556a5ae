#include "engine/live_requests.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/grow.h"
#include "engine/state/scope_of.h"
#include "sample/grammar/matcher.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

double longest_wait(const Request& request) {
  double longest = std::numeric_limits<double>::infinity();
  for (const float seconds : {request.ttft_target, request.max_wait}) {
    if (seconds > 0) longest = std::min(longest, static_cast<double>(seconds));
  }
  return longest;
}

}  // namespace

LiveRequests::LiveRequests(const ModelFacts& facts, const EngineOptions& options,
                           std::shared_ptr<const Tokenizer> tokenizer, PrefixTree& tree, Settler& settler,
                           Speculation& speculation, const Clock& clock)
    : facts_(facts),
      options_(options),
      tokenizer_(std::move(tokenizer)),
      tree_(tree),
      settler_(settler),
      speculation_(speculation),
      clock_(clock) {}

// All that may fail comes before all that changes something.
Sequence& LiveRequests::add(const AdmittedRequest& request) {
  grow(cancelled_, requests_.size() + 1);
  grow(overdue_, requests_.size() + 1);
  grow(over_, requests_.size() + 1);
  Live& live = requests_.emplace(request->id, make(request)).first->second;
  try {
    hold_scopes(live);
  } catch (const std::bad_alloc&) {
    requests_.erase(request->id);
    throw;
  }
  n_made_ += static_cast<int64_t>(live.sequences.size());
  if (live.sequences.front()->answer->finished()) over_.push_back(request->id);
  return *live.sequences.front();
}

LiveRequests::Live LiveRequests::make(const AdmittedRequest& given) {
  const std::shared_ptr<const Request>& request = given.request();
  Live out;
  for (int32_t choice = 0; choice < request->n_sequences(); ++choice) {
    std::unique_ptr<Sequence, Return> s(std::pmr::polymorphic_allocator<>(&memory_).new_object<Sequence>(), {&memory_});
    s->id = SeqId{next_sequence_++};
    s->sampler = given.sampler();
    s->sampler_state = given.initial_state(choice);
    s->request = request;
    s->choice = choice;
    s->state = SequenceState::kHeld;
    s->tokens = request->prompt;
    s->prompt_len = static_cast<int32_t>(request->prompt.size());
    const bool scores = request->prompt_logprobs >= 0 && choice == 0;
    s->n_scored = scores ? 0 : s->prompt_len - 1;
    if (s->pools())
      s->pool = s->ranks() ? Pool(Pooling::kFirst, facts_.encoder->n_labels) : Pool(request->pooling, facts_.width);
    s->answer.emplace(request, choice, tokenizer_, facts_.end_of_generation);
    if (!request->resume.tokens.empty()) resume(*s, given.over());
    s->ledger().until = s->answer->timing().arrived = clock_.now();
    if (scores) s->answer->add_prompt_record({.chosen = {.token = request->prompt.front()}});
    if (choice == 0) s->account.due = s->answer->timing().arrived + longest_wait(*request);
    if (request->searches()) {
      if (choice > 0) s->tokens.clear();  // until a beam takes its seat
    } else if (choice > 0) {
      out.sequences.front()->followers.push_back(s.get());
    }
    out.sequences.push_back(std::move(s));
  }
  if (request->speculation.reads_prompt) out.sequences.front()->n_without_hidden = 0;
  if (request->pictures != nullptr) name_pictures(out);
  if (request->searches()) make_group(out);
  return out;
}

void LiveRequests::name_pictures(Live& live) {
  const Request& request = *live.sequences.front()->request;
  std::optional<std::vector<TokenId>> names = picture_names_.of(request.prompt, *request.pictures);
  if (!names) throw std::bad_alloc();  // so many pictures that none has a name left
  for (const auto& s : live.sequences) s->names = *names;
}

// The sequence is what one is whose blocks were taken after these tokens of its answer.
void LiveRequests::resume(Sequence& s, FinishReason over) const {
  const std::vector<TokenId>& tokens = s.request->resume.tokens;
  s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
  grammar::Matcher* matcher = s.request->grammar.get();
  s.answer->resume(tokens);
  if (over == FinishReason::kError) {
    s.answer->fail(invalid("It failed when it was recorded.", "resume"));
  } else if (over != FinishReason::kNone) {
    s.answer->end_silently(over);
  } else if (matcher != nullptr && matcher->is_closed(s.sampler_state.grammar)) {
    s.answer->end_silently(FinishReason::kGrammar);
  } else if (!s.may_answer() || s.n_tokens() >= facts_.context_len) {
    s.answer->end_silently(FinishReason::kLength);
  }
}

void LiveRequests::make_group(Live& live) const {
  Sequence& first = *live.sequences.front();
  const Request& request = *first.request;
  const int32_t room = facts_.context_len - first.prompt_len;
  const int32_t most = request.max_tokens < 0 ? room : std::min(room, request.max_tokens);
  auto n_ends = static_cast<int32_t>(facts_.end_of_generation.size());
  if (request.sampling.ignore_eos) n_ends = 0;
  if (request.stops) n_ends += static_cast<int32_t>(request.stops->ids().size());
  auto group = std::make_unique<SearchGroup>();
  group->search = make_search(request.search, first.prompt_len, most, n_ends);
  if (request.search.kind == SearchKind::kContrastive) {
    group->contrastive = static_cast<ContrastiveSearch*>(group->search.get());
    first.n_without_hidden = 0;
  }
  group->running.push_back(&first);
  group->rows.resize(1);
  for (const auto& s : live.sequences) {
    s->group = group.get();
    group->seats.push_back(s.get());
  }
  live.group = std::move(group);
}

void LiveRequests::hold_scopes(Live& live) {
  const CacheScope scope = scope_of(*live.sequences.front()->request, facts_, options_.kv_dtype);
  const ScopeId held = tree_.hold(scope);  // spelled once, for all choices
  for (const auto& s : live.sequences) {
    if (s->choice > 0) tree_.hold_again(held);
    s->place.enter(held);
  }
}

void LiveRequests::cancel(RequestId id) {
  const auto it = requests_.find(id);
  if (it != requests_.end() && !std::exchange(it->second.is_cancelled, true)) cancelled_.push_back(id);
}

void LiveRequests::cancel_all() {
  for (auto& [id, live] : requests_) cancel(id);
}

Sequence* LiveRequests::find(RequestId id, int32_t choice) const {
  const auto it = requests_.find(id);
  if (it == requests_.end() || choice < 0) return nullptr;
  const auto& sequences = it->second.sequences;
  return static_cast<size_t>(choice) < sequences.size() ? sequences[static_cast<size_t>(choice)].get() : nullptr;
}

int32_t LiveRequests::n_unfinished() const { return static_cast<int32_t>(n_made_ - settler_.counts().n_finished); }

bool LiveRequests::make_room(std::vector<Output>& out) const {
  try {
    grow(out, out.size() + 2 * static_cast<size_t>(n_unfinished()));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void LiveRequests::publish(Sequence& s, std::vector<Output>& out) {
  if (s.choice < s.request->n) s.answer->take(out);  // further ones are seats of beams
}

void LiveRequests::publish_ended(const StepPlan& plan, size_t n_before, std::vector<Output>& out) {
  if (settler_.counts().step_finished == 0) return;
  for (const Share& share : plan.shares) {
    const Sequence& s = *share.sequence;
    if (s.group == nullptr || s.state != SequenceState::kFinished) continue;
    for (Sequence* seat : s.group->seats) publish(*seat, out);
  }
  for (size_t i = n_before; i < out.size(); ++i) {
    if (out[i].finished) forget_finished(out[i].request);
  }
}

template <typename End>
void LiveRequests::end(const std::vector<RequestId>& ids, std::vector<Output>& out, End end_one) {
  for (const RequestId id : ids) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) continue;
    for (auto& s : it->second.sequences) {
      try {
        end_one(*s);
      } catch (const std::bad_alloc&) {
        settler_.fail(*s, out_of_memory(), clock_.now());
      }
      publish(*s, out);
    }
    forget_finished(id);
  }
}

void LiveRequests::end_cancelled(std::vector<Output>& out) {
  end(cancelled_, out, [this](Sequence& s) { settler_.end(s, FinishReason::kCancelled, clock_.now()); });
  cancelled_.clear();
}

void LiveRequests::end_over(std::vector<Output>& out) {
  end(over_, out, [this](Sequence& s) { settler_.end(s, s.answer->reason(), clock_.now()); });
  over_.clear();
}

void LiveRequests::end_overdue(double now, std::vector<Output>& out) {
  if (now < next_due_) return;
  next_due_ = std::numeric_limits<double>::infinity();
  overdue_.clear();
  for (const auto& [id, live] : requests_) {
    const Sequence& s = *live.sequences.front();
    if (s.account.was_admitted || s.state == SequenceState::kFinished) continue;
    s.account.due <= now ? overdue_.push_back(id) : watch(s);
  }
  n_overdue_ += static_cast<int64_t>(overdue_.size());
  // All of a request waits for its first choice.
  end(overdue_, out, [this](Sequence& s) {
    settler_.fail(s, exhausted("The request could not begin in the time that it was given; try again later."),
                  clock_.now());
  });
}

void LiveRequests::end_failed(const StepFailures& failures, std::vector<Output>& out) {
  end(failures.starved, out, [this](Sequence& s) { settler_.fail(s, out_of_memory(), clock_.now()); });
  end(failures.unsound, out, [this](Sequence& s) { settler_.fail(s, unsound_row(), clock_.now()); });
}

// Each choice as it ends: what the proposer holds for it is free from then on. The request once all have.
void LiveRequests::forget_finished(RequestId id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  const auto finished = [](const auto& s) { return s->state == SequenceState::kFinished; };
  const bool is_over = std::ranges::all_of(it->second.sequences, finished);
  for (const auto& s : it->second.sequences) {
    const bool is_to_go = finished(s);
    if (is_to_go) speculation_.ended(*s);
  }
  if (is_over) requests_.erase(it);
}

}  // namespace ibid
