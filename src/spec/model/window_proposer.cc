#include "spec/model/window_proposer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/check.h"
#include "spec/sequence_places.h"

namespace ibid {
namespace {

// Maximum blocks of a view: both parts are rounded to blocks, followed by drafts.
size_t blocks_of_view(const WindowOptions& options, int32_t block_len) {
  const auto n_tokens = static_cast<size_t>(options.n_sink) + static_cast<size_t>(options.n_window) + kMaxDrafts;
  return n_tokens / static_cast<size_t>(block_len) + 4;
}

}  // namespace

Status WindowProposer::check(const ModelFacts& facts, const WindowOptions& options) {
  if (facts.encoder) return unsupported("A model that makes no text drafts none.", "spec");
  if (facts.state_bytes > 0) {
    return unsupported(
        "This model has recurrent layers, whose state follows from all tokens of a sequence: a view of "
        "some of them drafts nothing.",
        "spec");
  }
  if (facts.window > 0) {
    return unsupported("No layer of this model reads further back than " + std::to_string(facts.window) +
                           " tokens, so a view of a sequence saves nothing.",
                       "spec");
  }
  if (int64_t{options.n_sink} + options.n_window >= facts.context_len) {
    return invalid("A view of " + std::to_string(options.n_sink) + " and " + std::to_string(options.n_window) +
                       " tokens is all of a context of " + std::to_string(facts.context_len) +
                       ", and its drafts would cost as much as what they draft.",
                   "spec");
  }
  return {};
}

Result<std::unique_ptr<WindowProposer>> WindowProposer::create(const TargetSeat& seat, const WindowOptions& options,
                                                               const Clock& clock) {
  TRY(check(seat.facts(), options));
  return std::unique_ptr<WindowProposer>(new WindowProposer(seat, options, clock));
}

WindowProposer::WindowProposer(const TargetSeat& seat, const WindowOptions& options, const Clock& clock)
    : seat_(seat),
      options_(options),
      clock_(clock),
      drafting_({.vocab_size = seat.facts().vocab_size,
                 .context_len = seat.facts().context_len,
                 .end_of_generation = options.end_of_generation,
                 .always = options.always}),
      seqs_(static_cast<size_t>(std::min(options.max_sequences, seat.max_sequences()))),
      arrays_(seat.block_len(), {.n_tokens = static_cast<size_t>(seat.max_rows()),
                                 .n_sequences = seqs_.size(),
                                 .n_rows = std::max(seqs_.size(), static_cast<size_t>(seat.max_rows())),
                                 .n_blocks = seqs_.size() * blocks_of_view(options, seat.block_len())}) {
  lanes_.reserve(seqs_.size());
  loans_.reserve(seqs_.size());
  read_.reserve(kMaxDrafts);
  for (Seq& seq : seqs_) seq.ahead.reserve(kMaxDrafts);
}

void WindowProposer::propose(const ProposalInput& input, Drafts& drafts) {
  const Proposal one{input, &drafts};
  propose_all({&one, 1});
}

void WindowProposer::propose_all(std::span<const Proposal> proposals) {
  drafting_.propose_all(
      proposals, lanes_, [&] { list_lanes(proposals); }, [&](int32_t) { return pass(); },
      [&] {
        for (Seq& seq : seqs_) drop(seq);
      });
  end_loans();
}

void WindowProposer::drop(Seq& seq) {
  seq.tokens.clear(), seq.sureness.clear();
  seq.sequence = -1;
  seq.sequence_len = 0;
}

void WindowProposer::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) drop(seq);
  }
}

void WindowProposer::self_check(const HeldSequence&) const {
  CHECK(loans_.empty(), "blocks are lent to drafts between two steps");
}

// Returned in reverse order, so that the pool's order is restored.
void WindowProposer::end_loans() {
  for (; !loans_.empty(); loans_.pop_back()) seat_.take_back(loans_.back());
}

int32_t WindowProposer::view(int32_t n_tokens, std::span<BlockPart, 2> parts) const {
  const int32_t len = seat_.block_len();
  const int32_t n_blocks = (n_tokens + len - 1) / len, n_sink = (options_.n_sink + len - 1) / len;
  int32_t first = std::max(0, n_tokens - options_.n_window) / len;
  if (first <= n_sink) {
    parts[0] = {0, n_blocks};
    return 1;
  }
  parts[0] = {0, n_sink};
  parts[1] = {first, n_blocks};
  return 2;
}

// ---- drafting ------------------------------------------------------------------------------------------------------

void WindowProposer::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  std::array<BlockPart, 2> parts;
  for (const Proposal& p : proposals) {
    const ProposalInput& input = p.input;
    const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
    const bool is_whole = view(n, parts) == 1 && !options_.always;
    if (input.sampler == nullptr || input.blocks == nullptr || n > seat_.facts().context_len) continue;
    if (is_whole && !pins_drafts(input.verifier)) continue;
    Seq* seq = place_of(seqs_, input.sequence);
    if (seq == nullptr) continue;
    if (seq->sequence != input.sequence) drafting_.begin_sequence(*seq, input);
    drafting_.follow(*seq, input);
    if (!drafting_.may_draft(*seq, p)) continue;
    // A draft's row is computed from the token before it, so the last draft is not computed.
    seq->loan = seat_.lend(*input.blocks, n - 1, input.max_drafts);
    loans_.push_back(seq->loan);
    // Nor are drafts after the last row that is needed.
    const int32_t n_ahead = std::min(input.max_drafts - 1, seq->loan.end - n);
    p.drafts->first_way(static_cast<size_t>(std::max(0, n_ahead)), seq->ahead);
    lanes_.push_back({.seq = seq, .proposal = &p, .n_tokens = 1, .is_pinned = drafting_.is_pinned(input)});
  }
}

// ---- passes --------------------------------------------------------------------------------------------------------

// Adds tokens from `position` on; returns the first one's row.
int32_t WindowProposer::add(const BlockTable& blocks, int32_t sequence_len, int32_t position,
                            std::span<const TokenId> tokens) {
  std::array<BlockPart, 2> parts;
  const int32_t n_parts = view(sequence_len, parts);
  // It starts where the sequence's does, whatever was drafted, and ends with the token.
  const int32_t len = seat_.block_len(), end = position + static_cast<int32_t>(tokens.size());
  parts[static_cast<size_t>(n_parts) - 1].end = (end - 1) / len + 1;
  int32_t n_left_out = 0, next = 0;
  for (const BlockPart& part : std::span(parts).first(static_cast<size_t>(n_parts))) {
    n_left_out += part.first - std::exchange(next, part.end);
    arrays_.add_blocks(std::span(blocks.begin() + part.first, blocks.begin() + part.end));
  }
  const int32_t first_row = arrays_.n_rows();
  for (const TokenId token : tokens) {
    const int32_t place = position - n_left_out * len;
    arrays_.add_viewed(token, position, place, slot_in(blocks, len, position));
    arrays_.want_last();
    ++position;
  }
  arrays_.end_sequence();
  return first_row;
}

// Computes the last token of each sequence with its drafts, and the drafts of earlier proposers after it. Returns the
// number of tokens.
int32_t WindowProposer::compute() {
  arrays_.clear();
  int32_t n_more = seat_.max_rows() - static_cast<int32_t>(lanes_.size());
  for (DraftLane& lane : lanes_) {
    Seq& seq = seq_of(lane);
    read_.assign(1, seq.tokens.back());
    for (size_t i = static_cast<size_t>(lane.n_drafts); i < seq.ahead.size() && n_more > 0; ++i, --n_more)
      read_.push_back(seq.ahead[i]);
    const auto n = static_cast<int32_t>(seq.tokens.size());
    const int32_t position = std::max(0, n - 1);
    lane.row = add(*lane.proposal->input.blocks, seq.sequence_len, position, read_);
    seq.end_row = lane.row + static_cast<int32_t>(read_.size());
  }
  logits_ = seat_.run(arrays_.batch());
  ++n_passes_;
  return arrays_.n_tokens();
}

// Samples after the last token of each sequence with its drafts. Returns false if no lane has room.
bool WindowProposer::pass() {
  std::erase_if(lanes_, [](const DraftLane& lane) {
    return static_cast<int32_t>(lane.seq->tokens.size()) > seq_of(lane).loan.end;
  });
  if (lanes_.empty()) return false;
  const double begin = clock_.now();
  int32_t n_computed = 0;
  if (std::ranges::all_of(lanes_, &DraftLane::is_ready)) {
    for (DraftLane& lane : lanes_) ++lane.row, ++n_spared_;
  } else {
    n_computed = compute();
  }
  drafting_.draw(lanes_, logits_, static_cast<size_t>(seat_.facts().vocab_size), seat_.team());
  for (DraftLane& lane : lanes_) {
    std::vector<TokenId>& ahead = seq_of(lane).ahead;
    const auto i = static_cast<size_t>(lane.n_drafts);
    const bool is_given = !lane.drawn.empty() && i < ahead.size() && lane.drawn.front().token == ahead[i];
    if (!is_given) ahead.clear();
    lane.is_ready = !ahead.empty() && lane.row + 1 < seq_of(lane).end_row;
  }
  drafting_.passed(n_computed, clock_.now() - begin);
  return true;
}

// Measured in advance: without a known cost, all sequences would draft. Passes over one sequence and over a few, which
// here use the same blocks.
void WindowProposer::measure() {
  const int32_t most = std::min(4, static_cast<int32_t>(seqs_.size()));
  const int32_t n = std::min(seat_.facts().context_len, options_.n_sink + options_.n_window + 2 * seat_.block_len());
  BlockTable blocks;
  const TargetSeat::Loan loan = seat_.lend(blocks, 0, n);
  for (int32_t i = -2; i < 4 && loan.end == n; ++i) {
    const int32_t n_sequences = i % 2 == 0 ? 1 : most;
    const double begin = clock_.now();
    arrays_.clear();
    for (int32_t j = 0; j < n_sequences; ++j) add(blocks, n, n - 1 - j, std::array{TokenId{0}});
    seat_.run(arrays_.batch());
    if (i >= 0) drafting_.passed(n_sequences, clock_.now() - begin);
  }
  seat_.take_back(loan);
}

}  // namespace ibid
