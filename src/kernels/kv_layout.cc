#include "kernels/kv_layout.h"

#include "base/check.h"

namespace ibid {
namespace {

bool owns_its_cache(const KvLayout& layout) { return layout.geometry.owner == kOwnCache; }

int64_t token_len(KvKind kind, int64_t n_kv_heads, int64_t key_len, int64_t value_len) {
  switch (kind) {
    case KvKind::kHeads:
      return n_kv_heads * (key_len + value_len);
    case KvKind::kLatent:
      return key_len;
    case KvKind::kNothing:
      return 0;
  }
  return 0;
}

bool is_head_len(int32_t len) { return len >= 8 && len % 8 == 0 && len <= kMaxHeadLen; }

}  // namespace

int64_t kv_token_len(const KvGeometry& g) { return token_len(g.kind, g.n_kv_heads, g.key_len, g.value_len); }
int64_t kv_token_len(const PagedKv& kv) { return token_len(kv.kind, kv.n_kv_heads, kv.key_len, kv.value_len); }

int64_t KvLayout::block_bytes() const {
  const KvGeometry& g = geometry;
  if (g.kind == KvKind::kNothing) return 0;
  if (g.kind == KvKind::kLatent) return kv_elements_bytes(dtype.key, g.key_len, block_len);
  const auto bytes = [&](KvType type, int32_t len) {
    return kv_elements_bytes(type, len, block_len) + kv_scales_bytes(type, len, block_len);
  };
  return g.n_kv_heads * (bytes(dtype.key, g.key_len) + bytes(dtype.value, g.value_len));
}

std::string KvLayout::name() const {
  if (geometry.kind == KvKind::kNothing) return "nothing";
  const std::string_view order = geometry.kind == KvKind::kLatent ? kKvLatentLayout : kKvLayout;
  std::string text = std::string(order) + " " + dtype.name() + " B" + std::to_string(block_len) + " K" +
                     std::to_string(geometry.n_kv_heads) + " D" + std::to_string(geometry.key_len);
  if (geometry.value_len != geometry.key_len) text += "," + std::to_string(geometry.value_len);
  return text;
}

Status kv_supported(const KvLayout& layout) {
  const KvGeometry& g = layout.geometry;
  if (g.kind == KvKind::kNothing) return {};
  if (g.n_kv_heads < 1 || !is_head_len(g.key_len) || !is_head_len(g.value_len)) {
    return unsupported(std::to_string(g.n_kv_heads) + " key/value heads of " + std::to_string(g.key_len) +
                       (g.value_len == g.key_len ? "" : " and " + std::to_string(g.value_len)) +
                       "; attention runs multiples of 8, up to " + std::to_string(kMaxHeadLen));
  }
  if (g.kind == KvKind::kLatent && (g.n_kv_heads != 1 || g.value_len > g.key_len)) {
    return unsupported("latent rows of " + std::to_string(g.key_len) + " with " + std::to_string(g.n_kv_heads) +
                       " key/value heads and values of " + std::to_string(g.value_len) +
                       "; a row is the key of one head and begins with its value");
  }
  if (g.kind == KvKind::kLatent && (is_code(layout.dtype.key) || layout.dtype.key != layout.dtype.value)) {
    return unsupported("latent rows as " + layout.dtype.name() +
                       ", which are keys and values at once; expected f32, f16 or bf16 for this model");
  }
  return {};
}

std::vector<KvLayout> kv_layouts(std::span<const KvGeometry> layers, KvTypes dtype, int32_t block_len) {
  std::vector<KvLayout> out;
  for (const KvGeometry& geometry : layers) {
    out.push_back({.geometry = geometry, .dtype = dtype, .block_len = block_len});
  }
  return out;
}

int64_t kv_block_bytes(std::span<const KvLayout> layers) {
  int64_t bytes = 0;
  for (const KvLayout& layout : layers) {
    if (owns_its_cache(layout)) bytes += layout.block_bytes();
  }
  return bytes;
}

int64_t kv_pool_bytes(std::span<const KvLayout> layers, int32_t n_blocks) { return kv_block_bytes(layers) * n_blocks; }

std::vector<PagedKv> kv_pool(std::span<const KvLayout> layers, int32_t n_blocks, std::byte* memory) {
  std::vector<PagedKv> out;
  const int64_t block_bytes = kv_block_bytes(layers);
  for (const KvLayout& layout : layers) {
    const KvGeometry& g = layout.geometry;
    CHECK(kv_supported(layout).ok(), "a cache that attention cannot read is refused before it is made");
    if (!owns_its_cache(layout)) {
      CHECK(g.owner >= 0 && g.owner < static_cast<int32_t>(out.size()), "an owner is an earlier layer");
      const PagedKv owners = out[static_cast<size_t>(g.owner)];
      CHECK(owns_its_cache(layers[static_cast<size_t>(g.owner)]) && owners.kind == g.kind &&
                owners.n_kv_heads == g.n_kv_heads && owners.key_len == g.key_len && owners.value_len == g.value_len,
            "an owner keeps what its reader needs");
      out.push_back(owners);
      continue;
    }
    out.push_back({.blocks = memory,
                   .block_bytes = block_bytes,
                   .layer_bytes = layout.block_bytes(),
                   .dtype = layout.dtype,
                   .n_blocks = n_blocks,
                   .block_len = layout.block_len,
                   .n_kv_heads = g.n_kv_heads,
                   .key_len = g.key_len,
                   .value_len = g.value_len,
                   .kind = g.kind});
    memory += layout.block_bytes();
  }
  return out;
}

}  // namespace ibid
