#include "spec/experimental/store_proposer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "spec/sequence_places.h"

namespace ibid {
namespace {

// Drafts from other texts are weighted lower than drafts from the sequence itself, until they prove themselves.
// According to the replays of docs/measurements/speculation.md, from 0.45 to 0.65 one more draft is right about as
// often as needed to pay off.
constexpr float kTrust = 0.6F;

// The sequence's last tokens.
std::span<const TokenId> end_of(const ProposalInput& input, std::array<TokenId, TextStore::kMaxMatch>& end) {
  const size_t n_answer = input.answer.size(), sequence_len = input.prompt.size() + n_answer;
  const size_t n = std::min(sequence_len, end.size());
  for (size_t i = 0; i < n; ++i) {
    const size_t back = n - i;
    end[i] = back <= n_answer ? input.answer[n_answer - back] : input.prompt[sequence_len - back];
  }
  return {end.data(), n};
}

}  // namespace

StoreProposer::StoreProposer(std::shared_ptr<const TextStore> store, std::unique_ptr<OwnAnswers> own,
                             StoreProposerOptions options)
    : store_(std::move(store)), own_(std::move(own)), options_(std::move(options)) {
  seqs_.resize(static_cast<size_t>(options_.max_sequences));
  likely_.reserve(kMaxDrafts);
  for (Seq& seq : seqs_) {
    for (Source* source : {&seq.of_store, &seq.of_own}) {
      source->draft.tokens.reserve(kMaxDrafts);
      source->draft.share.reserve(kMaxDrafts);
    }
  }
}

void StoreProposer::begin_step(const StepPrices&) {
  if (own_ != nullptr) own_->begin_step();
}

void StoreProposer::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) seq.sequence = -1;
  }
}

// Returns null if all entries are taken.
StoreProposer::Seq* StoreProposer::seq_of(const ProposalInput& input) {
  Seq* unused = place_of(seqs_, input.sequence);
  if (unused == nullptr || unused->sequence == input.sequence) return unused;
  unused->sequence = input.sequence;
  unused->reader = {};
  unused->of_store.acceptance = Acceptance(input.temperature, kTrust);
  unused->of_own.acceptance = Acceptance(input.temperature, kTrust);
  unused->of_store.draft.clear();
  unused->of_own.draft.clear();
  return unused;
}

// A draft counts like a match of so many tokens: the share of the preceding ones that agree.
int32_t StoreProposer::Source::believed(size_t i) const {
  return std::max(1, static_cast<int32_t>(
                         std::lround(draft.share[i] * static_cast<float>(draft.match_len) + static_cast<float>(i))));
}

// Observes whether the last draft was right, drafted or not.
void StoreProposer::Source::observe(const ProposalInput& input) {
  const auto n_prompt = static_cast<int64_t>(input.prompt.size());
  for (size_t i = 0; i < draft.tokens.size(); ++i) {
    const int64_t at = sequence_len - n_prompt + static_cast<int64_t>(i);  // index in the answer
    if (at < 0 || at >= static_cast<int64_t>(input.answer.size())) return;
    const bool was_right = draft.tokens[i] == input.answer[static_cast<size_t>(at)];
    acceptance.observe(believed(i), was_right);
    if (!was_right) return;
  }
}

void StoreProposer::take_better(const Source& source, const ProposalInput& input, Drafts& drafts) {
  const StoreDraft& draft = source.draft;
  likely_.clear();
  float likely = 1;
  for (size_t i = 0; i < draft.tokens.size() && likely_.size() < static_cast<size_t>(input.max_drafts); ++i) {
    likely *= source.acceptance.of(source.believed(i));
    if (likely < Acceptance::kLeastLikely) break;
    likely_.push_back(likely);
    if (std::ranges::find(options_.end_of_generation, draft.tokens[i]) != options_.end_of_generation.end()) break;
  }
  const auto tokens_of = [](const std::vector<float>& all) { return std::accumulate(all.begin(), all.end(), 0.0F); };
  if (tokens_of(likely_) <= tokens_of(drafts.likely)) return;
  drafts.clear();
  for (size_t i = 0; i < likely_.size(); ++i) drafts.add(draft.tokens[i], static_cast<int32_t>(i) - 1, likely_[i]);
}

void StoreProposer::propose(const ProposalInput& input, Drafts& drafts) {
  const bool is_decided = !drafts.empty() && drafts.likely.front() >= 1;
  Seq* seq = is_decided ? nullptr : seq_of(input);
  if (seq == nullptr) return;
  std::array<TokenId, TextStore::kMaxMatch> of_end;
  const std::span<const TokenId> end = end_of(input, of_end);
  const auto sequence_len = static_cast<int64_t>(input.prompt.size() + input.answer.size());
  const int32_t n = std::min(input.max_drafts, kMaxDrafts);
  const auto look_up = [&](Source& source, auto draft) {
    source.observe(input);
    draft(source.draft);
    source.sequence_len = sequence_len;
    take_better(source, input, drafts);
  };
  if (store_ != nullptr) look_up(seq->of_store, [&](StoreDraft& out) { store_->draft(end, n, out); });
  if (own_ != nullptr)
    look_up(seq->of_own, [&](StoreDraft& out) { own_->draft(input.scope, end, sequence_len, n, seq->reader, out); });
}

// Proposes also for sequences with drafts of earlier proposers.
void StoreProposer::propose_all(std::span<const Proposal> proposals) {
  for (const Proposal& p : proposals) propose(p.input, *p.drafts);
}

}  // namespace ibid
