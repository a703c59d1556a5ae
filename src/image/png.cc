#include <spng.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "image/decoders.h"
#include "image/orientation.h"

namespace ibid {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkFrame = 12;  // length, type, checksum

uint32_t big_endian(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

struct PngChunk {
  size_t n_bytes = 0;  // of the whole chunk
  std::string_view type;
  std::span<const std::byte> data;
  bool ancillary() const { return (type[0] & 0x20) != 0; }
};

// The chunk at `at`, as much of it as is there; false at the end of the bytes.
bool chunk_at(std::span<const std::byte> bytes, size_t at, PngChunk& out) {
  if (bytes.size() - at < 8) return false;
  const size_t n_data = big_endian(bytes, at);
  const size_t n_there = std::min(n_data, bytes.size() - at - 8);
  out.n_bytes = std::min(n_data + kChunkFrame, bytes.size() - at);
  out.type = {reinterpret_cast<const char*>(bytes.data()) + at + 4, 4};
  out.data = bytes.subspan(at + 8, n_there);
  return true;
}

// What libspng reads: the file without its ancillary chunks. None of them changes a pixel here, and their compressed
// texts and profiles are not worth the risk of inflating them.
class CriticalChunks {
 public:
  explicit CriticalChunks(std::span<const std::byte> bytes) : bytes_(bytes), n_left_(kSignatureBytes) {}

  static int read(spng_ctx*, void* self, void* to, size_t n) {
    return static_cast<CriticalChunks*>(self)->read(static_cast<std::byte*>(to), n);
  }

 private:
  int read(std::byte* to, size_t n) {
    while (n > 0) {
      while (n_left_ == 0) {
        PngChunk chunk;
        if (!chunk_at(bytes_, at_, chunk)) return SPNG_IO_EOF;
        if (chunk.ancillary()) {
          at_ += chunk.n_bytes;
        } else {
          n_left_ = chunk.n_bytes;
        }
      }
      const size_t n_now = std::min(n, n_left_);
      std::memcpy(to, bytes_.data() + at_, n_now);
      to += n_now;
      n -= n_now;
      at_ += n_now;
      n_left_ -= n_now;
    }
    return 0;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  size_t n_left_;  // of the chunk that is being read
};

Error damaged(int code) {
  if (code == SPNG_EMEM) return out_of_memory();
  if (code == SPNG_IO_EOF) return invalid("The PNG picture is cut off.");
  return invalid("The PNG picture is damaged: " + std::string(spng_strerror(code)) + ".");
}

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> bytes) : chunks_(bytes), context_(spng_ctx_new(0)) {}

  Status start(spng_ihdr& header) {
    if (context_ == nullptr) return out_of_memory();
    if (const int code = spng_set_png_stream(context_.get(), CriticalChunks::read, &chunks_); code != 0) {
      return damaged(code);
    }
    if (const int code = spng_get_ihdr(context_.get(), &header); code != 0) return damaged(code);
    return {};
  }

  Status pixels(int format, std::span<uint8_t> to) {
    const int code = spng_decode_image(context_.get(), to.data(), to.size(), format, 0);
    return code == 0 ? Status() : Status(damaged(code));
  }

 private:
  struct Free {
    void operator()(spng_ctx* context) const { spng_ctx_free(context); }
  };
  CriticalChunks chunks_;
  std::unique_ptr<spng_ctx, Free> context_;
};

// The packet of an XMP text chunk (iTXt), empty for others and for compressed ones.
std::span<const std::byte> xmp_of(std::span<const std::byte> text) {
  constexpr std::string_view kKeyword("XML:com.adobe.xmp\0\0\0", 20);  // not compressed, method 0
  if (text.size() < kKeyword.size() || std::memcmp(text.data(), kKeyword.data(), kKeyword.size()) != 0) return {};
  std::span<const std::byte> rest = text.subspan(kKeyword.size());
  for (int i = 0; i < 2; ++i) {  // a language, the keyword in it
    const auto end = std::find(rest.begin(), rest.end(), std::byte{0});
    if (end == rest.end()) return {};
    rest = rest.subspan(static_cast<size_t>(end - rest.begin()) + 1);
  }
  return rest;
}

}  // namespace

Result<StoredPicture> read_png_header(std::span<const std::byte> bytes) {
  PngReader reader(bytes);
  spng_ihdr header = {};
  TRY(reader.start(header));
  StoredPicture out;
  out.width = header.width;
  out.height = header.height;
  // A few rows of at most eight bytes a pixel, the decompressor's window.
  out.decoder_bytes = uint64_t{header.width} * 32 + (1 << 20);
  std::span<const std::byte> exif, xmp;
  PngChunk chunk;
  for (size_t at = kSignatureBytes; chunk_at(bytes, at, chunk); at += chunk.n_bytes) {
    if (chunk.type == "eXIf") exif = chunk.data;
    if (chunk.type == "iTXt") {
      if (const auto packet = xmp_of(chunk.data); !packet.empty()) xmp = packet;
    }
    if (chunk.type == "IEND") break;
  }
  out.orientation = orientation_of(exif, xmp);
  return out;
}

Status decode_png(std::span<const std::byte> bytes, std::span<uint8_t> rgb) {
  PngReader reader(bytes);
  spng_ihdr header = {};
  TRY(reader.start(header));
  // Grey of 16 bits without alpha is the one that Pillow does not narrow by its upper half.
  if (header.color_type != SPNG_COLOR_TYPE_GRAYSCALE || header.bit_depth != 16) {
    return reader.pixels(SPNG_FMT_RGB8, rgb);
  }
  // Two bytes a pixel, in the first part of the room for three; then spread from the end.
  const size_t n = rgb.size() / 3;
  TRY(reader.pixels(SPNG_FMT_RAW, rgb.first(2 * n)));
  for (size_t i = n; i-- > 0;) {
    const uint8_t value = rgb[2 * i] != 0 ? 255 : rgb[2 * i + 1];
    std::fill_n(rgb.begin() + static_cast<ptrdiff_t>(3 * i), 3, value);
  }
  return {};
}

}  // namespace ibid
