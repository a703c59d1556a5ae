// TowerConfig: the sizes of a vision tower, whatever the container they came from: a folder that holds the tower beside
// its text model, or a GGUF file of its own ("mmproj", general.architecture clip).
//
// All of it is bytes from outside: read_tower checks every number against what the tower needs. A projector that ibid
// does not run is refused by name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "model/arch/architecture.h"

namespace ibid {

enum class TowerKind : uint8_t {
  kQwen,    // Qwen3-VL, Qwen3.5: any grid of patches, rotated by row and column, 2 x 2 patches a cell
  kGemma3,  // SigLIP over one size of picture, whose patches are averaged 4 x 4 to a cell
  kGemma4,  // any grid of patches, rotated by column and row, RMS norms on both sides, averaged 3 x 3 to a cell
};

struct TowerConfig {
  TowerKind kind = TowerKind::kQwen;
  std::string architecture;  // as the file names it: "qwen3_vl", "gemma3"
  int64_t n_layers = 0;
  int64_t width = 0;       // W
  int64_t ffn_len = 0;     // F
  int64_t n_heads = 0;     // each of W / n_heads values
  int64_t patch_side = 0;  // pixels
  int64_t n_frames = 1;    // that a patch covers; a picture's are alike
  int64_t merge = 0;       // patches of a cell's side
  int64_t grid_side = 0;   // of the learned positions' grid, in patches; of gemma 4 those of one axis
  int64_t out_width = 0;   // C of the text model
  float norm_eps = 1e-6f;
  double rope_base = 10000.0;
  bool clips = false;         // gemma 4: inputs and outputs of a layer's products stay in ranges that the file has
  bool standardises = false;  // gemma 4: averages are moved and scaled by vectors that the file has
  std::vector<int64_t> deep_layers;  // after which rows are merged for the text model's first layers, ascending

  int64_t head_len() const { return width / n_heads; }
  int64_t patch_len() const { return 3 * n_frames * patch_side * patch_side; }  // values
  int64_t n_parts() const { return 1 + static_cast<int64_t>(deep_layers.size()); }
  int64_t row_len() const { return n_parts() * out_width; }  // floats of a cell
};

// Whether a folder has a tower that ibid runs, or the file is one by itself.
bool has_tower(const ModelFile& file);
// The tower that the file has.
Result<TowerConfig> read_tower(const ModelFile& file);
// The names of the file's tensors.
std::span<const WeightName> tower_names(TowerKind kind, const ModelFile& file);
// The largest of the budgets that gemma 4's processor has for a picture.
inline constexpr int64_t kMostGemma4Cells = 1120;

}  // namespace ibid
