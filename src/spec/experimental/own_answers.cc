#include "spec/experimental/own_answers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ibid {
namespace {

constexpr int32_t kSmallest = 10, kLargest = 18;  // segments of 2^k - 1 tokens, to fit the table's size

size_t segments_within(int64_t bytes, int32_t segment_tokens) {
  const int64_t of_waiting = int64_t{segment_tokens} * static_cast<int64_t>(sizeof(TokenId));
  return static_cast<size_t>(std::max<int64_t>(0, bytes - of_waiting) / SuffixAutomaton::bytes_of(segment_tokens));
}

}  // namespace

OwnAnswers::OwnAnswers(int64_t bytes) {
  CHECK(bytes >= kLeastBytes);
  int32_t k = kLargest;
  while (k > kSmallest && segments_within(bytes, (1 << k) - 1) < kLeastSegments) --k;
  segment_tokens_ = (1 << k) - 1;
  max_segments_ = segments_within(bytes, segment_tokens_);
}

int64_t OwnAnswers::bytes() const {
  return static_cast<int64_t>(max_segments_) * SuffixAutomaton::bytes_of(segment_tokens_) +
         int64_t{segment_tokens_} * static_cast<int64_t>(sizeof(TokenId));
}

int64_t OwnAnswers::held_bytes() const {
  return static_cast<int64_t>(segments_.size()) * SuffixAutomaton::bytes_of(segment_tokens_) +
         static_cast<int64_t>(n_waiting_ * sizeof(TokenId));
}

int32_t OwnAnswers::n_segments_of(std::string_view scope) const {
  const auto it = tenants_.find(std::string(scope));
  return it == tenants_.end() ? 0 : static_cast<int32_t>(it->second.segments.size());
}

void OwnAnswers::add(std::string_view scope, std::span<const TokenId> prompt, std::span<const TokenId> answer) {
  const size_t most = static_cast<size_t>(segment_tokens_) - 1;  // one place is for the answer's end
  const std::span<const TokenId> before = prompt.last(std::min<size_t>(prompt.size(), kOfPrompt));
  const std::span<const TokenId> kept = answer.first(std::min(answer.size(), most - before.size()));
  const size_t n = before.size() + kept.size();
  if (kept.empty() || n_waiting_ + n > static_cast<size_t>(segment_tokens_)) return;
  Waiting waiting{.scope = std::string(scope)};
  waiting.tokens.reserve(n);
  waiting.tokens.assign(before.begin(), before.end());
  waiting.tokens.insert(waiting.tokens.end(), kept.begin(), kept.end());
  waiting_.push_back(std::move(waiting));
  n_waiting_ += n;
}

void OwnAnswers::begin_step() {
  int32_t n_readable = kReadEachStep;
  while (!waiting_.empty() && n_readable > 0) {
    bool has_ended = true;
    try {
      has_ended = read(waiting_.front(), n_readable);
    } catch (const std::bad_alloc&) {  // the answer is dropped
    }
    if (!has_ended) return;
    n_waiting_ -= waiting_.front().tokens.size();
    waiting_.pop_front();
  }
}

// Returns whether the answer has been read completely.
bool OwnAnswers::read(Waiting& waiting, int32_t& n_readable) {
  if (waiting.segment < 0) {
    waiting.segment = segment_for(waiting.scope, waiting.tokens.size() + 1);
    waiting.generation = segments_[static_cast<size_t>(waiting.segment)].generation;
    tenants_.at(waiting.scope).last_use = ++use_;
  }
  const Segment& segment = segments_[static_cast<size_t>(waiting.segment)];
  if (segment.generation != waiting.generation) return true;  // now another tenant's
  for (; n_readable > 0 && waiting.n_read < waiting.tokens.size(); --n_readable)
    segment.automaton->add(waiting.tokens[waiting.n_read++]);
  if (waiting.n_read < waiting.tokens.size()) return false;
  segment.automaton->add(TextStore::kTextEnd);
  return true;
}

// Returns the tenant's newest segment, or a new one if that is full. If it throws, at most a store has become smaller.
int32_t OwnAnswers::segment_for(const std::string& scope, size_t n_tokens) {
  if (const auto it = tenants_.find(scope); it != tenants_.end()) {
    const int32_t newest = it->second.segments.back();
    const size_t n_there = segments_[static_cast<size_t>(newest)].automaton->tokens().size();
    if (n_there + n_tokens <= static_cast<size_t>(segment_tokens_)) return newest;
    if (it->second.segments.size() == kMaxOfTenant) drop_oldest(it);
  }
  if (unused_.empty()) free_one(scope);
  Tenant& tenant = tenants_[scope];
  tenant.segments.push_back(unused_.back());
  unused_.pop_back();
  return tenant.segments.back();
}

// Creates a segment, or takes one from the least recently used tenant, `scope` last of all.
void OwnAnswers::free_one(const std::string& scope) {
  if (segments_.size() >= max_segments_) {
    return drop_oldest(std::ranges::min_element(
        tenants_, {}, [&](const auto& tenant) { return tenant.first == scope ? use_ + 1 : tenant.second.last_use; }));
  }
  unused_.reserve(segments_.size() + 1);
  segments_.push_back({.automaton = std::make_unique<SuffixAutomaton>(segment_tokens_)});
  unused_.push_back(static_cast<int32_t>(segments_.size()) - 1);
}

void OwnAnswers::drop_oldest(Tenants::iterator tenant) {
  auto& segments = tenant->second.segments;
  Segment& oldest = segments_[static_cast<size_t>(segments.front())];
  oldest.automaton->clear();
  ++oldest.generation;
  unused_.push_back(segments.front());
  segments.erase(segments.begin());
  if (segments.empty()) tenants_.erase(tenant);
}

void OwnAnswers::draft(std::string_view scope, std::span<const TokenId> end, int64_t sequence_len, int32_t max_tokens,
                       Reader& reader, StoreDraft& out) {
  out.clear();
  if (tenants_.empty()) return;
  const auto it = tenants_.find(std::string(scope));
  if (it == tenants_.end()) return;
  it->second.last_use = ++use_;
  const auto& own = it->second.segments;
  const SuffixAutomaton* best = nullptr;
  SuffixAutomaton::Cursor longest;
  for (size_t i = own.size(); i-- > 0;) {
    const Segment& segment = segments_[static_cast<size_t>(own[i])];
    const auto is_here = [&](const Reader::Place& p) {
      return p.segment == own[i] && p.generation == segment.generation;
    };
    auto place = std::ranges::find_if(reader.places, is_here);
    if (place == reader.places.end()) {
      // Reuse a place whose segment the tenant no longer has; there is one, since a tenant has at most as many segments
      // as there are places.
      place = std::ranges::find_if(reader.places, [&](const Reader::Place& p) {
        const bool is_of_own = p.segment >= 0 && std::ranges::find(own, p.segment) != own.end();
        return !is_of_own || segments_[static_cast<size_t>(p.segment)].generation != p.generation;
      });
      *place = {.segment = own[i], .generation = segment.generation};
    }
    auto n_new = static_cast<size_t>(sequence_len - place->n_read);
    if (n_new > end.size() || place->n_there != segment.automaton->tokens().size())
      place->cursor = {}, n_new = end.size();
    for (const TokenId token : end.last(n_new)) segment.automaton->follow(token, place->cursor);
    place->n_read = sequence_len;
    place->n_there = segment.automaton->tokens().size();
    if (place->cursor.len > longest.len) longest = place->cursor, best = segment.automaton.get();
  }
  if (best == nullptr) return;
  const std::span<const TokenId> all = best->tokens();
  for (auto at = static_cast<size_t>(best->end_of(longest)); at < all.size() && all[at] != TextStore::kTextEnd; ++at) {
    if (static_cast<int32_t>(out.tokens.size()) == max_tokens) break;
    out.tokens.push_back(all[at]);
    out.share.push_back(1);
  }
  if (!out.tokens.empty()) out.match_len = longest.len;
}

}  // namespace ibid
