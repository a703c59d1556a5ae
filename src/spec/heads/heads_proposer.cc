#include "spec/heads/heads_proposer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "spec/sequence_places.h"

namespace ibid {
namespace {

constexpr float kPriorRate = 0.45F;  // expected acceptance rate: heads are right less often than whole models

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
      seqs_(static_cast<size_t>(options.max_sequences)) {
  lanes_.reserve(static_cast<size_t>(n_rows(options)));
  rows_.reserve(static_cast<size_t>(n_rows(options)));
  measure();
}

// Measures a pass in advance: the first pass pages weights in, and a cost learned from that would prevent all further
// passes.
void HeadsProposer::measure() {
  for (int32_t i = -2; i < 4; ++i) {
    const int32_t n = i % 2 == 0 ? 1 : static_cast<int32_t>(seqs_.size());
    rows_.resize(static_cast<size_t>(n));
    std::iota(rows_.begin(), rows_.end(), 0);
    const double begin = clock_.now();
    heads_->run(0, rows_);
    if (i >= 0) drafting_.passed(n, clock_.now() - begin);
  }
}

// Returns null if all entries are taken.
HeadsProposer::Seq* HeadsProposer::seq_of(int64_t sequence) { return place_of(seqs_, sequence); }

void HeadsProposer::drop(Seq& seq) {
  seq.tokens.clear(), seq.tree.clear();
  seq.sequence = -1;
  seq.sequence_len = seq.n_seen = 0;
}

void HeadsProposer::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) drop(seq);
  }
}

void HeadsProposer::saw(int64_t sequence, int32_t n_tokens, std::span<const float> hidden) {
  Seq* seq = seq_of(sequence);
  if (seq == nullptr) return;
  seq->sequence = sequence;
  seq->n_seen = n_tokens;
  heads_->set_hidden(static_cast<int32_t>(seq - seqs_.data()), hidden);
}

void HeadsProposer::propose(const ProposalInput& input, Drafts& drafts) {
  const Proposal one{input, &drafts};
  propose_all({&one, 1});
}

void HeadsProposer::propose_all(std::span<const Proposal> proposals) {
  trees_.propose_all(
      proposals, lanes_, [&] { list_lanes(proposals); }, [&](int32_t i) { return pass(i); },
      [&] {
        for (Seq& seq : seqs_) drop(seq);
      });
}

// Lists sequences whose last hidden state is known; for a preempted sequence, it arrives again once it is recomputed.
void HeadsProposer::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  for (const Proposal& p : proposals) {
    Seq* seq = seq_of(p.input.sequence);
    const auto n = static_cast<int32_t>(p.input.prompt.size() + p.input.answer.size());
    const bool is_known = seq != nullptr && seq->sequence == p.input.sequence && seq->n_seen == n;
    if (p.input.sampler == nullptr || !is_known) continue;
    if (seq->sequence_len == 0) drafting_.begin_sequence(*seq, p.input), trees_.begin_sequence(*seq);
    trees_.observe(*seq, p.input);
    drafting_.follow(*seq, p.input);
    if (!drafting_.may_draft(*seq, p)) continue;
    lanes_.push_back({.seq = seq, .proposal = &p, .is_pinned = drafting_.is_pinned(p.input)});
    heads_->add_token(row_of(lanes_.back()), 0, last_of(*seq));
  }
}

TokenId HeadsProposer::last_of(const Seq& seq) const { return seq.tokens[static_cast<size_t>(seq.sequence_len - 1)]; }

// Loads the sequence's state and its last token, then the drafts on the path to the lane's place.
void HeadsProposer::load_way(const DraftLane& lane, int32_t row) {
  const Seq& seq = *static_cast<const Seq*>(lane.seq);
  way_.clear();
  for (int32_t i = lane.node; i >= 0; i = seq.tree.nodes[static_cast<size_t>(i)].parent)
    way_.push_back(seq.tree.nodes[static_cast<size_t>(i)].token);
  way_.push_back(last_of(seq));
  std::ranges::reverse(way_);
  heads_->copy_hidden(row_of(lane), row);
  for (size_t i = 0; i < way_.size(); ++i) heads_->add_token(row, static_cast<int32_t>(i), way_[i]);
}

// Returns false after the last head. A sequence's first drafts are drawn from its own row; tree nodes use the rows
// after the sequences'.
bool HeadsProposer::pass(int32_t head) {
  if (head == heads_->n_heads()) return false;
  const double begin = clock_.now();
  rows_.clear();
  for (DraftLane& lane : lanes_) {
    lane.row = static_cast<int32_t>(rows_.size());
    rows_.push_back(head == 0 ? row_of(lane) : static_cast<int32_t>(seqs_.size()) + lane.row);
    if (head > 0) load_way(lane, rows_.back());
  }
  const std::span<const float> logits = heads_->run(head, rows_);
  drafting_.draw(lanes_, logits, logits.size() / rows_.size(), stream_.host());
  drafting_.passed(static_cast<int32_t>(lanes_.size()), clock_.now() - begin);
  ++n_passes_;
  return true;
}

}  // namespace ibid
