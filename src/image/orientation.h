// The orientation of a picture: which of the eight ways of turning and mirroring makes it upright (EXIF 2.32, tag
// 0x0112).
#pragma once

#include <cstddef>
#include <span>

#include "image/picture.h"

namespace ibid {

// Of the bytes of an EXIF block (with or without "Exif\0\0" before it) and of an XMP packet; either may be empty. EXIF
// counts before XMP. 1 (upright) where neither names one from 1 to 8, and where they are damaged.
int orientation_of(std::span<const std::byte> exif, std::span<const std::byte> xmp);

// Whether width and height change places.
inline bool turns_sides(int orientation) { return orientation >= 5; }

// The picture made upright; needs a second one of the same size meanwhile, except for orientation 1.
Picture upright(Picture picture, int orientation);

}  // namespace ibid
