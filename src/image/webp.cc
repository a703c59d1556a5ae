#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "image/decoders.h"
#include "image/orientation.h"

namespace ibid {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
using Demuxer = std::unique_ptr<WebPDemuxer, DeleteDemuxer>;

// The parts of a file, null if it is cut off or damaged.
Demuxer parts_of(std::span<const std::byte> bytes) {
  const WebPData data = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  return Demuxer(WebPDemux(&data));
}

Error damaged() { return invalid("The WebP picture is cut off or damaged."); }

// The bytes of the first chunk of this name.
std::span<const std::byte> chunk(const WebPDemuxer* parts, const char* name) {
  WebPChunkIterator it = {};
  std::span<const std::byte> out;
  if (WebPDemuxGetChunk(parts, name, 1, &it)) out = {reinterpret_cast<const std::byte*>(it.chunk.bytes), it.chunk.size};
  WebPDemuxReleaseChunkIterator(&it);
  return out;
}

}  // namespace

Result<StoredPicture> read_webp_header(std::span<const std::byte> bytes) {
  const Demuxer parts = parts_of(bytes);
  if (parts == nullptr) return damaged();
  StoredPicture out;
  out.width = WebPDemuxGetI(parts.get(), WEBP_FF_CANVAS_WIDTH);
  out.height = WebPDemuxGetI(parts.get(), WEBP_FF_CANVAS_HEIGHT);
  if (out.width < 1 || out.height < 1) return damaged();
  // Lossless: four bytes a pixel and rows that wait. Else an alpha plane at most, rows of macroblocks.
  out.decoder_bytes =
      5 * static_cast<uint64_t>(out.width) * static_cast<uint64_t>(out.height) + 256 * uint64_t(out.width) + (4 << 20);
  out.orientation = orientation_of(chunk(parts.get(), "EXIF"), chunk(parts.get(), "XMP "));
  return out;
}

Status decode_webp(std::span<const std::byte> bytes, std::span<uint8_t> rgb) {
  const Demuxer parts = parts_of(bytes);
  if (parts == nullptr) return damaged();
  const size_t width = WebPDemuxGetI(parts.get(), WEBP_FF_CANVAS_WIDTH);
  WebPIterator frame = {};
  if (!WebPDemuxGetFrame(parts.get(), 1, &frame)) return damaged();
  // A frame may be smaller than the canvas; the demuxer holds it within.
  const size_t begin = 3 * (static_cast<size_t>(frame.y_offset) * width + static_cast<size_t>(frame.x_offset));
  const bool decoded = frame.complete != 0 && begin < rgb.size() &&
                       WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, rgb.data() + begin,
                                         rgb.size() - begin, static_cast<int>(3 * width)) != nullptr;
  WebPDemuxReleaseIterator(&frame);
  return decoded ? Status() : Status(damaged());
}

}  // namespace ibid
