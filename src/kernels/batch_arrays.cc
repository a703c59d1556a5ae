#include "kernels/batch_arrays.h"

#include "base/check.h"

namespace ibid {

BatchArrays::BatchArrays(int32_t block_len, const BatchSizes& sizes) : block_len_(block_len) {
  for (std::vector<int32_t>* each : {&positions_, &places_, &slots_}) each->reserve(sizes.n_tokens);
  for (std::vector<int32_t>* each : {&query_start_, &block_start_, &kv_len_}) each->reserve(sizes.n_sequences + 1);
  tokens_.reserve(sizes.n_tokens);
  types_.reserve(sizes.n_tokens);
  inputs_.reserve(sizes.n_tokens);
  axes_.reserve(3 * sizes.n_tokens);
  ends_.reserve(sizes.n_tokens);
  state_in_.reserve(sizes.n_sequences);
  adapters_.reserve(sizes.n_sequences + 1);
  state_out_.reserve(sizes.n_tokens);
  path_start_.reserve(sizes.n_tokens + 1);
  path_slots_.reserve(sizes.n_path_slots);
  logit_rows_.reserve(sizes.n_rows);
  block_table_.reserve(sizes.n_blocks);
  kept_.reserve(sizes.n_sequences);
  kept_blocks_.reserve(sizes.n_blocks);
  clear();
}

void BatchArrays::clear() {
  for (std::vector<int32_t>* each :
       {&positions_, &places_, &slots_, &logit_rows_, &path_slots_, &state_in_, &state_out_, &axes_, &ends_})
    each->clear();
  for (std::vector<int32_t>* each : {&query_start_, &block_start_, &path_start_, &kv_len_}) each->assign(1, 0);
  tokens_.clear();
  types_.clear();
  inputs_.clear();
  adapters_.clear();
  block_table_.clear();
  kept_.clear();
  kept_blocks_.clear();
}

void BatchArrays::add_viewed(TokenId token, int32_t position, int32_t place, int32_t slot) {
  const int32_t kv_len = std::max(kv_len_.back(), place + 1);
  fill_places(tokens_.size());
  add(token, position, slot);
  places_.push_back(place);
  kv_len_.back() = kv_len;
}

// Of the first n tokens.
void BatchArrays::fill_places(size_t n) {
  for (size_t t = places_.size(); t < n; ++t) places_.push_back(positions_[t]);
}

void BatchArrays::keep(const KeptRows& rows, std::span<const BlockId> blocks) {
  KeptRows& kept = kept_.emplace_back(rows);
  kept.sequence = n_sequences();
  kept.block_start = static_cast<int32_t>(kept_blocks_.size());
  kept_blocks_.insert(kept_blocks_.end(), blocks.begin(), blocks.end());
}

void BatchArrays::set_axes(const std::array<int32_t, 3>& at) {
  fill_axes(tokens_.size() - 1);
  axes_.insert(axes_.end(), at.begin(), at.end());
}

// Of the first n tokens.
void BatchArrays::fill_axes(size_t n) {
  for (size_t t = axes_.size() / 3; t < n; ++t) axes_.insert(axes_.end(), 3, positions_[t]);
}

void BatchArrays::set_end(int32_t end) {
  CHECK(end > positions_.back() && places_.empty());
  fill_ends(tokens_.size() - 1);
  ends_.push_back(end);
  kv_len_.back() = std::max(kv_len_.back(), end);
}

// Of the first n tokens.
void BatchArrays::fill_ends(size_t n) {
  for (size_t t = ends_.size(); t < n; ++t) ends_.push_back(positions_[t] + 1);
}

void BatchArrays::add_run(std::span<const TokenId> tokens, int32_t position, std::span<const BlockId> blocks) {
  for (const TokenId token : tokens) {
    add(token, position, slot_in(blocks, block_len_, position));
    ++position;
  }
}

void BatchArrays::end_sequence() {
  query_start_.push_back(n_tokens());
  if (!adapters_.empty()) adapters_.resize(query_start_.size() - 1, -1);
  block_start_.push_back(static_cast<int32_t>(block_table_.size()));
  kv_len_.push_back(0);
}

ForwardBatch BatchArrays::batch() {
  if (!inputs_.empty()) inputs_.resize(tokens_.size(), nullptr);
  if (!places_.empty()) fill_places(tokens_.size());
  if (!axes_.empty()) fill_axes(tokens_.size());
  if (!ends_.empty()) fill_ends(tokens_.size());
  CHECK(query_start_.back() == n_tokens() && (types_.empty() || types_.size() == tokens_.size()) &&
        (state_out_.empty() || state_out_.size() == tokens_.size()) &&
        state_in_.size() == (state_out_.empty() ? 0 : query_start_.size() - 1));
  const bool has_paths = !path_slots_.empty();
  return {.n_tokens = n_tokens(),
          .n_sequences = n_sequences(),
          .n_rows = n_rows(),
          .block_len = block_len_,
          .tokens = tokens_.data(),
          .positions = positions_.data(),
          .places = places_.empty() ? nullptr : places_.data(),
          .slots = slots_.data(),
          .query_start = query_start_.data(),
          .kv_len = kv_len_.data(),
          .block_start = block_start_.data(),
          .block_table = block_table_.data(),
          .token_types = types_.empty() ? nullptr : types_.data(),
          .logit_rows = logit_rows_.data(),
          .path_start = has_paths ? path_start_.data() : nullptr,
          .path_slots = has_paths ? path_slots_.data() : nullptr,
          .state_in = state_out_.empty() ? nullptr : state_in_.data(),
          .state_out = state_out_.empty() ? nullptr : state_out_.data(),
          .inputs = inputs_.empty() ? nullptr : inputs_.data(),
          .axes = axes_.empty() ? nullptr : axes_.data(),
          .ends = ends_.empty() ? nullptr : ends_.data(),
          .kept = kept_.empty() ? nullptr : kept_.data(),
          .kept_blocks = kept_.empty() ? nullptr : kept_blocks_.data(),
          .n_kept = static_cast<int32_t>(kept_.size()),
          .adapters = adapters_.empty() ? nullptr : adapters_.data()};
}

}  // namespace ibid
