// BlockImage: a block, or a recurrent model's state after some of a block's tokens, as one run of bytes that can be
// kept outside of the process and identified: a file of the disk tier, byte by byte. Little-endian:
//
//      0  "ibidkv01", of a state "ibidst01"
//      8  u32 bytes of the header, u32 tokens: B, of a state 1 to B
//     16  u64 bytes of the payload, u64 zero
//     32  its key, 64 that of the block before (cache/durable_key.h)
//     96  XXH3-128 of the payload (low, high)
//    112  XXH3-128 of the header, with these 16 bytes as zero
//    128  i32 tokens, zeros up to B of them and to a multiple of 64: the header's end
//         the payload: keys and values of all layers (KvStore::export_block); of a state, those of the block that it
//         lies in, valid up to its tokens, and then the state (StateStore::export_state)
//
// So a sequence goes on from the images of whole blocks and one of a state, wherever in a block that lies.
//
// Which model, dtype, layout, arithmetic and tenant it belongs to is in the key, and nowhere else: who knows less
// cannot ask for it. An image is believed where it has the right length, both checksums agree, and the key is the one
// asked for and that of its own parent and tokens. The checksums find what broke, not what somebody made: the folder is
// its owner's alone (block_folder.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/durable_key.h"

namespace ibid {

enum class ImageKind : uint8_t { kBlock, kState };

struct BlockFormat {
  int32_t block_len = 0;      // B
  int64_t payload_bytes = 0;  // of a block
  int64_t state_bytes = 0;    // of a recurrent state; 0: the model has none, and there are no images of states
  int64_t header_bytes() const { return (128 + 4 * int64_t{block_len} + 63) / 64 * 64; }
  int64_t image_bytes(ImageKind kind = ImageKind::kBlock) const {
    return header_bytes() + payload_bytes + (kind == ImageKind::kState ? state_bytes : 0);
  }
};

// What came of reading or writing one.
enum class BlockIo : uint8_t {
  kDone,
  kMissing,  // there is none
  kFailed,   // the system refused, or broke
  kNoSpace,
  kCorrupt,  // torn, or a bit flipped
  kForeign,  // whole, but not what its name states, or of another format
};

// The kind of an image of this length; of any other length, a block.
inline ImageKind kind_of(const BlockFormat& format, std::span<const std::byte> image) {
  const bool is_state = static_cast<int64_t>(image.size()) > format.image_bytes();
  return is_state ? ImageKind::kState : ImageKind::kBlock;
}
// Writes the header but for the checksums. `image` has the length of its kind; tokens: B of them, of a state 1 to B.
void begin_image(const BlockFormat& format, std::span<std::byte> image, const DurableKey& key, const DurableKey& parent,
                 std::span<const TokenId> tokens);
std::span<std::byte> payload_of(const BlockFormat& format, std::span<std::byte> image);
void seal_image(std::span<std::byte> image);  // the checksums
// kDone, kCorrupt or kForeign. Any bytes will do.
BlockIo check_image(const BlockFormat& format, std::span<const std::byte> image, const DurableKey& key);
// Of an image that was checked.
DurableKey parent_of_image(std::span<const std::byte> image);
std::span<const TokenId> tokens_of_image(std::span<const std::byte> image);

}  // namespace ibid
