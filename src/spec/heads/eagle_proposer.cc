#include "spec/heads/eagle_proposer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "spec/sequence_places.h"

namespace ibid {
namespace {

constexpr float kEaglePriorRate = 0.6F;  // expected acceptance rate before any observation
constexpr int32_t kWholeContexts = 2;

}  // namespace

EagleSizes EagleProposer::sizes(int32_t n_sequences, int32_t context_len, int32_t step_tokens) {
  EagleSizes out = {.n_sequences = n_sequences,
                    .n_rows = n_sequences * kWidth,
                    .n_tokens = n_sequences * kMostWaiting,
                    .n_kept = n_sequences * kMostWaiting};
  out.context_len = context_len;
  out.step_tokens = step_tokens;
  out.n_blocks = (context_len + out.block_len - 1) / out.block_len * std::min(n_sequences, kWholeContexts);
  return out;
}

EagleProposer::EagleProposer(std::unique_ptr<EagleHead> head, Stream& stream, const EagleOptions& options,
                             const Clock& clock)
    : head_(std::move(head)),
      stream_(stream),
      clock_(clock),
      cache_({.n_blocks = head_->sizes().n_blocks, .block_len = head_->sizes().block_len, .prefix_cache = false}),
      most_running_(options.most_running),
      drafting_({.vocab_size = options.vocab_size,
                 .ids = head_->ids(),
                 .context_len = head_->sizes().context_len,
                 .end_of_generation = options.end_of_generation,
                 .always = options.always,
                 .prior_rate = kEaglePriorRate}),
      trees_(drafting_, {.branches = options.branches, .width = options.branches > 1 ? kWidth : 1}),
      seqs_(static_cast<size_t>(head_->sizes().n_sequences)),
      arrays_(head_->sizes().block_len,
              {.n_tokens = static_cast<size_t>(head_->sizes().n_tokens),
               .n_sequences = seqs_.size(),
               .n_rows = static_cast<size_t>(head_->sizes().most_rows()),
               .n_blocks = seqs_.size() * static_cast<size_t>(cache_.n_blocks_for(head_->sizes().context_len)),
               .n_path_slots = static_cast<size_t>(head_->sizes().most_rows()) * kMaxDrafts}) {
  for (Seq& seq : seqs_) {
    seq.waiting.resize(kMostWaiting);
    seq.written.reserve(static_cast<size_t>(head_->sizes().context_len));
    seq.kept = static_cast<int32_t>(&seq - seqs_.data()) * kMostWaiting;
  }
  tap_rows_.reserve(kMostWaiting), kept_rows_.reserve(kMostWaiting);
  pass_rows_.reserve(static_cast<size_t>(head_->sizes().n_tokens));
  CHECK(head_->sizes().n_kept >= head_->sizes().n_sequences * kMostWaiting, "an EAGLE head without rows to keep");
  CHECK(options.branches == 1 || head_->sizes().most_rows() >= head_->sizes().n_sequences * kWidth,
        "an EAGLE head without the rows for trees");
  lanes_.reserve(seqs_.size());
  measure();
}

// Measures a pass in advance: the first pass pages weights in, and a cost learned from that would prevent all further
// passes.
void EagleProposer::measure() {
  Seq seq;
  seq.waiting.resize(kMostWaiting);
  for (int32_t i = -2; i < 4; ++i) {
    seq.n_waiting = i % 2 == 0 ? 1 : std::min(kMostWaiting, head_->sizes().context_len);
    if (!reserve(seq, seq.n_waiting)) break;
    const double begin = clock_.now();
    clear_pass();
    add_pairs(seq, true);
    compute();
    if (i >= 0) drafting_.passed(seq.n_waiting, clock_.now() - begin);
    seq.n_written = 0;
  }
  cache_.release(seq.blocks);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void EagleProposer::drop(Seq& seq) {
  forget_read(seq);
  seq.tokens.clear(), seq.tree.clear();
  seq.sequence = -1;
  seq.sequence_len = 0;
}

void EagleProposer::forget_read(Seq& seq) {
  cache_.release(seq.blocks);
  seq.first = seq.n_read = seq.n_waiting = seq.n_written = 0;
  seq.keeps_last = false;
  seq.written.clear();
}

void EagleProposer::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) drop(seq);
  }
}

// Rows may repeat for a sequence that was preempted; repeated rows are equal.
void EagleProposer::read(const ReadTokens& computed) {
  if (computed.n_running > most_running_ && !computed.is_pinned) {
    forget(computed.sequence);
    return;
  }
  Seq* seq = place_of(seqs_, computed.sequence);
  if (seq == nullptr) return;
  seq->sequence = computed.sequence;
  try {
    for (size_t i = 0; i < computed.rows.size(); ++i) {
      const int32_t position = computed.first + static_cast<int32_t>(i);
      if (static_cast<size_t>(position) + 1 >= computed.tokens.size()) break;
      if (position < seq->end()) continue;
      if (position > seq->end() || seq->n_waiting == kMostWaiting) keep_added();
      if (position > seq->end() || (seq->n_waiting == kMostWaiting && !read_waiting(*seq))) forget_read(*seq);
      if (seq->n_read + seq->n_waiting == 0) seq->first = position;
      const size_t second = static_cast<size_t>(position) + 1;
      add_waiting(*seq, computed.tokens[second], computed.rows[i]);
    }
    keep_added();
  } catch (const std::bad_alloc&) {
    drop(*seq);
  }
}

void EagleProposer::add_waiting(Seq& seq, TokenId token, int32_t tap_row) {
  seq.keeps_last = false;
  seq.waiting[static_cast<size_t>(seq.n_waiting)] = token;
  tap_rows_.push_back(tap_row), kept_rows_.push_back(seq.kept + seq.n_waiting++);
}

// Keeps the features of the pairs added since the last call.
void EagleProposer::keep_added() {
  head_->keep_features(tap_rows_, kept_rows_);
  tap_rows_.clear(), kept_rows_.clear();
}

// Returns false if there is no room for their keys and values.
bool EagleProposer::read_waiting(Seq& seq) {
  seq.n_written = seq.n_read;
  if (!reserve(seq, seq.n_waiting)) return false;
  clear_pass();
  add_pairs(seq, false);
  compute();
  n_read_ += seq.n_waiting;
  seq.n_read += seq.n_waiting;
  seq.n_waiting = 0;
  return true;
}

// Checks: the state covers all tokens that the target has computed since the head's first pair, and no draft.
void EagleProposer::self_check(const HeldSequence& held) const {
  const Seq* seq = held_place(seqs_, held.sequence);
  if (seq == nullptr || seq->n_read + seq->n_waiting == 0) return;
  const auto n = static_cast<int32_t>(held.tokens.size());
  CHECK(seq->end() >= held.n_computed && seq->end() < n, "an EAGLE head has read other tokens than the sequence's");
  const auto is_second = [&](int32_t pair, TokenId token) {
    return held.tokens[static_cast<size_t>(seq->first + pair) + 1] == token;
  };
  for (int32_t i = 0; i < seq->n_read; ++i)
    CHECK(is_second(i, seq->written[static_cast<size_t>(i)]), "an EAGLE head has keys of another token");
  for (int32_t i = 0; i < seq->n_waiting; ++i)
    CHECK(is_second(seq->n_read + i, seq->waiting[static_cast<size_t>(i)]), "an EAGLE head is to read another token");
  CHECK(static_cast<int32_t>(seq->blocks.size()) >= cache_.n_blocks_for(seq->n_written));
}

// ---- drafting ------------------------------------------------------------------------------------------------------

void EagleProposer::propose(const ProposalInput& input, Drafts& drafts) {
  const Proposal one{input, &drafts};
  propose_all({&one, 1});
}

void EagleProposer::propose_all(std::span<const Proposal> proposals) {
  trees_.propose_all(
      proposals, lanes_, [&] { list_lanes(proposals); },
      [&](int32_t i) {
        i == 0 ? first_pass() : next_pass();
        return !lanes_.empty();
      },
      [&] {
        for (Seq& seq : seqs_) drop(seq);
      });
}

// Whether the pair at the sequence's end is available to draft from. A pair that was read before is read again.
bool EagleProposer::has_end(Seq& seq, int32_t n_tokens) const {
  if (seq.end() != n_tokens - 1) return false;
  if (seq.n_waiting == 0 && seq.keeps_last) --seq.n_read, ++seq.n_waiting;
  return seq.n_waiting > 0;
}

void EagleProposer::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  for (const Proposal& p : proposals) {
    Seq* seq = place_of(seqs_, p.input.sequence);
    const auto n = static_cast<int32_t>(p.input.prompt.size() + p.input.answer.size());
    if (p.input.sampler == nullptr || seq == nullptr || seq->sequence != p.input.sequence) continue;
    if (!has_end(*seq, n)) continue;
    seq->n_written = seq->n_read;
    cache_.truncate(seq->blocks, seq->n_written);
    if (seq->sequence_len == 0) drafting_.begin_sequence(*seq, p.input), trees_.begin_sequence(*seq);
    trees_.observe(*seq, p.input);
    drafting_.follow(*seq, p.input);
    if (drafting_.may_draft(*seq, p))
      lanes_.push_back({.seq = seq, .proposal = &p, .is_pinned = drafting_.is_pinned(p.input)});
  }
}

// ---- passes --------------------------------------------------------------------------------------------------------

void EagleProposer::clear_pass() {
  arrays_.clear();
  pass_rows_.clear();
}

bool EagleProposer::reserve(Seq& seq, int32_t n) {
  return cache_.reserve(seq.blocks, seq.n_written, seq.n_written + n, copies_);
}

void EagleProposer::note_written(Seq& seq, int32_t slot, TokenId token) {
  seq.written.resize(std::max(seq.written.size(), static_cast<size_t>(slot) + 1));
  seq.written[static_cast<size_t>(slot)] = token;
}

// Adds all waiting pairs of a sequence, in its slots from n_written on: features of the target, which fuse() turns into
// states. Requests the last pair's row if is_wanted.
void EagleProposer::add_pairs(Seq& seq, bool is_wanted) {
  for (int32_t i = 0; i < seq.n_waiting; ++i) {
    pass_rows_.push_back(seq.kept + i);
    note_written(seq, seq.n_written + i, seq.waiting[static_cast<size_t>(i)]);
  }
  arrays_.add_run(std::span(seq.waiting).first(static_cast<size_t>(seq.n_waiting)), seq.n_written, seq.blocks);
  seq.n_written += seq.n_waiting;
  if (is_wanted) arrays_.want_last();
  end_sequence(seq);
}

// The first pass: the waiting pairs of each sequence, and its first drafts.
void EagleProposer::first_pass() {
  const double begin = clock_.now();
  clear_pass();
  std::erase_if(lanes_, [this](const DraftLane& lane) {
    Seq& seq = seq_of(lane);
    if (reserve(seq, seq.n_waiting)) return false;
    forget_read(seq);
    return true;
  });
  if (lanes_.empty()) return;
  for (const DraftLane& lane : lanes_) add_pairs(seq_of(lane), true);
  compute();
  for (const DraftLane& lane : lanes_) {
    Seq& seq = seq_of(lane);
    const int32_t last = seq.n_waiting - 1;
    head_->move_kept(seq.kept + last, seq.kept);
    seq.waiting[0] = seq.waiting[static_cast<size_t>(last)];
    seq.n_read += std::exchange(seq.n_waiting, 0);
    seq.keeps_last = true;
  }
  draw(begin);
}

// Lanes of a sequence are adjacent. If there are not enough blocks for all of them, the sequence gets none.
void EagleProposer::drop_without_room() {
  for (size_t i = 0, n = 0; i < lanes_.size(); i += n) {
    Seq& seq = seq_of(lanes_[i]);
    for (n = 0; i + n < lanes_.size() && lanes_[i + n].seq == &seq;) ++n;
    const bool fits = seq.n_written + static_cast<int32_t>(n) <= head_->sizes().context_len;
    if (fits && reserve(seq, static_cast<int32_t>(n))) continue;
    std::erase_if(lanes_, [&seq](const DraftLane& lane) { return lane.seq == &seq; });
    n = 0;
  }
}

// Adds the draft in the sequence's next slot, with the head's own state of the row of the last pass that it was drawn
// from. Its position is that of its depth; it needs a path unless slots and
// positions coincide, as in a chain.
void EagleProposer::add_node(Seq& seq, DraftNode& node, bool is_alone) {
  pass_rows_.push_back(node.row);
  node.slot = seq.n_written++;
  note_written(seq, node.slot, node.token);
  path_.assign(1, node.slot);
  for (int32_t i = node.parent; i >= 0; i = seq.tree.nodes[static_cast<size_t>(i)].parent)
    path_.push_back(seq.tree.nodes[static_cast<size_t>(i)].slot);
  std::ranges::reverse(path_);
  const bool is_plain = is_alone && path_.back() - path_.front() + 1 == node.depth && path_.front() == seq.n_read;
  const int32_t position = seq.n_read + node.depth - 1;
  const auto slot_of = [&](int32_t i) { return slot_in(seq.blocks, arrays_.block_len(), i); };
  if (!is_plain) std::ranges::transform(path_, arrays_.add_path(static_cast<int32_t>(path_.size())).begin(), slot_of);
  arrays_.add(node.token, position, slot_of(node.slot));
  arrays_.want_last();
}

// Computes the drafts that are expanded.
void EagleProposer::next_pass() {
  const double begin = clock_.now();
  clear_pass();
  drop_without_room();
  if (lanes_.empty()) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Seq& seq = seq_of(lanes_[i]);
    const bool is_first = i == 0 || lanes_[i - 1].seq != &seq;
    const bool is_last = i + 1 == lanes_.size() || lanes_[i + 1].seq != &seq;
    add_node(seq, seq.tree.nodes[static_cast<size_t>(lanes_[i].node)], is_first && is_last);
    if (is_last) end_sequence(seq);
  }
  head_->load_states(pass_rows_);
  result_ = head_->run(arrays_.batch());
  draw(begin);
}

void EagleProposer::draw(double begin) {
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].row = static_cast<int32_t>(i);
  drafting_.draw(lanes_, result_.logits, result_.logits.size() / lanes_.size(), stream_.host());
  drafting_.passed(arrays_.n_tokens(), clock_.now() - begin);
  ++n_passes_;
}

// Ends a sequence's part of the batch, with the blocks of its written slots.
void EagleProposer::end_sequence(const Seq& seq) {
  arrays_.add_blocks(std::span(seq.blocks).first(static_cast<size_t>(cache_.n_blocks_for(seq.n_written))));
  arrays_.end_sequence();
}

// Runs the added pairs.
void EagleProposer::compute() {
  head_->load_features(pass_rows_);
  head_->fuse(arrays_.n_tokens());
  result_ = head_->run(arrays_.batch());
}

}  // namespace ibid
