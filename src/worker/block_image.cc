#include "worker/block_image.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace ibid {
namespace {

constexpr char kBlockMagic[] = {'i', 'b', 'i', 'd', 'k', 'v', '0', '1'};
constexpr char kStateMagic[] = {'i', 'b', 'i', 'd', 's', 't', '0', '1'};
constexpr size_t kKeyAt = 32, kParentAt = 64, kPayloadSumAt = 96, kHeaderSumAt = 112, kTokensAt = 128;

struct ImageHead {
  char magic[8];
  uint32_t header_bytes, n_tokens;
  uint64_t payload_bytes, zero;
};
static_assert(sizeof(ImageHead) == kKeyAt);

struct Sum {
  uint64_t low = 0, high = 0;
  bool operator==(const Sum&) const = default;
};

template <typename T>
T load_at(std::span<const std::byte> image, size_t at) {
  T out;
  std::memcpy(&out, image.data() + at, sizeof out);
  return out;
}

Sum sum_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

Sum header_sum(std::span<const std::byte> header) {
  std::array<std::byte, kTokensAt + 4 * 1024> copy;
  CHECK(header.size() <= copy.size(), "a block has at most 1024 tokens");
  std::ranges::copy(header, copy.begin());
  std::fill_n(copy.data() + kHeaderSumAt, sizeof(Sum), std::byte{0});
  return sum_of(std::span(copy).first(header.size()));
}

const char* magic_of(ImageKind kind) { return kind == ImageKind::kState ? kStateMagic : kBlockMagic; }

size_t header_bytes_of(std::span<const std::byte> image) { return load_at<ImageHead>(image, 0).header_bytes; }

}  // namespace

void begin_image(const BlockFormat& format, std::span<std::byte> image, const DurableKey& key, const DurableKey& parent,
                 std::span<const TokenId> tokens) {
  const ImageKind kind = kind_of(format, image);
  CHECK(static_cast<int64_t>(image.size()) == format.image_bytes(kind));
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  CHECK(kind == ImageKind::kState ? 0 < n_tokens && n_tokens <= format.block_len : n_tokens == format.block_len,
        "whole blocks are kept, and states after some of a block's tokens");
  std::fill_n(image.data(), format.header_bytes(), std::byte{0});
  ImageHead head = {};
  std::memcpy(head.magic, magic_of(kind), sizeof head.magic);
  head.header_bytes = static_cast<uint32_t>(format.header_bytes());
  head.n_tokens = static_cast<uint32_t>(n_tokens);
  head.payload_bytes = static_cast<uint64_t>(format.image_bytes(kind) - format.header_bytes());
  std::memcpy(image.data(), &head, sizeof head);
  std::memcpy(image.data() + kKeyAt, key.data(), key.size());
  std::memcpy(image.data() + kParentAt, parent.data(), parent.size());
  std::memcpy(image.data() + kTokensAt, tokens.data(), tokens.size_bytes());
}

std::span<std::byte> payload_of(const BlockFormat& format, std::span<std::byte> image) {
  return image.subspan(static_cast<size_t>(format.header_bytes()));
}

void seal_image(std::span<std::byte> image) {
  const size_t n_header = header_bytes_of(image);
  const Sum payload = sum_of(image.subspan(n_header));
  std::memcpy(image.data() + kPayloadSumAt, &payload, sizeof payload);
  const Sum header = header_sum(image.first(n_header));
  std::memcpy(image.data() + kHeaderSumAt, &header, sizeof header);
}

BlockIo check_image(const BlockFormat& format, std::span<const std::byte> image, const DurableKey& key) {
  const auto n_header = static_cast<size_t>(format.header_bytes());
  const ImageKind kind = kind_of(format, image);
  if (static_cast<int64_t>(image.size()) != format.image_bytes(kind)) return BlockIo::kCorrupt;
  const auto head = load_at<ImageHead>(image, 0);
  const auto block_len = static_cast<uint32_t>(format.block_len);
  const uint32_t n_least = kind == ImageKind::kState ? 1 : block_len;
  if (std::memcmp(head.magic, magic_of(kind), sizeof head.magic) != 0 || head.header_bytes != n_header ||
      head.n_tokens < n_least || head.n_tokens > block_len || head.payload_bytes != image.size() - n_header)
    return BlockIo::kForeign;
  if (header_sum(image.first(n_header)) != load_at<Sum>(image, kHeaderSumAt)) return BlockIo::kCorrupt;
  const bool is_named_so = load_at<DurableKey>(image, kKeyAt) == key;
  const auto key_of = kind == ImageKind::kState ? durable_key_of_state : durable_key_of_block;
  if (!is_named_so || key_of(parent_of_image(image), tokens_of_image(image)) != key) return BlockIo::kForeign;
  return sum_of(image.subspan(n_header)) == load_at<Sum>(image, kPayloadSumAt) ? BlockIo::kDone : BlockIo::kCorrupt;
}

DurableKey parent_of_image(std::span<const std::byte> image) { return load_at<DurableKey>(image, kParentAt); }

std::span<const TokenId> tokens_of_image(std::span<const std::byte> image) {
  return {reinterpret_cast<const TokenId*>(image.data() + kTokensAt), load_at<ImageHead>(image, 0).n_tokens};
}

}  // namespace ibid
