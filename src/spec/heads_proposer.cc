#include "spec/heads_proposer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "spec/text_places.h"

namespace ibid {
namespace {

constexpr float kPriorRate = 0.45F;  // of drafts that are right: heads are right less often than whole models

}  // namespace

HeadsProposer::HeadsProposer(std::unique_ptr<DraftHeads> heads, Stream& stream, const HeadsOptions& options,
                             const Clock& clock)
    : heads_(std::move(heads)),
      stream_(stream),
      clock_(clock),
      drafting_({.vocab_size = options.vocab_size,
                 .ids = heads_->ids(),
                 .context_len = options.context_len,
                 .end_of_generation = options.end_of_generation,
                 .always = options.always,
                 .prior_rate = kPriorRate}),
      trees_(drafting_, {.branches = options.branches,
                         .width = width_of(options),
                         .depth = heads_->n_heads(),
                         .places = options.tree}),
      texts_(static_cast<size_t>(options.max_texts)) {
  lanes_.reserve(static_cast<size_t>(n_rows(options)));
  rows_.reserve(static_cast<size_t>(n_rows(options)));
  measure();
}

// What a pass costs, before anybody asks: the first one brings weights in, and a price that is learned from that keeps
// everybody from the next.
void HeadsProposer::measure() {
  for (int32_t i = -2; i < 4; ++i) {
    const int32_t n = i % 2 == 0 ? 1 : static_cast<int32_t>(texts_.size());
    rows_.resize(static_cast<size_t>(n));
    std::iota(rows_.begin(), rows_.end(), 0);
    const double begin = clock_.now();
    heads_->run(0, rows_);
    if (i >= 0) drafting_.passed(n, clock_.now() - begin);
  }
}

// Null: all places are taken.
HeadsProposer::Text* HeadsProposer::text_of(int64_t sequence) { return place_of(texts_, sequence); }

void HeadsProposer::drop(Text& text) {
  text.tokens.clear(), text.tree.clear();
  text.sequence = -1;
  text.n_text = text.n_seen = 0;
}

void HeadsProposer::forget(int64_t sequence) {
  for (Text& text : texts_) {
    if (text.sequence == sequence) drop(text);
  }
}

void HeadsProposer::saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) {
  Text* text = text_of(sequence);
  if (text == nullptr) return;
  text->sequence = sequence;
  text->n_seen = n_tokens;
  heads_->set_hidden(static_cast<int32_t>(text - texts_.data()), hidden);
}

void HeadsProposer::propose(const ProposalInput& input, Drafts& drafts) {
  const Proposal one{input, &drafts};
  propose_all({&one, 1});
}

void HeadsProposer::propose_all(std::span<const Proposal> proposals) {
  trees_.propose_all(
      proposals, lanes_, [&] { list_lanes(proposals); }, [&](int32_t i) { return pass(i); },
      [&] {
        for (Text& text : texts_) drop(text);
      });
}

// Those whose last row is known: a sequence that was preempted is told again when it has been computed.
void HeadsProposer::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  for (const Proposal& p : proposals) {
    Text* text = text_of(p.input.sequence);
    const auto n = static_cast<int32_t>(p.input.prompt.size() + p.input.answer.size());
    const bool is_known = text != nullptr && text->sequence == p.input.sequence && text->n_seen == n;
    if (p.input.sampler == nullptr || !is_known) continue;
    if (text->n_text == 0) drafting_.begin_text(*text, p.input), trees_.begin_text(*text);
    trees_.observe(*text, p.input);
    drafting_.follow(*text, p.input);
    if (!drafting_.may_draft(*text, p)) continue;
    lanes_.push_back({.text = text, .proposal = &p, .is_pinned = drafting_.is_pinned(p.input)});
    heads_->add_token(row_of(lanes_.back()), 0, last_of(*text));
  }
}

TokenId HeadsProposer::last_of(const Text& text) const { return text.tokens[static_cast<size_t>(text.n_text - 1)]; }

// The sequence's state and its last token, then the drafts on the way to the lane's place.
void HeadsProposer::load_way(const DraftLane& lane, int32_t row) {
  const Text& text = *static_cast<const Text*>(lane.text);
  way_.clear();
  for (int32_t i = lane.node; i >= 0; i = text.tree.nodes[static_cast<size_t>(i)].parent)
    way_.push_back(text.tree.nodes[static_cast<size_t>(i)].token);
  way_.push_back(last_of(text));
  std::ranges::reverse(way_);
  heads_->copy_hidden(row_of(lane), row);
  for (size_t i = 0; i < way_.size(); ++i) heads_->add_token(row, static_cast<int32_t>(i), way_[i]);
}

// False after the last head. A sequence's own row is what its first drafts are drawn from; places have rows after
// sequences'.
bool HeadsProposer::pass(int32_t head) {
  if (head == heads_->n_heads()) return false;
  const double begin = clock_.now();
  rows_.clear();
  for (DraftLane& lane : lanes_) {
    lane.row = static_cast<int32_t>(rows_.size());
    rows_.push_back(head == 0 ? row_of(lane) : static_cast<int32_t>(texts_.size()) + lane.row);
    if (head > 0) load_way(lane, rows_.back());
  }
  const std::span<const float> logits = heads_->run(head, rows_);
  drafting_.draw(lanes_, logits, logits.size() / rows_.size(), stream_.host());
  drafting_.passed(static_cast<int32_t>(lanes_.size()), clock_.now() - begin);
  ++n_passes_;
  return true;
}

}  // namespace ibid
