// Any bytes as an image processor's configuration: a rule that is accepted gives every picture patches, tokens or a
// sentence.
#include <cstdlib>

#include "image/patches.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ibid::Result<ibid::PatchRule> rule = ibid::read_patch_rule(text, "fuzz");
  if (!rule.ok()) return 0;
  for (const ibid::PictureSize picture : {ibid::PictureSize{1, 1}, {200, 1}, {1, 200}, {640, 480}, {65'535, 900}}) {
    const ibid::Result<ibid::PatchGrid> grid = ibid::patch_grid(*rule, picture);
    if (!grid.ok()) continue;
    if (grid->n_tokens < 1 || grid->n_patches() < grid->n_tokens || grid->grid_h % rule->merge != 0 ||
        grid->grid_w % rule->merge != 0 || grid->resized.n_pixels() > int64_t{1} << 29) {
      std::abort();
    }
    if (grid->resized.n_pixels() > 1 << 16 || picture.n_pixels() > 1 << 19) continue;
    ibid::Picture pixels{picture, std::vector<uint8_t>(static_cast<size_t>(picture.n_pixels()) * 3, 77)};
    const ibid::Result<ibid::Patches> patches = ibid::make_patches(*rule, pixels);
    if (!patches.ok() || patches->values.size() != static_cast<size_t>(grid->n_patches() * patches->patch_values))
      std::abort();
  }
  return 0;
}
