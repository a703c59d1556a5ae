#include "engine/kv_store.h"

#include <sys/mman.h>

#include <utility>

#include "kernels/ops.h"

namespace ibid {

int64_t KvStore::block_bytes(const ModelFacts& model, DType dtype, int32_t block_len) {
  return kv_block_bytes(kv_layouts(model.layers, dtype, block_len));
}

Result<KvStore> KvStore::create(std::span<const KvLayout> layers, int32_t n_blocks) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const Status supported = kv_supported(layers[l]);
    if (!supported.ok()) return unsupported("layer " + std::to_string(l) + " keeps " + supported.error().message);
  }
  KvStore store;
  store.len_ = static_cast<size_t>(kv_pool_bytes(layers, n_blocks));
  void* bytes = mmap(nullptr, store.len_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED) {
    return exhausted("The system gives no " + std::to_string(std::exchange(store.len_, 0) >> 20) +
                     " MiB of address space for the KV cache; a smaller context or fewer bytes for it would do.");
  }
  store.bytes_ = static_cast<std::byte*>(bytes);
  // A core file needs no gigabytes of what users wrote; and the mapping stays one that can be told from others.
  madvise(bytes, store.len_, MADV_DONTDUMP);
  store.layers_ = kv_pool(layers, n_blocks, store.bytes_);
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].geometry.owner == kOwnCache) store.owned_.push_back(store.layers_[l]);
  }
  return store;
}

KvStore::KvStore(KvStore&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)),
      len_(std::exchange(other.len_, 0)),
      layers_(std::move(other.layers_)),
      owned_(std::move(other.owned_)) {}

KvStore::~KvStore() {
  if (bytes_ != nullptr) munmap(bytes_, len_);
}

void KvStore::copy(Stream& stream, std::span<const BlockCopy> copies) const {
  for (const BlockCopy& c : copies) {
    for (const PagedKv& kv : owned_) ops::copy_block(stream, kv, c.from, c.to);
  }
}

}  // namespace ibid
