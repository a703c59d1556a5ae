// Decodes a picture from a file's bytes: PNG, JPEG (baseline and progressive) and WebP, by libspng, libjpeg-turbo and
// libwebp. Other formats are refused by name.
//
// The pixels are those of Pillow's `exif_transpose(Image.open(f)).convert("RGB")`, which is what load_image of
// transformers gives:
//   - alpha is dropped, not blended: the colour under a transparent pixel counts;
//   - grey becomes three equal values; CMYK (inverted, as Adobe writes it) becomes R = (255 - K) - (255 - K) C / 255;
//   - of 16 bits the upper eight count, but values of a grey picture without alpha are cut at 255;
//   - of an animation the first frame counts, on a black canvas;
//   - the orientation of EXIF, else of XMP, is applied. PNG's ImageMagick profiles in text chunks are not read.
// Colour profiles and gamma are not applied.
//
// The pixels are a function of the bytes alone. JPEG is decoded with the accurate integer DCT (JDCT_ISLOW) and smooth
// upsampling, for which libjpeg-turbo's vector code has the bits of its C code; its own tests compare the two. libwebp
// holds its vector code to its C code too, and PNG has no arithmetic but that of its filters. The tests hold x86-64 and
// 64-bit ARM, with and without libjpeg-turbo's vector code, to the same digests.
//
// The bytes are from outside. Size and memory are checked from the header, before pixels are allocated. A file that
// ends before its last pixel is an error, as is damage that a decoder notices; checksums of PNG are read, except those
// of chunks that are of no use here. From any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "image/picture.h"

namespace ibid {

struct DecodeLimits {
  size_t max_bytes = 20'000'000;            // of the file
  int64_t max_pixels = 64'000'000;          // width x height
  int32_t max_side = 65'535;                // in pixels
  uint64_t max_memory = uint64_t{1} << 30;  // bytes: the picture, a turned copy, and what the decoder holds beside it
  int max_scans = 100;                      // of a JPEG
};

// What decode_picture would give, turned as EXIF has it, from the header: no pixel is decoded. A file whose header is
// right may still fail to decode.
Result<PictureSize> read_picture_size(std::span<const std::byte> bytes, const DecodeLimits& limits = {});

Result<Picture> decode_picture(std::span<const std::byte> bytes, const DecodeLimits& limits = {});

}  // namespace ibid
