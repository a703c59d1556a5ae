// Any bytes as a picture, and again as a PNG whose checksums are right.
#include <cstdlib>
#include <string>

#include "image/decode.h"

namespace {

// A picture that decodes has the size that its header says, and the same pixels each time.
void decode(std::span<const std::byte> bytes) {
  const ibid::DecodeLimits limits = {.max_pixels = 1 << 20, .max_memory = 32 << 20, .max_scans = 20};
  const ibid::Result<ibid::PictureSize> size = ibid::read_picture_size(bytes, limits);
  const ibid::Result<ibid::Picture> picture = ibid::decode_picture(bytes, limits);
  if (!picture.ok()) {
    if (picture.error().message.size() < 12 || picture.error().message.size() > 400) std::abort();
    return;
  }
  if (!size.ok() || !(picture->size == *size) || picture->rgb.size() != static_cast<size_t>(size->n_pixels()) * 3)
    std::abort();
  if (ibid::decode_picture(bytes, limits)->rgb != picture->rgb) std::abort();
}

// The checksum of PNG (CRC-32 of ISO 3309).
uint32_t checksum(std::string_view bytes) {
  uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes) {
    sum ^= static_cast<uint8_t>(c);
    for (int k = 0; k < 8; ++k) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
  }
  return ~sum;
}

// The same file with the checksum of each of its chunks, as far as chunks follow each other.
std::string with_checksums(std::string bytes) {
  for (size_t at = 8; bytes.size() - at >= 12;) {
    size_t n = 0;
    for (size_t i = 0; i < 4; ++i) n = n << 8 | static_cast<uint8_t>(bytes[at + i]);
    if (n > bytes.size() - at - 12) break;
    const uint32_t sum = checksum(std::string_view(bytes).substr(at + 4, n + 4));
    for (size_t i = 0; i < 4; ++i) bytes[at + 8 + n + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += n + 12;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  decode(std::as_bytes(std::span(data, size)));
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.size() > 8 && text.starts_with("\x89PNG")) {
    const std::string mended = with_checksums(text);
    decode(std::as_bytes(std::span(mended)));
  }
  return 0;
}
