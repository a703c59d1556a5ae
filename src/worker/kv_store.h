// KvStore: the bytes of all blocks of all layers, in buffers made at start-up: one on the device, laid out as attention
// reads it, and one for the tier below (cache/tier.h). In both a block is one run of bytes, its layers one after
// another: so a text's first token takes one large page, not one for each layer, and a block's move is one of
// neighbours. A file has the same, the exchange form. Memory is the system's until it is first written.
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
                                const DeviceMemory& memory = cpu_memory(), int32_t n_host_blocks = 0);

  // Of one block over all layers.
  static int64_t block_bytes(const ModelFacts& model, KvTypes dtype, int32_t block_len);

  std::span<const PagedKv> layers() const { return layers_; }
  // Those with a cache of their own, each once: what is copied or moved is copied in these.
  std::span<const PagedKv> owned() const { return owned_; }
  // Copies whole blocks in all layers, in the given order, within the device or between it and the host.
  void copy(Stream& stream, std::span<const BlockCopy> copies) const;
  // A block of the device in its exchange form, block_bytes() long.
  int64_t block_bytes() const { return block_bytes_; }
  std::span<const KvLayout> layouts() const { return layouts_; }
  // Lets the system give a block's memory now, so that no step waits for it. What the block holds stays.
  void bring(BlockId block) const;
  void export_block(BlockId block, std::span<std::byte> bytes) const;
  void import_block(BlockId block, std::span<const std::byte> bytes) const;

 private:
  std::span<std::byte> host_block(BlockId block) const;

  std::vector<KvLayout> layouts_;  // [L]
  Buffer bytes_;
  Buffer host_bytes_;  // [n_host_blocks, block_bytes]
  int64_t block_bytes_ = 0;
  std::vector<PagedKv> layers_;  // [L]
  std::vector<PagedKv> owned_;
};

}  // namespace ibid
