// What a layer keeps of each token, and how its bytes lie in a block. A model states the first for each of its layers
// (KvGeometry), an engine chooses dtype and block length; both together are a KvLayout, from which all sizes come: the
// pool's, those of plans, and those of reports. Layers of one model may differ in all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/paged_kv.h"

namespace ibid {

inline constexpr int32_t kOwnCache = -1;

struct KvGeometry {
  KvKind kind = KvKind::kHeads;
  int32_t n_kv_heads = 0;  // K; of a latent layer 1
  int32_t key_len = 0;     // Dk; of a latent layer the whole row
  int32_t value_len = 0;   // Dv; of a latent layer the row's first elements
  int32_t window = 0;      // 0: all positions are read for ever; else blocks before the window may be released
  // Another, lower layer whose keys and values this one reads instead of any of its own. That layer owns its cache.
  int32_t owner = kOwnCache;
};

// Elements that a layer keeps of each token: K (Dk + Dv), or the Dk of a latent row, or none.
int64_t kv_token_len(const KvGeometry& geometry);
int64_t kv_token_len(const PagedKv& kv);

struct KvLayout {
  KvGeometry geometry;
  KvTypes dtype;
  int32_t block_len = 16;  // B

  // Of one block of this layer, scales included.
  int64_t block_bytes() const;
  // Identifies the layout of a block's bytes that are kept outside of the process: "K:D.B,B.D F16 B16 K3 D64", with
  // "I8:I4" and "D64,32" where keys and values differ. Latent rows are "B.D F16 B16 K1 D576,512".
  std::string name() const;
};

// Whether the kernels have attention over such a cache; the error lists what they have.
Status kv_supported(const KvLayout& layout);

std::vector<KvLayout> kv_layouts(std::span<const KvGeometry> layers, KvTypes dtype, int32_t block_len);
// Of one block over all layers, from its begin to the next one's: a layer that reads another's cache adds nothing.
int64_t kv_block_bytes(std::span<const KvLayout> layers);
// Of a whole cache of n_blocks, as kv_pool lays it.
int64_t kv_pool_bytes(std::span<const KvLayout> layers, int32_t n_blocks);
// The layers' parts of `memory`, 64-byte aligned and kv_pool_bytes long: block after block, in each the layers one
// after another, so that a text's blocks lie on few pages whatever the number of layers. A layer without a cache of its
// own has its owner's; one that keeps nothing has layer_bytes 0. CHECKs that each layout is supported and
// each owner is an earlier layer with its own cache.
std::vector<PagedKv> kv_pool(std::span<const KvLayout> layers, int32_t n_blocks, std::byte* memory);

}  // namespace ibid
