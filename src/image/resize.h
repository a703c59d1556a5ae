// Resampling of pictures with antialiasing, bilinear and bicubic (Keys, a = -0.5).
//
// The pixels are those of torchvision's resize(antialias=True) on tensors of uint8, which transformers' image
// processors use wherever torchvision is installed, so those of AutoImageProcessor. It widens the filter by the scale
// when it shrinks, and works on one axis after the other, width first, in integers: the weights of an axis are rounded
// to 16 bits at the largest binary scale at which all of them fit, and each axis ends with a rounding to uint8
// (UpSampleKernel.cpp of PyTorch: HelperInterpBase::_compute_index_ranges_int16_weights).
//
// Pillow's resize has the same filters with weights of 22 bits. Of tools/make_golden_images.py's pictures at most one
// value of ninety differs from these, by one; a quarter of them where a side shrinks seventy times. For bilinear
// filters torchvision itself computes in floats on x86 processors without AVX2, with other values; those are not
// followed.
#pragma once

#include <cstdint>

#include "image/picture.h"

namespace ibid {

enum class Filter { kBilinear, kBicubic };

// The picture in another size, at least 1 x 1; the picture itself where its size is that already. From any thread.
// Takes about (width + height of the result) x 2 x (filter's width) bytes for weights and rows besides the result.
Picture resize_picture(const Picture& picture, PictureSize size, Filter filter);

}  // namespace ibid
