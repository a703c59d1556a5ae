#include "worker/kv_store.h"

#include <string>

#include "base/check.h"
#include "kernels/ops.h"

namespace ibid {

int64_t KvStore::block_bytes(const ModelFacts& model, DType dtype, int32_t block_len) {
  return kv_block_bytes(kv_layouts(model.layers, dtype, block_len));
}

Result<KvStore> KvStore::create(std::span<const KvLayout> layers, int32_t n_blocks, const DeviceMemory& memory) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const Status supported = kv_supported(layers[l]);
    if (!supported.ok()) return unsupported("layer " + std::to_string(l) + " keeps " + supported.error().message);
  }
  KvStore store;
  ASSIGN_OR_RETURN(store.bytes_,
                   Buffer::allocate(memory, static_cast<size_t>(kv_pool_bytes(layers, n_blocks)), "the KV cache"));
  store.layers_ = kv_pool(layers, n_blocks, store.bytes_.data());
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].geometry.owner == kOwnCache) store.owned_.push_back(store.layers_[l]);
  }
  return store;
}

void KvStore::copy(Stream& stream, std::span<const BlockCopy> copies) const {
  for (const BlockCopy& c : copies) {
    CHECK(c.from_tier == Tier::kDevice && c.to_tier == Tier::kDevice, "a tier without memory");
    for (const PagedKv& kv : owned_) ops::copy_block(stream, kv, c.from, c.to);
  }
}

}  // namespace ibid
