#include "spec/lookup_proposer.h"

#include <algorithm>

namespace ibid {
namespace {

// A prediction's start is believed like a match of so many tokens: its client knows something.
constexpr int32_t kPredictionLen = 4;
constexpr int32_t kFoundAgain = 2;  // tokens of a match in the prediction, after a difference

int32_t longest_text(int32_t context_len) {
  return std::min(context_len + context_len, LookupProposer::kMaxTokens);  // a prediction too
}

}  // namespace

LookupProposer::LookupProposer(int32_t context_len, int32_t max_texts, std::vector<TokenId> end_of_generation)
    : max_tokens_(longest_text(context_len)), end_of_generation_(std::move(end_of_generation)) {
  texts_.resize(static_cast<size_t>(std::min(max_texts, kMaxTexts)));
}

int64_t LookupProposer::bytes_of(int32_t context_len, int32_t max_texts) {
  return std::min(max_texts, kMaxTexts) * SuffixAutomaton::bytes_of(longest_text(context_len));
}

// Null: all have texts of their own.
LookupProposer::Text* LookupProposer::text_of(int64_t sequence) {
  std::unique_ptr<Text>* unused = nullptr;
  for (auto& text : texts_) {
    if (text && text->sequence == sequence) return text.get();
    if (unused == nullptr && (!text || text->sequence < 0)) unused = &text;
  }
  if (unused == nullptr) return nullptr;
  if (!*unused) *unused = std::make_unique<Text>(max_tokens_);
  return unused->get();
}

void LookupProposer::forget(int64_t sequence) {
  for (auto& text : texts_) {
    if (text && text->sequence == sequence) text->sequence = -1;
  }
}

// After the text's last token.
void LookupProposer::look_up(Text& text, TokenId last, bool is_answer) const {
  const std::span<const TokenId> all = text.automaton.text();
  if (is_answer && text.len > 0) text.acceptance.observe(text.len, all[static_cast<size_t>(text.at)] == last);
  const SuffixAutomaton::Match& match = text.automaton.match();
  const bool goes_on = text.in_prediction && all[static_cast<size_t>(text.at)] == last;
  const bool is_found_again = match.len >= kFoundAgain && match.first_end < text.n_predicted;
  if (is_answer && goes_on && text.at + 1 < text.n_predicted && text.len + 1 >= match.len) {
    ++text.at, ++text.len;
  } else {
    text.in_prediction = is_answer && is_found_again;
    text.at = text.in_prediction ? match.first_end : match.last_end;
    text.len = match.len;
  }
}

// What of prompt and answer it has not yet. False where that is more than this step has time for.
bool LookupProposer::read(const ProposalInput& input, Text& text) {
  const size_t n_prompt = input.prompt.size(), n = n_prompt + input.answer.size();
  const size_t n_kept = kept();
  if (text.automaton.is_full()) {
    text.automaton.clear();
    text.n_predicted = text.len = 0;
    text.in_prediction = false;
    text.n_read = n - std::min(n, n_kept);
  }
  while (text.n_read < n && !text.automaton.is_full() && n_readable_ > 0) {
    const size_t i = text.n_read++;
    const TokenId token = i < n_prompt ? input.prompt[i] : input.answer[i - n_prompt];
    text.automaton.add(token);
    --n_readable_;
    look_up(text, token, i >= n_prompt);
    if (i + 1 == n_prompt && text.n_predicted > 0) text.at = 0, text.len = kPredictionLen, text.in_prediction = true;
  }
  return text.n_read == n;
}

void LookupProposer::propose(const ProposalInput& input, Drafts& drafts) {
  Text* text = text_of(input.sequence);
  if (text == nullptr) return;
  if (text->sequence != input.sequence) {
    text->automaton.clear();
    text->acceptance = Acceptance(input.temperature);
    const size_t n = input.prompt.size() + input.answer.size(), n_kept = kept();
    text->n_predicted =
        static_cast<int32_t>(n > n_kept ? 0 : std::min({input.prediction.size(), n_kept, size_t{kReadEachStep}}));
    for (int32_t i = 0; i < text->n_predicted; ++i) text->automaton.add(input.prediction[static_cast<size_t>(i)]);
    n_readable_ -= text->n_predicted;
    text->n_read = n - std::min(n, n_kept);
    text->len = 0;
    text->in_prediction = false;
    text->sequence = input.sequence;
  }
  if (!read(input, *text) || text->len == 0) return;
  const std::span<const TokenId> all = text->automaton.text();
  const size_t end = text->in_prediction ? static_cast<size_t>(text->n_predicted) : all.size();
  float likely = 1;
  for (int32_t i = 0; i < input.max_drafts; ++i) {
    const size_t at = static_cast<size_t>(text->at + i);
    if (at >= end && text->in_prediction) return;
    likely *= text->acceptance.of(text->len + i);
    if (likely < Acceptance::kLeastLikely) return;
    // After the text's end it repeats itself.
    const TokenId token = at < end ? all[at] : drafts.tokens[at - end];
    drafts.add(token, i - 1, likely);
    const bool is_end = std::ranges::find(end_of_generation_, token) != end_of_generation_.end();
    if (is_end) return;
  }
}

}  // namespace ibid
