#include "spec/experimental/lookahead_proposer.h"

#include <algorithm>

namespace ibid {
namespace {

// Initial confidence: a draft of the window counts like a look-up's match of one token, one of the pool like one of
// two.
constexpr int32_t kOfWindow = 1, kOfPool = 2;

}  // namespace

LookAheadProposer::LookAheadProposer(LookAheadOptions options) : options_(std::move(options)) {
  options_.n_window = std::clamp(options_.n_window, 1, kMostWindow);
  seqs_.resize(static_cast<size_t>(options_.max_sequences));
  for (Seq& seq : seqs_) seq.window.reserve(kMaxDrafts);
}

int64_t LookAheadProposer::bytes_of(int32_t max_sequences) {
  return max_sequences * static_cast<int64_t>(sizeof(Seq) + kMaxDrafts * sizeof(TokenId));
}

// Returns null if all entries are taken.
LookAheadProposer::Seq* LookAheadProposer::seq_of(int64_t sequence) {
  Seq* unused = nullptr;
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) return &seq;
    if (unused == nullptr && seq.sequence < 0) unused = &seq;
  }
  return unused;
}

void LookAheadProposer::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) seq.sequence = -1;
  }
}

void LookAheadProposer::refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) {
  Seq* seq = seq_of(sequence);
  if (seq == nullptr || seq->sequence != sequence) return;
  seq->window.clear();
  seq->n_window_at = n_tokens;
  for (const RefusedDraft& draft : drafts.first(std::min<size_t>(drafts.size(), kMaxDrafts))) {
    seq->window.push_back(draft.following);
    seq->pool.add(draft.token, draft.following);
  }
}

// Before any token was drawn there: the sequence's own last tokens, in order.
TokenId LookAheadProposer::filler(const ProposalInput& input, int32_t i) const {
  const size_t n_prompt = input.prompt.size(), n = n_prompt + input.answer.size();
  const size_t n_back = static_cast<size_t>(options_.n_window - i);
  const size_t at = n > n_back ? n - n_back : 0;
  return at < n_prompt ? input.prompt[at] : input.answer[at - n_prompt];
}

void LookAheadProposer::propose(const ProposalInput& input, Drafts& drafts) {
  Seq* seq = seq_of(input.sequence);
  if (seq == nullptr) return;
  if (seq->sequence != input.sequence) {
    seq->sequence = input.sequence;
    seq->pool.clear();
    seq->window.clear();
    seq->acceptance = Acceptance(input.temperature);
    seq->n_window_at = seq->n_drafted_at = -1;
  }
  const std::span<const TokenId> all = input.answer.empty() ? input.prompt : input.answer;
  if (all.empty()) return;
  const auto n_tokens = static_cast<int32_t>(input.prompt.size() + input.answer.size());
  // Observes whether the last draft was right, verified or not, if it was for the very next token.
  if (seq->n_drafted_at >= 0 && seq->n_drafted_at < n_tokens) {
    const size_t following = static_cast<size_t>(n_tokens - seq->n_drafted_at);
    if (following <= input.answer.size())
      seq->acceptance.observe(seq->kind, input.answer[input.answer.size() - following] == seq->draft);
  }
  if (seq->n_window_at != n_tokens) seq->window.clear();

  const int32_t n = std::min(input.max_drafts, options_.n_window);
  float likely = 1;
  TokenId last = all.back();
  bool in_pool = true;
  for (int32_t i = 0; i < n; ++i) {
    const std::optional<TokenId> known = in_pool ? seq->pool.following(last) : std::nullopt;
    in_pool = known.has_value();
    const size_t at = static_cast<size_t>(i);
    last = known ? *known : at < seq->window.size() ? seq->window[at] : filler(input, i);
    const int32_t kind = known ? kOfPool : kOfWindow;
    if (i == 0) seq->n_drafted_at = n_tokens, seq->draft = last, seq->kind = kind;
    likely *= seq->acceptance.of(kind);
    if (likely < Acceptance::kLeastLikely && !options_.always) return;
    drafts.add(last, i - 1, options_.always ? 1 : likely);
    if (std::ranges::find(options_.end_of_generation, last) != options_.end_of_generation.end()) return;
  }
}

}  // namespace ibid
