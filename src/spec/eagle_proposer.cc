#include "spec/eagle_proposer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "spec/text_places.h"

namespace ibid {
namespace {

constexpr float kEaglePriorRate = 0.6F;  // of drafts that are right, as long as nothing is known
constexpr int32_t kWholeContexts = 2;

}  // namespace

EagleSizes EagleProposer::sizes(int32_t n_texts, int32_t context_len, int32_t step_tokens) {
  EagleSizes out = {.n_texts = n_texts, .n_rows = n_texts * kWidth, .n_tokens = n_texts * kMostWaiting};
  out.context_len = context_len;
  out.step_tokens = step_tokens;
  out.n_blocks = (context_len + out.block_len - 1) / out.block_len * std::min(n_texts, kWholeContexts);
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
      texts_(static_cast<size_t>(head_->sizes().n_texts)),
      arrays_(head_->sizes().block_len,
              {.n_tokens = static_cast<size_t>(head_->sizes().n_tokens),
               .n_sequences = texts_.size(),
               .n_rows = static_cast<size_t>(head_->sizes().most_rows()),
               .n_blocks = texts_.size() * static_cast<size_t>(cache_.n_blocks_for(head_->sizes().context_len)),
               .n_path_slots = static_cast<size_t>(head_->sizes().most_rows()) * kMaxDrafts}) {
  for (Text& text : texts_) {
    text.waiting.resize(kMostWaiting);
    text.written.reserve(static_cast<size_t>(head_->sizes().context_len));
    text.features.resize(static_cast<size_t>(kMostWaiting * head_->feature_len()));
  }
  CHECK(options.branches == 1 || head_->sizes().most_rows() >= head_->sizes().n_texts * kWidth,
        "an EAGLE head without the rows for trees");
  lanes_.reserve(texts_.size());
  measure();
}

// What a pass costs, before anybody asks: the first one brings weights in, and a price that is learned from that keeps
// everybody from the next.
void EagleProposer::measure() {
  Text text;
  text.waiting.resize(kMostWaiting);
  text.features.resize(static_cast<size_t>(kMostWaiting * head_->feature_len()));
  for (int32_t i = -2; i < 4; ++i) {
    text.n_waiting = i % 2 == 0 ? 1 : std::min(kMostWaiting, head_->sizes().context_len);
    if (!reserve(text, text.n_waiting)) break;
    const double begin = clock_.now();
    arrays_.clear();
    add_pairs(text, true);
    compute();
    if (i >= 0) drafting_.passed(text.n_waiting, clock_.now() - begin);
    text.n_written = 0;
  }
  cache_.release(text.blocks);
}

// ---- sequences ------------------------------------------------------------------------------------------------------

void EagleProposer::drop(Text& text) {
  forget_read(text);
  text.tokens.clear(), text.tree.clear();
  text.sequence = -1;
  text.n_text = 0;
}

void EagleProposer::forget_read(Text& text) {
  cache_.release(text.blocks);
  text.first = text.n_read = text.n_waiting = text.n_written = 0;
  text.keeps_last = false;
  text.written.clear();
}

void EagleProposer::forget(int64_t sequence) {
  for (Text& text : texts_) {
    if (text.sequence == sequence) drop(text);
  }
}

// Rows that were told before, of a sequence that was preempted, are the same once more.
void EagleProposer::read(const ReadTokens& told) {
  if (told.n_running > most_running_ && !told.is_pinned) {
    forget(told.sequence);
    return;
  }
  Text* text = place_of(texts_, told.sequence);
  if (text == nullptr) return;
  text->sequence = told.sequence;
  try {
    for (size_t i = 0; i < told.rows.size(); ++i) {
      const int32_t position = told.first + static_cast<int32_t>(i);
      if (static_cast<size_t>(position) + 1 >= told.text.size()) return;
      if (position < text->end()) continue;
      if (position > text->end() || (text->n_waiting == kMostWaiting && !read_waiting(*text))) forget_read(*text);
      if (text->n_read + text->n_waiting == 0) text->first = position;
      const size_t second = static_cast<size_t>(position) + 1;
      add_waiting(*text, told.text[second], told.rows[i]);
    }
  } catch (const std::bad_alloc&) {
    drop(*text);
  }
}

void EagleProposer::add_waiting(Text& text, TokenId token, int32_t tap_row) {
  const auto at = static_cast<size_t>(text.n_waiting++), n = static_cast<size_t>(head_->feature_len());
  text.keeps_last = false;
  text.waiting[at] = token;
  head_->copy_feature(tap_row, std::span(text.features).subspan(at * n, n));
}

// False where there is no room for their keys and values.
bool EagleProposer::read_waiting(Text& text) {
  text.n_written = text.n_read;
  if (!reserve(text, text.n_waiting)) return false;
  arrays_.clear();
  add_pairs(text, false);
  compute();
  n_read_ += text.n_waiting;
  text.n_read += text.n_waiting;
  text.n_waiting = 0;
  return true;
}

// It was told of all that the target has computed of the sequence since it began, and of no draft.
void EagleProposer::self_check(const HeldText& held) const {
  const Text* text = held_place(texts_, held.sequence);
  if (text == nullptr || text->n_read + text->n_waiting == 0) return;
  const auto n = static_cast<int32_t>(held.tokens.size());
  CHECK(text->end() >= held.n_computed && text->end() < n, "an EAGLE head was told of other tokens than the text's");
  const auto is_second = [&](int32_t pair, TokenId token) {
    return held.tokens[static_cast<size_t>(text->first + pair) + 1] == token;
  };
  for (int32_t i = 0; i < text->n_read; ++i)
    CHECK(is_second(i, text->written[static_cast<size_t>(i)]), "an EAGLE head has keys of another token");
  for (int32_t i = 0; i < text->n_waiting; ++i)
    CHECK(is_second(text->n_read + i, text->waiting[static_cast<size_t>(i)]), "an EAGLE head is to read another token");
  CHECK(static_cast<int32_t>(text->blocks.size()) >= cache_.n_blocks_for(text->n_written));
}

// ---- who drafts ----------------------------------------------------------------------------------------------------

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
        for (Text& text : texts_) drop(text);
      });
}

// Whether the pair at the sequence's end is here to draft from. If it was read before, it is once more.
bool EagleProposer::has_end(Text& text, int32_t n_tokens) const {
  if (text.end() != n_tokens - 1) return false;
  if (text.n_waiting == 0 && text.keeps_last) --text.n_read, ++text.n_waiting;
  return text.n_waiting > 0;
}

void EagleProposer::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  for (const Proposal& p : proposals) {
    Text* text = place_of(texts_, p.input.sequence);
    const auto n = static_cast<int32_t>(p.input.prompt.size() + p.input.answer.size());
    if (p.input.sampler == nullptr || text == nullptr || text->sequence != p.input.sequence) continue;
    if (!has_end(*text, n)) continue;
    text->n_written = text->n_read;
    cache_.truncate(text->blocks, text->n_written);
    if (text->n_text == 0) drafting_.begin_text(*text, p.input), trees_.begin_text(*text);
    trees_.observe(*text, p.input);
    drafting_.follow(*text, p.input);
    if (drafting_.may_draft(*text, p))
      lanes_.push_back({.text = text, .proposal = &p, .is_pinned = drafting_.is_pinned(p.input)});
  }
}

// ---- passes --------------------------------------------------------------------------------------------------------

bool EagleProposer::reserve(Text& text, int32_t n) {
  return cache_.reserve(text.blocks, text.n_written, text.n_written + n, copies_);
}

void EagleProposer::note_written(Text& text, int32_t slot, TokenId token) {
  text.written.resize(std::max(text.written.size(), static_cast<size_t>(slot) + 1));
  text.written[static_cast<size_t>(slot)] = token;
}

// All pairs of a sequence that wait, in its slots from n_written on: features of the target, of which fuse() makes
// states. Its next row where that of the last one is wanted.
void EagleProposer::add_pairs(Text& text, bool is_wanted) {
  const auto n = static_cast<size_t>(text.n_waiting), len = static_cast<size_t>(head_->feature_len());
  const auto first_row = static_cast<size_t>(arrays_.n_tokens());
  for (size_t i = 0; i < n; ++i) {
    std::ranges::copy(std::span(text.features).subspan(i * len, len),
                      head_->feature(static_cast<int32_t>(first_row + i)).begin());
    note_written(text, text.n_written + static_cast<int32_t>(i), text.waiting[i]);
  }
  arrays_.add_run(std::span(text.waiting).first(n), text.n_written, text.blocks);
  text.n_written += text.n_waiting;
  if (is_wanted) arrays_.want_last();
  end_sequence(text);
}

// A draft, with the head's own state after the row that it was drawn from, which is one of the last pass.
void EagleProposer::load_draft(const DraftNode& node) {
  const auto C = static_cast<size_t>(head_->width());
  const auto row = static_cast<size_t>(node.row);
  std::ranges::copy(said_.states.subspan(row * C, C), head_->state(arrays_.n_tokens()).begin());
}

// What the target made of each sequence since it last drafted, and the first draft after that.
void EagleProposer::first_pass() {
  const double begin = clock_.now();
  arrays_.clear();
  std::erase_if(lanes_, [this](const DraftLane& lane) {
    Text& text = text_of(lane);
    if (reserve(text, text.n_waiting)) return false;
    forget_read(text);
    return true;
  });
  if (lanes_.empty()) return;
  for (const DraftLane& lane : lanes_) add_pairs(text_of(lane), true);
  compute();
  const auto n = head_->feature_len();
  for (const DraftLane& lane : lanes_) {
    Text& text = text_of(lane);
    const auto last = static_cast<size_t>(text.n_waiting - 1);
    std::ranges::copy_n(text.features.begin() + static_cast<std::ptrdiff_t>(last) * n, n, text.features.begin());
    text.waiting[0] = text.waiting[last];
    text.n_read += std::exchange(text.n_waiting, 0);
    text.keeps_last = true;
  }
  draw(begin);
}

// Lanes of a sequence stand side by side. Without blocks for all of them it has none.
void EagleProposer::drop_without_room() {
  for (size_t i = 0, n = 0; i < lanes_.size(); i += n) {
    Text& text = text_of(lanes_[i]);
    for (n = 0; i + n < lanes_.size() && lanes_[i + n].text == &text;) ++n;
    const bool fits = text.n_written + static_cast<int32_t>(n) <= head_->sizes().context_len;
    if (fits && reserve(text, static_cast<int32_t>(n))) continue;
    std::erase_if(lanes_, [&text](const DraftLane& lane) { return lane.text == &text; });
    n = 0;
  }
}

// In the next slot of its sequence. Its position is that of its depth; the way to it is where its slots are those of
// their positions plain sequence, as a chain's are.
void EagleProposer::add_node(Text& text, DraftNode& node, bool is_alone) {
  load_draft(node);
  node.slot = text.n_written++;
  note_written(text, node.slot, node.token);
  path_.assign(1, node.slot);
  for (int32_t i = node.parent; i >= 0; i = text.tree.nodes[static_cast<size_t>(i)].parent)
    path_.push_back(text.tree.nodes[static_cast<size_t>(i)].slot);
  std::ranges::reverse(path_);
  const bool is_plain = is_alone && path_.back() - path_.front() + 1 == node.depth && path_.front() == text.n_read;
  const int32_t position = text.n_read + node.depth - 1;
  const auto slot_of = [&](int32_t i) { return slot_in(text.blocks, arrays_.block_len(), i); };
  if (!is_plain) std::ranges::transform(path_, arrays_.add_path(static_cast<int32_t>(path_.size())).begin(), slot_of);
  arrays_.add(node.token, position, slot_of(node.slot));
  arrays_.want_last();
}

// The drafts that others are drawn after.
void EagleProposer::next_pass() {
  const double begin = clock_.now();
  arrays_.clear();
  drop_without_room();
  if (lanes_.empty()) return;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Text& text = text_of(lanes_[i]);
    const bool is_first = i == 0 || lanes_[i - 1].text != &text;
    const bool is_last = i + 1 == lanes_.size() || lanes_[i + 1].text != &text;
    add_node(text, text.tree.nodes[static_cast<size_t>(lanes_[i].node)], is_first && is_last);
    if (is_last) end_sequence(text);
  }
  said_ = head_->run(arrays_.batch());
  draw(begin);
}

void EagleProposer::draw(double begin) {
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].row = static_cast<int32_t>(i);
  drafting_.draw(lanes_, said_.logits, said_.logits.size() / lanes_.size(), stream_.host());
  drafting_.passed(arrays_.n_tokens(), clock_.now() - begin);
  ++n_passes_;
}

// Ends a sequence's part of the batch, over the blocks of what is written of it.
void EagleProposer::end_sequence(const Text& text) {
  arrays_.add_blocks(std::span(text.blocks).first(static_cast<size_t>(cache_.n_blocks_for(text.n_written))));
  arrays_.end_sequence();
}

// The pairs that were added.
void EagleProposer::compute() {
  head_->fuse(arrays_.n_tokens());
  said_ = head_->run(arrays_.batch());
}

}  // namespace ibid
