#include "engine/kv_store.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace ibid {

int64_t KvStore::block_bytes(const ModelFacts& model, DType dtype, int32_t block_len) {
  return kv_block_bytes(dtype, block_len, model.n_kv_heads, model.head_len) * model.n_layers;
}

Result<KvStore> KvStore::create(const ModelFacts& model, DType dtype, int32_t block_len, int32_t n_blocks) {
  const int64_t layer_block_bytes = kv_block_bytes(dtype, block_len, model.n_kv_heads, model.head_len);
  const int64_t layer_bytes = layer_block_bytes * n_blocks;
  KvStore store;
  store.len_ = static_cast<size_t>(layer_bytes) * static_cast<size_t>(model.n_layers);
  void* bytes = mmap(nullptr, store.len_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED) {
    return exhausted("The system gives no " + std::to_string(std::exchange(store.len_, 0) >> 20) +
                     " MiB of address space for the KV cache; a smaller context or fewer bytes for it would do.");
  }
  store.bytes_ = static_cast<std::byte*>(bytes);
  // A core file needs no gigabytes of what users wrote; and the mapping stays one that can be told from others.
  madvise(bytes, store.len_, MADV_DONTDUMP);
  for (int32_t l = 0; l < model.n_layers; ++l) {
    store.layers_.push_back({.blocks = store.bytes_ + l * layer_bytes,
                             .block_bytes = layer_block_bytes,
                             .dtype = dtype,
                             .n_blocks = n_blocks,
                             .block_len = block_len,
                             .n_kv_heads = model.n_kv_heads,
                             .head_len = model.head_len});
  }
  return store;
}

KvStore::KvStore(KvStore&& other) noexcept
    : bytes_(std::exchange(other.bytes_, nullptr)),
      len_(std::exchange(other.len_, 0)),
      layers_(std::move(other.layers_)) {}

KvStore::~KvStore() {
  if (bytes_ != nullptr) munmap(bytes_, len_);
}

void KvStore::copy(Stream&, std::span<const BlockCopy> copies) const {
  for (const BlockCopy& c : copies) {
    for (const PagedKv& kv : layers_) {
      std::memcpy(kv.blocks + raw(c.to) * kv.block_bytes, kv.blocks + raw(c.from) * kv.block_bytes,
                  static_cast<size_t>(kv.block_bytes));
    }
  }
}

}  // namespace ibid
