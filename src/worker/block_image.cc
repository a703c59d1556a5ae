#include "worker/block_image.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace ibid {
namespace {

constexpr char kImageMagic[] = {'i', 'b', 'i', 'd', 'k', 'v', '0', '1'};
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

size_t header_bytes_of(std::span<const std::byte> image) { return load_at<ImageHead>(image, 0).header_bytes; }

}  // namespace

void begin_image(const BlockFormat& format, std::span<std::byte> image, const DurableKey& key, const DurableKey& parent,
                 std::span<const TokenId> tokens) {
  CHECK(static_cast<int64_t>(image.size()) == format.image_bytes());
  CHECK(static_cast<int32_t>(tokens.size()) == format.block_len, "whole blocks are kept");
  std::fill_n(image.data(), format.header_bytes(), std::byte{0});
  ImageHead head = {};
  std::memcpy(head.magic, kImageMagic, sizeof kImageMagic);
  head.header_bytes = static_cast<uint32_t>(format.header_bytes());
  head.n_tokens = static_cast<uint32_t>(format.block_len);
  head.payload_bytes = static_cast<uint64_t>(format.payload_bytes);
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
  if (static_cast<int64_t>(image.size()) != format.image_bytes()) return BlockIo::kCorrupt;
  const auto head = load_at<ImageHead>(image, 0);
  if (std::memcmp(head.magic, kImageMagic, sizeof kImageMagic) != 0 || head.header_bytes != n_header ||
      head.n_tokens != static_cast<uint32_t>(format.block_len) ||
      head.payload_bytes != static_cast<uint64_t>(format.payload_bytes))
    return BlockIo::kForeign;
  if (header_sum(image.first(n_header)) != load_at<Sum>(image, kHeaderSumAt)) return BlockIo::kCorrupt;
  const bool is_named_so = load_at<DurableKey>(image, kKeyAt) == key;
  if (!is_named_so || durable_key_of_block(parent_of_image(image), tokens_of_image(format, image)) != key)
    return BlockIo::kForeign;
  return sum_of(image.subspan(n_header)) == load_at<Sum>(image, kPayloadSumAt) ? BlockIo::kDone : BlockIo::kCorrupt;
}

DurableKey parent_of_image(std::span<const std::byte> image) { return load_at<DurableKey>(image, kParentAt); }

std::span<const TokenId> tokens_of_image(const BlockFormat& format, std::span<const std::byte> image) {
  return {reinterpret_cast<const TokenId*>(image.data() + kTokensAt), static_cast<size_t>(format.block_len)};
}

}  // namespace ibid
