// KvStore: the bytes of all blocks of all layers on one device, in one buffer made at start-up.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/tier.h"
#include "kernels/kv_layout.h"
#include "kernels/paged_kv.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"
#include "worker/forward_pass.h"

namespace ibid {

class KvStore {
 public:
  // A layer whose layout no kernel reads is refused by its number.
  static Result<KvStore> create(std::span<const KvLayout> layers, int32_t n_blocks,
                                const DeviceMemory& memory = cpu_memory());

  // Of one block over all layers.
  static int64_t block_bytes(const ModelFacts& model, DType dtype, int32_t block_len);

  std::span<const PagedKv> layers() const { return layers_; }
  // Those with a cache of their own, each once: what is copied or moved is copied in these.
  std::span<const PagedKv> owned() const { return owned_; }
  // Copies whole blocks in all layers, in the given order, within the device: other tiers have no memory yet.
  void copy(Stream& stream, std::span<const BlockCopy> copies) const;

 private:
  Buffer bytes_;
  std::vector<PagedKv> layers_;  // [L]
  std::vector<PagedKv> owned_;
};

}  // namespace ibid
