#include "spec/experimental/lookahead_proposer.h"

#include <algorithm>

namespace ibid {
namespace {

// A draft of the window is believed at first like a look-up's match of one token, one of the pool like one of two.
constexpr int32_t kOfWindow = 1, kOfPool = 2;

}  // namespace

LookAheadProposer::LookAheadProposer(LookAheadOptions options) : options_(std::move(options)) {
  options_.n_window = std::clamp(options_.n_window, 1, kMostWindow);
  texts_.resize(static_cast<size_t>(options_.max_texts));
  for (Text& text : texts_) text.window.reserve(kMaxDrafts);
}

int64_t LookAheadProposer::bytes_of(int32_t max_texts) {
  return max_texts * static_cast<int64_t>(sizeof(Text) + kMaxDrafts * sizeof(TokenId));
}

// Null: all have sequences of their own.
LookAheadProposer::Text* LookAheadProposer::text_of(int64_t sequence) {
  Text* unused = nullptr;
  for (Text& text : texts_) {
    if (text.sequence == sequence) return &text;
    if (unused == nullptr && text.sequence < 0) unused = &text;
  }
  return unused;
}

void LookAheadProposer::forget(int64_t sequence) {
  for (Text& text : texts_) {
    if (text.sequence == sequence) text.sequence = -1;
  }
}

void LookAheadProposer::refused(int64_t sequence, int32_t n_tokens, std::span<const RefusedDraft> drafts) {
  Text* text = text_of(sequence);
  if (text == nullptr || text->sequence != sequence) return;
  text->window.clear();
  text->n_window_at = n_tokens;
  for (const RefusedDraft& draft : drafts.first(std::min<size_t>(drafts.size(), kMaxDrafts))) {
    text->window.push_back(draft.following);
    text->pool.add(draft.token, draft.following);
  }
}

// Where nothing was said yet: the sequence's own last tokens, in their order.
TokenId LookAheadProposer::filler(const ProposalInput& input, int32_t i) const {
  const size_t n_prompt = input.prompt.size(), n = n_prompt + input.answer.size();
  const size_t n_back = static_cast<size_t>(options_.n_window - i);
  const size_t at = n > n_back ? n - n_back : 0;
  return at < n_prompt ? input.prompt[at] : input.answer[at - n_prompt];
}

void LookAheadProposer::propose(const ProposalInput& input, Drafts& drafts) {
  Text* text = text_of(input.sequence);
  if (text == nullptr) return;
  if (text->sequence != input.sequence) {
    text->sequence = input.sequence;
    text->pool.clear();
    text->window.clear();
    text->acceptance = Acceptance(input.temperature);
    text->n_window_at = text->n_drafted_at = -1;
  }
  const std::span<const TokenId> all = input.answer.empty() ? input.prompt : input.answer;
  if (all.empty()) return;
  const auto n_tokens = static_cast<int32_t>(input.prompt.size() + input.answer.size());
  // Whether it was right the last time, verified or not, where that was about the very next token.
  if (text->n_drafted_at >= 0 && text->n_drafted_at < n_tokens) {
    const size_t following = static_cast<size_t>(n_tokens - text->n_drafted_at);
    if (following <= input.answer.size())
      text->acceptance.observe(text->kind, input.answer[input.answer.size() - following] == text->draft);
  }
  if (text->n_window_at != n_tokens) text->window.clear();

  const int32_t n = std::min(input.max_drafts, options_.n_window);
  float likely = 1;
  TokenId last = all.back();
  bool in_pool = true;
  for (int32_t i = 0; i < n; ++i) {
    const std::optional<TokenId> known = in_pool ? text->pool.following(last) : std::nullopt;
    in_pool = known.has_value();
    const size_t at = static_cast<size_t>(i);
    last = known ? *known : at < text->window.size() ? text->window[at] : filler(input, i);
    const int32_t kind = known ? kOfPool : kOfWindow;
    if (i == 0) text->n_drafted_at = n_tokens, text->draft = last, text->kind = kind;
    likely *= text->acceptance.of(kind);
    if (likely < Acceptance::kLeastLikely && !options_.always) return;
    drafts.add(last, i - 1, options_.always ? 1 : likely);
    if (std::ranges::find(options_.end_of_generation, last) != options_.end_of_generation.end()) return;
  }
}

}  // namespace ibid
