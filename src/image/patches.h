// From a picture to the rows that a vision tower's first product takes: resized, normalised, cut into patches.
//
// A PatchRule is the recipe, in the terms of transformers' image processors; it is read from a folder's
// preprocessor_config.json or processor_config.json, or filled from a GGUF file's clip.vision.* keys. The values equal
// those of AutoImageProcessor of transformers 5.23 bit for bit: Gemma3ImageProcessor (without pan and scan),
// Qwen2VLImageProcessor (also of Qwen3-VL and Qwen3.5), Gemma4ImageProcessor, PixtralImageProcessor (also of Mistral
// 3), CLIPImageProcessor and LlavaImageProcessor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "image/picture.h"
#include "image/resize.h"

namespace ibid {

// The size to which a picture is resized.
enum class Sizing : uint8_t {
  kFixed,         // width x height, whatever the picture's shape (gemma 3, SigLIP)
  kPixelRange,    // multiples of patch x merge near the picture's own size, within min_pixels and max_pixels
                  // (smart_resize of qwen)
  kTokenBudget,   // multiples of patch x merge, aspect kept, the largest with at most max_tokens tokens (gemma 4)
  kLongestSide,   // not enlarged, shrunk to longest_side, then up to multiples of patch x merge (pixtral)
  kShortestSide,  // to shortest_side, then the middle width x height is cut out (CLIP, llava)
};

// Values of a patch in a row, and patches in order.
enum class PatchLayout : uint8_t {
  kChannelsFirst,  // [3, patch, patch], patches row by row: the flattened weight of a convolution
  kChannelsLast,   // [patch, patch, 3], patches row by row (gemma 4)
  kMergedCells,    // [3, n_times, patch, patch], the patches of a merge x merge cell together, cells row by row (qwen)
};

struct PatchRule {
  Sizing sizing = Sizing::kFixed;
  Filter filter = Filter::kBicubic;
  PatchLayout layout = PatchLayout::kChannelsFirst;
  int32_t patch = 16;   // side of a patch in pixels
  int32_t merge = 1;    // side of the square of patches that becomes one token
  int32_t n_times = 1;  // kMergedCells: how often a patch is repeated, as equal frames of a film
  int32_t width = 0;    // kFixed, kShortestSide; as is height
  int32_t height = 0;
  int64_t min_pixels = 0;  // kPixelRange
  int64_t max_pixels = 0;
  int32_t max_tokens = 0;     // kTokenBudget
  int32_t longest_side = 0;   // kLongestSide
  int32_t shortest_side = 0;  // kShortestSide
  // A value x from 0 to 255 becomes (x - mean 255) / (std 255), both factors rounded to F32 before, as the processors'
  // fused form has it. normalise = false: x times 1/255 as an F32.
  bool normalise = true;
  std::array<float, 3> mean = {0.5f, 0.5f, 0.5f};
  std::array<float, 3> std = {0.5f, 0.5f, 0.5f};
  bool operator==(const PatchRule&) const = default;
};

// The shape of the tower in the model's own configuration, which processors' files may lack. 0: not known.
struct TowerShape {
  int32_t patch = 0;  // vision_config.patch_size
  int32_t merge =
      0;  // spatial_merge_size; of gemma 3 the side of its pooling: patches a side / sqrt(mm_tokens_per_image)
};

// The rule of a preprocessor_config.json, or of a processor_config.json that holds one under "image_processor". What
// the text leaves out is the processor's default; a processor or a step that is not among those above is refused by
// name.
Result<PatchRule> read_patch_rule(std::string_view json, std::string_view where, const TowerShape& tower = {});

// Whether the numbers of a rule make sense together, for rules that are filled by hand. read_patch_rule has asked.
Status check_patch_rule(const PatchRule& rule);

// How many patches and tokens a picture becomes.
struct PatchGrid {
  PictureSize resized;  // in pixels, what is cut into patches
  int64_t grid_t = 1;   // always 1: no films
  int64_t grid_h = 0;   // in patches, as is grid_w; multiples of `merge`
  int64_t grid_w = 0;
  int64_t n_tokens =
      0;  // embeddings of the tower: grid_h grid_w / merge^2; texts around and between them are the template's
  int64_t n_patches() const { return grid_t * grid_h * grid_w; }
};

// From the picture's size alone, for budgets and prompt lengths. An error where the picture's shape is refused: a side
// of more than 200 times the other. The rule is a checked one.
Result<PatchGrid> patch_grid(const PatchRule& rule, PictureSize picture);

struct Patches {
  PatchGrid grid;
  int64_t patch_values = 0;   // 3 n_times patch^2
  std::vector<float> values;  // [n_patches, patch_values]
};

// Takes the resized picture (3 bytes a pixel) and the values (12 n_times bytes a pixel). From any thread.
Result<Patches> make_patches(const PatchRule& rule, const Picture& picture);

// What the tower's output depends on besides its weights, for keys of caches: SHA-256 over the picture's sides and
// pixels and all of the rule.
using PictureDigest = Sha256Digest;
PictureDigest picture_digest(const Picture& picture, const PatchRule& rule);

}  // namespace ibid
