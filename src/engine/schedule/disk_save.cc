// What a disk is given of sequences (disk_tier.h): whole blocks when they are published, snapshots when they are taken.
#include <algorithm>
#include <new>
#include <optional>

#include "engine/schedule/disk_tier.h"

namespace ibid {

void DiskTier::save(Sequence& s) {
  if (s.request->pictures != nullptr) return;
  const DurableChain& chain = s.place.durable();
  while (chain.n_blocks < s.place.n_published()) {
    const int32_t i = chain.n_blocks;
    if (i == 0) s.place.begin_chain(key_of(s.place.scope()), index_.next_use());
    const DurableKey key = durable_key_of_block(chain.last, tokens_of(s, i));
    const int64_t age = DurableIndex::age_of(chain.use, i);
    if (index_.contains(key)) {
      if (index_.touch(key, age, kFar)) store_->touch(key, age);
    } else if (s.place.blocks()[static_cast<size_t>(i)] != BlockId::kNone && !save_block(s, i, key, chain.last)) {
      return;
    }
    if (has_states_ && !save_states(s, i, chain.last)) return;
    s.place.extend_chain(key);
  }
  // Those in its unfinished block, when it has left one there.
  const auto is_there = [&](const HeldState& held) {
    return held.n_tokens > s.place.n_published() * cache_.block_len() && held.n_tokens <= s.n_computed() &&
           cache_.states().is_snapshot(held.state);
  };
  // A preempted sequence, or a fork, may have fewer blocks than were written of its tokens.
  if (!has_states_ || chain.n_blocks > s.place.n_published() || std::ranges::none_of(s.place.states(), is_there))
    return;
  if (chain.n_blocks == 0) s.place.begin_chain(key_of(s.place.scope()), index_.next_use());
  save_states(s, s.place.n_published(), chain.last);
}

bool DiskTier::save_block(const Sequence& s, int32_t i, const DurableKey& key, const DurableKey& parent) {
  return write(ImageKind::kBlock, key, DurableIndex::age_of(s.place.durable().use, i), [&](std::span<std::byte> image) {
    begin_image(format_, image, key, parent, tokens_of(s, i));
    worker_.export_block(s.place.blocks()[static_cast<size_t>(i)], payload_of(format_, image));
  });
}

// The snapshots in its i-th block that are not there yet. False: there is no room for one now.
bool DiskTier::save_states(const Sequence& s, int32_t i, const DurableKey& parent) {
  const BlockId block = s.place.blocks()[static_cast<size_t>(i)];
  const NodeId node = block == BlockId::kNone ? NodeId::kNone : cache_.pool().node_of(block);
  if (node == NodeId::kNone) return true;
  bool all_there = true;
  const int64_t age = DurableIndex::age_of(s.place.durable().use, i);
  cache_.states().each_written(node, [&](int32_t n, Tier tier, StateId state) {
    const auto tokens = cache_.tree().tokens_of(node).first(static_cast<size_t>(n));
    const DurableKey key = durable_key_of_state(parent, tokens);
    if (index_.contains(key)) {
      if (index_.touch(key, age, kFar)) store_->touch(key, age);
      return;
    }
    all_there &= write(ImageKind::kState, key, age, [&](std::span<std::byte> image) {
      begin_image(format_, image, key, parent, tokens);
      const auto n_block = static_cast<size_t>(format_.payload_bytes);
      worker_.export_block(block, payload_of(format_, image).first(n_block));
      worker_.export_state(tier, state, payload_of(format_, image).subspan(n_block));
    });
  });
  return all_there;
}

// An image that `fill` writes. False: there is no room for it now.
template <typename Fill>
bool DiskTier::write(ImageKind kind, const DurableKey& key, int64_t age, Fill fill) {
  bool fits = false;
  while (const std::optional<DurableKey> oldest = index_.evict_for(bytes_of(kind), fits)) {
    store_->remove(*oldest);
    ++stats_.n_evicted;
  }
  try {
    if (fits) index_.add({key, bytes_of(kind), age});
  } catch (const std::bad_alloc&) {
    fits = false;
  }
  if (!fits) return false;
  const std::span<std::byte> image = store_->image_to_write(kind);
  if (!image.empty()) {
    fill(image);
    if (store_->write(key, age, image)) return true;
  }
  index_.remove(key);
  return false;
}

void DiskTier::leave(const Sequence& s) {
  stats_.n_unsaved += std::max(0, s.place.n_published() - s.place.durable().n_blocks);
}

}  // namespace ibid
