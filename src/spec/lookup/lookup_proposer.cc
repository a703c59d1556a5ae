#include "spec/lookup/lookup_proposer.h"

#include <algorithm>

namespace ibid {
namespace {

// A prediction's start counts like a match of so many tokens: the client is expected to know its answer.
constexpr int32_t kPredictionLen = 4;
constexpr int32_t kFoundAgain = 2;  // tokens of a match in the prediction, after a difference

int32_t longest_sequence(int32_t context_len) {
  return std::min(context_len + context_len, LookupProposer::kMaxTokens);  // including a prediction
}

}  // namespace

LookupProposer::LookupProposer(int32_t context_len, int32_t max_sequences, std::vector<TokenId> end_of_generation)
    : max_tokens_(longest_sequence(context_len)), end_of_generation_(std::move(end_of_generation)) {
  seqs_.resize(static_cast<size_t>(std::min(max_sequences, kMaxSequences)));
}

int64_t LookupProposer::bytes_of(int32_t context_len, int32_t max_sequences) {
  return std::min(max_sequences, kMaxSequences) * SuffixAutomaton::bytes_of(longest_sequence(context_len));
}

// Returns null if all entries are taken.
LookupProposer::Seq* LookupProposer::seq_of(int64_t sequence) {
  std::unique_ptr<Seq>* unused = nullptr;
  for (auto& seq : seqs_) {
    if (seq && seq->sequence == sequence) return seq.get();
    if (unused == nullptr && (!seq || seq->sequence < 0)) unused = &seq;
  }
  if (unused == nullptr) return nullptr;
  if (!*unused) *unused = std::make_unique<Seq>(max_tokens_);
  return unused->get();
}

void LookupProposer::forget(int64_t sequence) {
  for (auto& seq : seqs_) {
    if (seq && seq->sequence == sequence) seq->sequence = -1;
  }
}

// Looks up the position after the sequence's last token.
void LookupProposer::look_up(Seq& seq, TokenId last, bool is_answer) const {
  const std::span<const TokenId> all = seq.automaton.tokens();
  if (is_answer && seq.len > 0) seq.acceptance.observe(seq.len, all[static_cast<size_t>(seq.at)] == last);
  const SuffixAutomaton::Match& match = seq.automaton.match();
  const bool goes_on = seq.in_prediction && all[static_cast<size_t>(seq.at)] == last;
  const bool is_found_again = match.len >= kFoundAgain && match.first_end < seq.n_predicted;
  if (is_answer && goes_on && seq.at + 1 < seq.n_predicted && seq.len + 1 >= match.len) {
    ++seq.at, ++seq.len;
  } else {
    seq.in_prediction = is_answer && is_found_again;
    seq.at = seq.in_prediction ? match.first_end : match.last_end;
    seq.len = match.len;
  }
}

// Reads the new tokens of prompt and answer. Returns false if they exceed the budget of this step.
bool LookupProposer::read(const ProposalInput& input, Seq& seq) {
  const size_t n_prompt = input.prompt.size(), n = n_prompt + input.answer.size();
  const size_t n_kept = kept();
  if (seq.automaton.is_full()) {
    seq.automaton.clear();
    seq.n_predicted = seq.len = 0;
    seq.in_prediction = false;
    seq.n_read = n - std::min(n, n_kept);
  }
  while (seq.n_read < n && !seq.automaton.is_full() && n_readable_ > 0) {
    const size_t i = seq.n_read++;
    const TokenId token = i < n_prompt ? input.prompt[i] : input.answer[i - n_prompt];
    seq.automaton.add(token);
    --n_readable_;
    look_up(seq, token, i >= n_prompt);
    if (i + 1 == n_prompt && seq.n_predicted > 0) seq.at = 0, seq.len = kPredictionLen, seq.in_prediction = true;
  }
  return seq.n_read == n;
}

void LookupProposer::propose(const ProposalInput& input, Drafts& drafts) {
  Seq* seq = seq_of(input.sequence);
  if (seq == nullptr) return;
  if (seq->sequence != input.sequence) {
    seq->automaton.clear();
    seq->acceptance = Acceptance(input.temperature);
    const size_t n = input.prompt.size() + input.answer.size(), n_kept = kept();
    seq->n_predicted =
        static_cast<int32_t>(n > n_kept ? 0 : std::min({input.prediction.size(), n_kept, size_t{kReadEachStep}}));
    for (int32_t i = 0; i < seq->n_predicted; ++i) seq->automaton.add(input.prediction[static_cast<size_t>(i)]);
    n_readable_ -= seq->n_predicted;
    seq->n_read = n - std::min(n, n_kept);
    seq->len = 0;
    seq->in_prediction = false;
    seq->sequence = input.sequence;
  }
  if (!read(input, *seq) || seq->len == 0) return;
  const std::span<const TokenId> all = seq->automaton.tokens();
  const size_t end = seq->in_prediction ? static_cast<size_t>(seq->n_predicted) : all.size();
  float likely = 1;
  for (int32_t i = 0; i < input.max_drafts; ++i) {
    const size_t at = static_cast<size_t>(seq->at + i);
    if (at >= end && seq->in_prediction) return;
    likely *= seq->acceptance.of(seq->len + i);
    if (likely < Acceptance::kLeastLikely) return;
    // Past its end the sequence is assumed to repeat.
    const TokenId token = at < end ? all[at] : drafts.tokens[at - end];
    drafts.add(token, i - 1, likely);
    const bool is_end = std::ranges::find(end_of_generation_, token) != end_of_generation_.end();
    if (is_end) return;
  }
}

}  // namespace ibid
