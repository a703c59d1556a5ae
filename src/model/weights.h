// The weights of a model by their canonical names, checked: each is there, has the shape that the configuration
// specifies and a type that its place allows; and the file holds nothing that the forward pass would leave out.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"
#include "format/quant_recipe.h"
#include "kernels/weight.h"
#include "model/adapters.h"
#include "model/arch/architecture.h"
#include "model/config.h"
#include "model/linear_layer.h"
#include "model/packed_file.h"
#include "tensor/stream.h"

namespace ibid {

// A canonical name for one layer: layer_name("blk.{}.attn_q.weight", 3) = "blk.3.attn_q.weight".
std::string layer_name(std::string_view pattern, int64_t layer);

// A product as a block asks for it: its tensors are <name>.weight and, where there is one, <name>.bias.
struct LinearSpec {
  std::string_view name;  // "blk.{}.attn_q"
  int64_t n_outputs = 0;  // N
  int64_t n_inputs = 0;   // K
  Cut cut = Cut::kNone;
  int64_t group_len = 1;  // of inputs that stay together on one rank (kernels/k_pieces.h)
  bool has_bias = false;
  // Where its tensors are a part of others': their rows in all, of which it has those from the first on. 0: they are
  // not.
  int64_t n_rows = 0, first_row = 0;
};

// How a file keeps the rows of two matrices that are one product: gate above up, or row 2 i and row 2 i + 1 row i of
// each.
enum class RowOrder : uint8_t { kAsTheyAre, kPairs };

// Finds, checks and prepares. Holds what had to be copied (norms to F32), so it lives as long as the model.
class WeightLoader {
 public:
  using Progress = std::function<void(double share)>;

  // `sized_only`: everything is checked and counted, and no matrix is read or prepared. `packed`: an earlier load's
  // matrices, which are not packed again; it outlives the weights. Null: none.
  WeightLoader(const ModelFile& file, const Architecture& architecture, const ModelConfig& config, Stream& stream,
               Progress progress, bool sized_only = false, const PackedFile* packed = nullptr);

  // A matrix [n_outputs, n_inputs] of F32, F16, BF16 or a quantised type, repacked for ops::linear. `use_packed` false:
  // only embed() will read it. Where both do, the file's own bytes are counted too.
  Status matrix(Weight& out, std::string_view name, int64_t layer, int64_t n_outputs, int64_t n_inputs,
                bool use_packed = true);
  // A product of the forward pass. One that ranks would cut along its inputs is summed in pieces of K.
  // Gets a seat for adapters.
  Status linear(Linear& out, const LinearSpec& spec, int64_t layer);
  // The E matrices of a layer's experts, each of spec's sizes, as E weights: from one tensor [E, N, K], or from one
  // tensor for each; and their seat.
  Status experts(std::vector<Weight>& out, int32_t& seat, const LinearSpec& spec, int64_t layer, int64_t n_experts);
  // The same of a folder of gpt-oss, which keeps columns, [E, K, N]; or MXFP4 as its blocks [E, N, K / 32, 16], of
  // which byte i holds values 2 i and 2 i + 1, beside their exponents [E, N, K / 32]. What is prepared is a copy in the
  // order of GGUF, one tensor at a time, and is packed at each load.
  Status turned_experts(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_experts,
                        RowOrder order);
  bool has_turned_experts(const LinearSpec& spec, int64_t layer) const;
  // Their biases, as F32 [E, N].
  Status expert_bias(TensorView& out, const LinearSpec& spec, int64_t layer, int64_t n_experts, RowOrder order);
  // A matrix of each head, from one tensor [H, N, K] or [H N, K].
  Status heads(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_heads);
  // Both of latent attention (model/latent_attention.h) from one tensor, whose rows are of each head those of keys
  // [plain, R], then those of values [V, R]. The first become [R, plain] of the same type of floats, or of F32 where
  // they were quantised. Both are copies, packed at each load.
  Status split_heads(std::vector<Weight>& k_b, std::vector<Weight>& v_b, std::string_view name,
                     const LinearSpec& of_keys, const LinearSpec& of_values, int64_t layer, int64_t n_heads);
  // A matrix [n_outputs, n_inputs] that is multiplied in fp32 whatever its type of floats: a router's. One of one
  // output may be a vector in the file.
  Status float_matrix(Linear& out, std::string_view name, int64_t layer, int64_t n_outputs, int64_t n_inputs);
  // Whether the file has the tensor.
  bool has(std::string_view name, int64_t layer) const;
  // A vector [len], which a file may have as [1, len], as F32, plus `offset`, times `factor`. F32 vectors without both
  // stay in the mapping.
  Status vector(TensorView& out, std::string_view name, int64_t layer, int64_t len, float offset = 0.0f,
                float factor = 1.0f);
  // A vector [n_rows n_columns], which a file may have as a matrix, or as several of n_rows in all, as F32.
  Status flat(TensorView& out, std::string_view name, int64_t layer, int64_t n_rows, int64_t n_columns);
  // A vector of no tensor: slopes of heads, the weight or the bias of a norm that has none.
  void constant(TensorView& out, std::span<const float> values);

  // The taps of a convolution over time, [n_taps, n_channels] F32 whatever its type of floats. A file has them channel
  // by channel: [n_channels, n_taps], in a folder [n_channels, 1, n_taps].
  Status taps(TensorView& out, std::string_view name, int64_t layer, int64_t n_taps, int64_t n_channels);

  // The convolution that makes a vision tower's embeddings of patches, as a product of F32 [N, 3 n_frames side side],
  // channels outermost. A folder has it whole; a GGUF has NAME.weight and NAME.weight.1, of a frame each.
  Status patches(Linear& out, std::string_view name, int64_t n_outputs, int64_t n_frames, int64_t side);
  // The same of one frame with channels innermost [N, side side 3], as a folder of gemma 4 has it, and without a bias.
  // A GGUF has channels outermost.
  Status patches_by_pixel(Linear& out, std::string_view name, int64_t n_outputs, int64_t side);

  // A matrix of floats that both containers keep as [n_inputs, n_outputs], turned to F32.
  Status transposed(Linear& out, std::string_view name, int64_t n_outputs, int64_t n_inputs);

  // What heads of a recurrent layer decay by, [len] below 0: GGUF has it, a folder the logarithm of its size.
  Status decay(TensorView& out, std::string_view name, int64_t layer, int64_t len);

  // A seat for a product whose weight was not read by its name: tied outputs.
  void give_seat(Linear& out, std::string_view name, int64_t layer);
  std::vector<AdapterSeat> take_seats() { return std::move(seats_); }

  // After all reads: a tensor that nothing read is an error that names it, except those known to be of no use to us.
  Status expect_all_read() const;

  const DeviceMemory& memory() const { return stream_.memory(); }  // where the model is loaded to
  int64_t mapped_bytes() const { return mapped_bytes_; }           // read where they lie in the file
  int64_t repacked_bytes() const { return repacked_bytes_; }       // own copies, or those that a PackedFile maps
  // All matrices that were packed, and how many of them were packed again.
  const PackedFileWriter& prepared() const { return prepared_; }
  int64_t n_packed_again() const { return n_packed_again_; }
  std::vector<std::unique_ptr<float[]>> take_copies() { return std::move(copies_); }

 private:
  // By their names in the file. `find_matrix` also finds one of a folder that has several tensors for it
  // (format/quantised_matrix.h): the view is of a copy, which `copy_` holds until the next one is made; null where
  // nothing is read.
  bool is_there(const std::string& in_file) const;
  Result<TensorView> find(const std::string& in_file, std::initializer_list<int64_t> shape);
  Result<TensorView> find_matrix(const std::string& in_file, std::initializer_list<int64_t> shape);
  Status load(Linear& out, const LinearSpec& spec, int64_t layer);
  Status load_experts(std::vector<Weight>& out, const LinearSpec& spec, int64_t layer, int64_t n_experts);
  AdapterSeat& add_seat(std::string_view name, int64_t layer, const Weight& weight);
  // A folder's matrix [n_inputs, n_outputs] (WeightName::transposed), as the other way around in F32, not packed
  // before.
  Status transpose(Weight& out, const LinearSpec& spec, const std::string& in_file);
  // A tensor of n floats that embeds patches, claimed; and its product of a copy [N, K].
  Result<const TensorInfo*> find_patches(const std::string& in_file, int64_t n);
  void take_patches(Linear& out, std::unique_ptr<float[]> copy, int64_t n_outputs, int64_t n_inputs);
  // A vector of all numbers of a tensor of floats.
  Status take_vector(TensorView& out, const TensorView& in_shape, const std::string& in_file, float offset,
                     float factor);
  // The same of one whose rows are by head (WeightName::by_head), in the order of GGUF, of its own type; and its bias.
  Status part_heads(Linear& out, const LinearSpec& spec, const std::string& in_file, int64_t layer);
  const WeightName* in_table(std::string_view canonical) const;  // of a folder; null: none, or a GGUF
  // The copy of a quantised folder's matrix is kept where it is read as it is, or `keeps_copy`; it has no packed file.
  Status prepare(Weight& out, const TensorView& view, const KPieces& pieces, const std::string& in_file,
                 bool keeps_copy = false);
  Weight pack(const TensorView& view, const KPieces& pieces, const std::string& in_file);
  std::vector<Weight> pack_all(const TensorView& view, const KPieces& pieces, const std::string& in_file);
  Status part_of_rows(Linear& out, const LinearSpec& spec, const std::string& in_file, int64_t layer);
  // E matrices of a copy [E, N, K], whose data is null where nothing is read; or, without a copy, of the file.
  void take_copy(std::vector<Weight>& out, const TensorView& view, const KPieces& pieces,
                 std::unique_ptr<float[]> copy);
  Status expect_floats(const TensorView& view, const std::string& in_file, std::string_view what) const;
  // The factors of products that a GGUF file has as NAME.scale beside NAME.weight, F32 [1], of E experts [E]; most have
  // none. (NAME.input_scale, of 4-bit activations, is not read.)
  Status read_out_scales(std::span<Weight> weights, std::string_view name, int64_t layer);
  Status check_supported(const TensorView& view, const std::string& in_file) const;
  Result<TensorView> convert(const std::string& in_file, std::initializer_list<int64_t> shape);
  void claim(const TensorInfo& info);
  void count(const Weight& weight, bool reads_raw);
  // Of several names that the tensor may have in a folder the one that the file has, else the first; empty: the
  // architecture has no such tensor in a folder.
  std::string name_in_file(std::string_view canonical, int64_t layer) const;

  const ModelFile& file_;
  const Architecture& architecture_;
  const ModelConfig& config_;
  Stream& stream_;
  Progress progress_;
  bool sized_only_;
  const PackedFile* packed_;
  PackedFileWriter prepared_;
  int64_t n_packed_again_ = 0;
  std::string prefix_;  // of a folder's names
  std::vector<bool> read_;
  std::vector<std::unique_ptr<float[]>> copies_;
  std::vector<AdapterSeat> seats_;
  QuantRecipe recipe_;
  std::unique_ptr<float[]> copy_;  // of the matrix that was found last, where it was converted
  bool is_copy_ = false;           // it was
  int64_t mapped_bytes_ = 0, repacked_bytes_ = 0, done_bytes_ = 0, total_bytes_ = 1;
};

}  // namespace ibid
