// KvStore: the bytes of all blocks of all layers, in one mapping made at start-up. The operating system gives pages as
// they are first written, so an idle engine costs address space only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/block_cache.h"
#include "engine/forward_pass.h"
#include "kernels/kv_layout.h"
#include "kernels/paged_kv.h"
#include "tensor/stream.h"

namespace ibid {

class KvStore {
 public:
  // A layer whose layout no kernel reads is refused by its number.
  static Result<KvStore> create(std::span<const KvLayout> layers, int32_t n_blocks);
  KvStore(KvStore&& other) noexcept;
  KvStore& operator=(KvStore&&) = delete;
  ~KvStore();

  // Of one block over all layers.
  static int64_t block_bytes(const ModelFacts& model, DType dtype, int32_t block_len);

  std::span<const PagedKv> layers() const { return layers_; }
  // Those with a cache of their own, each once: what is copied or moved is copied in these.
  std::span<const PagedKv> owned() const { return owned_; }
  // Copies whole blocks in all layers, in the given order.
  void copy(Stream& stream, std::span<const BlockCopy> copies) const;

 private:
  KvStore() = default;
  std::byte* bytes_ = nullptr;
  size_t len_ = 0;
  std::vector<PagedKv> layers_;  // [L]
  std::vector<PagedKv> owned_;   // of them, those that do not read another layer's
};

}  // namespace ibid
