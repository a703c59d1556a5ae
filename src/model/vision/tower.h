// Tower: a vision transformer and its projector: patches of a picture in, rows for the text model out.
//
// Qwen3-VL's and Qwen3.5's tower (Qwen3-VL technical report, 2025, section 2): embeddings of patches and learned
// positions, interpolated to the picture's grid; layers of attention over all patches, heads turned by row and column;
// each 2 x 2 patches then become a cell. Gemma 3's (Gemma 3 report, 2025, section 2.1) is SigLIP (Zhai et al. 2023)
// over one size of picture, whose patches are averaged to 256 cells. Gemma 4's (transformers 5.23, modeling_gemma4.py)
// has any grid, a learned position for each row and each column, gated feed-forwards, and averages of 3 x 3 patches.
//
// A picture is a TowerRun: its work is cut into steps of a few milliseconds, so that an engine can do some of it
// between its own (TowerRun::step). A row's bits depend on the picture alone: not on the cut, the threads or the
// instruction set, as all sums are those of kernels/ops.h.
//
// Threads: one thread at a time loads and runs; const members from any thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "kernels/batch_arrays.h"
#include "kernels/ops.h"
#include "model/linear_layer.h"
#include "model/vision/picture_rows.h"
#include "model/vision/tower_config.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"

namespace ibid {

// A picture's patches, as src/image/patches.h makes them: in the order of cells, and within a cell row by row.
struct TowerInput {
  int32_t grid_rows = 0, grid_columns = 0;  // patches
  std::span<const float> patches;           // [grid_rows * grid_columns, patch_len()]
};

class TowerRun;
class WeightLoader;

inline constexpr int64_t kMostTowerRows = 256;  // of a piece of a picture's work

// What a picture of so many patches takes while it is made, its rows included.
int64_t run_bytes(const TowerConfig& config, int64_t n_patches);
// Of a file's tensors, those of its tower.
int64_t tower_bytes(const ModelFile& file);

class Tower {
 public:
  // Reads, checks and packs the tower of a folder or of a GGUF file, which it keeps. `max_patches`: of the largest
  // picture. `digest` names the weights (format/model_digest.h).
  static Result<std::unique_ptr<Tower>> load(std::shared_ptr<const ModelFile> file, std::string digest,
                                             int64_t max_patches, Stream& stream);

  const TowerConfig& config() const { return config_; }
  const std::string& digest() const { return digest_; }
  int64_t max_patches() const { return max_patches_; }
  int64_t weight_bytes() const { return weight_bytes_; }

  // What a picture of so many patches becomes, without values; `digest` names it. kInvalid: the tower reads no such
  // grid.
  Result<PictureRows> rows_of(int32_t grid_rows, int32_t grid_columns, const Sha256Digest& digest) const;
  // Begins a picture of such a grid. `input` is copied. Errors: no memory for it.
  Result<std::unique_ptr<TowerRun>> begin(const TowerInput& input) const;

 private:
  friend class TowerRun;
  struct Norm {
    TensorView weight, bias;  // [W]
  };
  // What a product of gemma 4 takes and gives is kept within.
  struct Clip {
    float low_in, high_in, low_out, high_out;
  };
  enum Product : uint8_t { kQ, kK, kV, kOut, kGate, kUp, kDown, kProducts };
  struct Layer {
    Norm before_attention, before_ffn;                        // gemma 4's have no bias
    TensorView after_attention, after_ffn;                    // [W], gemma 4's
    TensorView q_norm, k_norm;                                // [W / heads], gemma 4's
    std::vector<Linear> qkv;                                  // one of all three, or three
    Linear out, gate, up, down;                               // gate: gemma 4's
    std::unique_ptr<const std::array<Clip, kProducts>> clip;  // null: none
  };
  struct Merger {  // of cells of merge^2 patches
    Norm norm;     // of a patch; of a whole cell for the layers in between
    Linear up, down;
  };

  Tower(std::shared_ptr<const ModelFile> file, TowerConfig config, std::string digest, int64_t max_patches)
      : file_(std::move(file)), config_(std::move(config)), digest_(std::move(digest)), max_patches_(max_patches) {}
  Status load_weights(Stream& stream);
  Status load_qwen_end(WeightLoader& w);
  Status load_gemma3_end(WeightLoader& w);
  Status load_gemma4_end(WeightLoader& w);
  Status load_layer(WeightLoader& w, int64_t l);
  Status load_gemma4_layer(WeightLoader& w, int64_t l);
  // Pairs of the first half of them turn by the first axis that is named.
  void set_rope(uint8_t first, uint8_t second);
  ops::Rope rope() const {
    return {.n_pairs = static_cast<int>(frequency_.size()), .frequency = frequency_.data(), .axes = axes_.data()};
  }

  std::shared_ptr<const ModelFile> file_;
  TowerConfig config_;
  std::string digest_;
  int64_t max_patches_;
  int64_t weight_bytes_ = 0;
  Linear patches_;        // [W, patch_len]
  TensorView positions_;  // [grid_side^2 W] as one vector; gemma 4's [2 grid_side W], of columns, then of rows
  std::vector<Layer> layers_;
  Norm last_norm_;                   // gemma 3's
  Merger merger_;                    // qwen's
  std::vector<Merger> deep_;         // one for each of deep_layers
  TensorView soft_norm_;             // [W], gemma 3's; ones of gemma 4
  TensorView std_bias_, std_scale_;  // [W], gemma 4's; rank 0: none
  TensorView ones_;                  // [W / heads], gemma 4's norm of values
  Linear projection_;                // [C, W], gemma 3's and 4's
  std::vector<double> frequency_;    // of half a head's pairs, twice: by row, by column
  std::vector<uint8_t> axes_;
  std::vector<std::unique_ptr<float[]>> copies_;
};

// How much a step does: some milliseconds of two cores, so that it fits between an engine's steps; or, where nothing
// else is to be done, up to eight times that, which reads weights less often.
enum class TowerPace : uint8_t { kBetweenSteps, kAlone };

class TowerRun {
 public:
  // The next piece of the work. True: all is done, and take() has the rows. Their bits do not depend on the pace.
  bool step(Stream& stream, TowerPace pace = TowerPace::kBetweenSteps);
  // Of the steps that are done, 0 to 1.
  double progress() const { return static_cast<double>(n_done_) / static_cast<double>(n_steps_); }
  std::vector<float> take();  // PictureRows::values

 private:
  friend class Tower;
  explicit TowerRun(const Tower& tower) : tower_(tower) {}
  Status allocate(const TowerInput& input);

  enum class StageKind : uint8_t { kEmbed, kKeys, kAttend, kDeep, kMerge, kAverage };
  struct Stage {
    StageKind kind;
    int64_t index;   // of the layer, or of the merger
    int64_t n_rows;  // patches or cells
    int64_t piece;   // rows of a step between others
    int64_t most;    // that scratch memory has room for
  };
  struct Place {
    int64_t row, column;
  };
  void list_stages();
  Place place_of(int64_t patch) const;
  void add_position(const Place& at, float* x) const;
  void embed(Stream& s, int64_t from, int64_t n);
  void keys(Stream& s, const Tower::Layer& layer, int64_t from, int64_t n);
  void gemma4_keys(Stream& s, const Tower::Layer& layer, int64_t from, int64_t n);
  void attend(Stream& s, const Tower::Layer& layer, int64_t from, int64_t n);
  void gemma4_attend(Stream& s, const Tower::Layer& layer, int64_t from, int64_t n);
  // A product of a layer of gemma 4, within its ranges.
  void product(Stream& s, const Tower::Layer& layer, Tower::Product which, const TensorView& out, const TensorView& x);
  void merge(Stream& s, const Tower::Merger& merger, bool norms_cells, int64_t part, int64_t from, int64_t n);
  void average(Stream& s, int64_t from, int64_t n);
  void gemma4_average(Stream& s, int64_t from, int64_t n);
  void put(const TensorView& out, int64_t part, int64_t from);
  static TensorView rows(const TensorView& of, int64_t from, int64_t n);
  ForwardBatch batch_of(int64_t from, int64_t n);

  const Tower& tower_;
  int64_t n_patches_ = 0, grid_rows_ = 0, grid_columns_ = 0, n_cells_ = 0;
  int64_t n_steps_ = 0, n_done_ = 0;
  std::vector<Stage> stages_;
  size_t stage_ = 0;  // the one at hand, and its next row
  int64_t at_ = 0;
  Buffer memory_;
  TensorView input_;                          // [n, patch_len]
  TensorView x_, q_;                          // [n, W]
  TensorView h_, qkv_, attended_, out_, up_;  // of a piece's rows
  TensorView gate_, clipped_;                 // gemma 4's
  TensorView cells_;                          // [cells of a piece, merge^2 W]
  TensorView cell_up_;
  TensorView cos_sin_;
  std::vector<int32_t> turned_by_;  // [n, 3]
  std::vector<BlockId> blocks_;
  PagedKv kv_;
  BatchArrays arrays_{1, {}};
  std::vector<float> result_;
};

}  // namespace ibid
