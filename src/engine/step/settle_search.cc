// Beams: what a row of one means for all of its search (search_group.h).
#include <algorithm>
#include <utility>

#include "engine/state/search_group.h"
#include "engine/step/settle.h"
#include "sample/grammar/matcher.h"

namespace ibid {
namespace {

// Of a record, which may contain anything.
bool is_possible(const SearchTurn* turn, const SearchGroup& group) {
  if (turn == nullptr) return false;
  const auto is_seat = [&](const SearchChild& c) { return c.parent >= 0 && c.parent < std::ssize(group.running); };
  if (!turn->children.empty())
    return turn->children.size() <= group.seats.size() && std::ranges::all_of(turn->children, is_seat);
  const auto is_end = [](FinishReason reason) { return reason != FinishReason::kNone; };
  return turn->ends.size() == group.seats.size() && std::ranges::all_of(turn->ends, is_end);
}

}  // namespace

// Hidden states of a prompt, as they are computed for the first time.
void Settler::add_context(const Share& share, const ShareResult& result) {
  Sequence& s = *share.sequence;
  ContrastiveSearch* search = s.group->contrastive;
  if (search == nullptr || s.n_tokens() > s.prompt_len) return;
  const auto n_new = static_cast<size_t>(std::max(0, s.n_computed() - search->n_context()));
  const size_t width = result.hidden.size() / static_cast<size_t>(share.n_tokens);
  search->add_context(result.hidden.last(n_new * width), static_cast<int32_t>(width));
  s.n_without_hidden = search->n_context();
}

void Settler::take_row(const Share& share, ShareResult& result, double now) {
  Sequence& s = *share.sequence;
  SearchGroup& group = *s.group;
  if (result.failure) return fail_search(s, *result.failure, now);
  const size_t i = group.index_of(s);
  std::swap(group.rows[i], result.row);
  if (--group.n_missing > 0) return scheduler_.park(s);
  scheduler_.park(s);
  ++group.n_turns;
  if (result.is_recorded) {
    if (!is_possible(result.recorded_turn, group))
      return fail_search(s, invalid("The record does not have how it goes on."), now);
    group.children = result.recorded_turn->children;
    if (group.children.empty()) return end_recorded_search(group, result.recorded_turn->ends, now);
  } else {
    group.search->advance(group.rows, group.children);
    if (group.children.empty()) return end_search(s, now);
  }
  counts_.generated_tokens += static_cast<int64_t>(group.children.size());
  seat_children(group);
}

// First those that move: their parents are still what they were.
void Settler::seat_children(SearchGroup& group) {
  const std::vector<SearchChild>& children = group.children;
  grammar::Matcher* matcher = group.seats.front()->request->grammar.get();
  std::vector<int32_t> running;
  for (const Sequence* s : group.running) running.push_back(s->choice);
  const std::vector<int32_t> next = seats_of(children, running);
  group.next.assign(children.size(), nullptr);
  for (size_t i = 0; i < children.size(); ++i) {
    Sequence* parent = group.running[static_cast<size_t>(children[i].parent)];
    group.next[i] = group.seats[static_cast<size_t>(next[i])];
    if (group.next[i] == parent) continue;
    fork(*parent, *group.next[i]);
    if (matcher != nullptr) matcher->hold(group.next[i]->choice, children[i].grammar);
  }
  for (Sequence* seat : group.seats) {
    const bool is_taken = std::ranges::find(group.next, seat) != group.next.end();
    if (!is_taken) scheduler_.rest(*seat);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    Sequence& s = *group.next[i];
    if (matcher != nullptr) matcher->hold(s.choice, children[i].grammar);
    s.sampler_state.grammar = children[i].grammar;
    s.tokens.push_back(children[i].token);
    s.n_without_hidden = Sequence::kAll;
    scheduler_.resume(s);
  }
  group.running.swap(group.next);
  group.rows.resize(group.running.size());
  group.n_missing = static_cast<int32_t>(group.running.size());
}

void Settler::fork(const Sequence& parent, Sequence& s) {
  scheduler_.rest(s);
  s.tokens = parent.tokens;
  s.account.was_sought = false;
  // A parent that has lost its blocks meanwhile has none to share: the child computes them again, or finds them cached.
  s.place.fork(cache_, parent.place, parent.n_computed());
  s.place.take_chain(parent.place);
}

// All sequences at once, best first. The first n seats send them.
void Settler::end_search(Sequence& last, double now) {
  SearchGroup& group = *last.group;
  std::vector<SearchedText> texts = group.search->take_results();
  if (texts.empty()) {
    return fail_search(
        last, invalid("no text is left to choose from: the grammar, the bans and the processors exclude all of them"),
        now);
  }
  const Request& request = *last.request;
  const Timing& first = group.seats.front()->answer->timing();
  const int32_t cached = group.seats.front()->answer->usage().cached_tokens;
  for (Sequence* seat : group.seats) {
    Answer& answer = *seat->answer;
    answer.timing().admitted = first.admitted;
    answer.timing().first_token = answer.timing().last_token = now;
    answer.usage().cached_tokens = cached;
    // Where fewer sequences were found than were asked for, the last one is repeated.
    SearchedText& text = texts[std::min(static_cast<size_t>(seat->choice), texts.size() - 1)];
    for (size_t i = 0; i < text.tokens.size() && seat->choice < request.n && !answer.finished(); ++i) {
      answer.push({.chosen = {.token = text.tokens[i], .raw = text.logprobs[i], .processed = text.logprobs[i]},
                   .support = 1,
                   .position = seat->prompt_len + static_cast<int32_t>(i)});
    }
    answer.set_score(text.score);
    answer.finished() ? close(*seat, answer.reason(), now) : end(*seat, text.reason, now);
  }
}

// Without the model the sequences are unknown, and none is sent.
void Settler::end_recorded_search(SearchGroup& group, std::span<const FinishReason> ends, double now) {
  const double admitted = group.seats.front()->answer->timing().admitted;
  const int32_t cached = group.seats.front()->answer->usage().cached_tokens;
  for (size_t i = 0; i < group.seats.size(); ++i) {
    Answer& answer = *group.seats[i]->answer;
    answer.timing().admitted = admitted;
    answer.timing().first_token = answer.timing().last_token = now;
    answer.usage().cached_tokens = cached;
    ends[i] == FinishReason::kError ? fail(*group.seats[i], invalid("It failed when it was recorded."), now)
                                    : end(*group.seats[i], ends[i], now);
  }
}

void Settler::fail_search(Sequence& s, const Error& error, double now) {
  for (Sequence* seat : s.group->seats) fail(*seat, error, now);
}

}  // namespace ibid
