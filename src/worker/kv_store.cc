#include "worker/kv_store.h"

#include <string>

#include "base/check.h"
#include "kernels/ops.h"

namespace ibid {

int64_t KvStore::block_bytes(const ModelFacts& model, KvTypes dtype, int32_t block_len) {
  return kv_block_bytes(kv_layouts(model.layers, dtype, block_len));
}

Result<KvStore> KvStore::create(std::span<const KvLayout> layers, int32_t n_blocks, const DeviceMemory& memory,
                                int32_t n_host_blocks) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const Status supported = kv_supported(layers[l]);
    if (!supported.ok()) return unsupported("layer " + std::to_string(l) + " keeps " + supported.error().message);
  }
  KvStore store;
  ASSIGN_OR_RETURN(store.bytes_,
                   Buffer::allocate(memory, static_cast<size_t>(kv_pool_bytes(layers, n_blocks)), "the KV cache"));
  store.layouts_.assign(layers.begin(), layers.end());
  store.block_bytes_ = kv_block_bytes(layers);
  ASSIGN_OR_RETURN(store.host_bytes_,
                   Buffer::allocate(cpu_memory(), static_cast<size_t>(store.block_bytes_ * n_host_blocks),
                                    "the host tier of the KV cache"));
  store.layers_ = kv_pool(layers, n_blocks, store.bytes_.data());
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].geometry.owner == kOwnCache) store.owned_.push_back(store.layers_[l]);
  }
  return store;
}

void KvStore::copy(Stream& stream, std::span<const BlockCopy> copies) const {
  for (const BlockCopy& c : copies) {
    if (c.from_tier == Tier::kHost) {
      CHECK(c.to_tier == Tier::kDevice, "nothing moves within the host");
      import_block(c.to, host_block(c.from));
    } else if (c.to_tier == Tier::kHost) {
      export_block(c.from, host_block(c.to));
    } else {
      for (const PagedKv& kv : owned_) ops::copy_block(stream, kv, c.from, c.to);
    }
  }
}

std::span<std::byte> KvStore::host_block(BlockId block) const {
  const auto offset = static_cast<size_t>(raw(block) * block_bytes_);
  CHECK(raw(block) >= 0 && offset < host_bytes_.bytes(), "a host block that has no memory");
  return {host_bytes_.data() + offset, static_cast<size_t>(block_bytes_)};
}

void KvStore::bring(BlockId block) const {
  bytes_.bring(static_cast<size_t>(raw(block) * block_bytes_), static_cast<size_t>(block_bytes_));
}

void KvStore::export_block(BlockId block, std::span<std::byte> bytes) const {
  CHECK(static_cast<int64_t>(bytes.size()) == block_bytes_, "a block is exchanged whole");
  for (const PagedKv& kv : owned_) {
    kv_export(kv, block, bytes.first(static_cast<size_t>(kv.layer_bytes)));
    bytes = bytes.subspan(static_cast<size_t>(kv.layer_bytes));
  }
}

void KvStore::import_block(BlockId block, std::span<const std::byte> bytes) const {
  CHECK(static_cast<int64_t>(bytes.size()) == block_bytes_, "a block is exchanged whole");
  for (const PagedKv& kv : owned_) {
    kv_import(kv, block, bytes.first(static_cast<size_t>(kv.layer_bytes)));
    bytes = bytes.subspan(static_cast<size_t>(kv.layer_bytes));
  }
}

}  // namespace ibid
