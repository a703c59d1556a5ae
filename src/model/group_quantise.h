// Matrices of integers with a scale for each group of inputs, w ~ scale * code, and two searches for them that look at
// what a product reads: GPTQ (Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative
// Pre-trained Transformers"), which makes later columns carry the errors of earlier ones, and AWQ (Lin et al. 2023,
// "AWQ: Activation-aware Weight Quantization"), which multiplies inputs that are large and divides them before.
// Activations of 8 bits want factors too: SmoothQuant (Xiao et al. 2022, "SmoothQuant: Accurate and Efficient
// Post-Training Quantization for Large Language Models") divides inputs whose largest is far from the others'.
//
// All sums are in one order, whatever the number of threads, and no operation rounds differently on another processor:
// the same input gives the same bits.
//
// Letters: W[N, K] has N outputs and K inputs, g inputs share a scale, H[K, K] is the sum of x x^T over tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "tensor/dtype.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ibid {

// What a product's inputs were over a text. H is summed in blocks of 256 tokens by ops::linear, and these in double:
// how many rows come at once does not matter.
class InputMoments {
 public:
  explicit InputMoments(int64_t n_inputs = 0);
  // Adds rows x[T, K] of F32, in their order. `s` may be another one each time.
  void add(Stream& s, const TensorView& x);
  // After the last rows, before what follows.
  void finish(Stream& s);

  int64_t n_inputs() const { return n_inputs_; }
  int64_t n_tokens() const { return n_tokens_; }
  double product(int64_t i, int64_t j) const { return i >= j ? row(i)[j] : row(j)[i]; }  // H[i, j]
  const double* row(int64_t i) const { return products_.data() + i * n_inputs_; }        // H[i, 0 ... i]
  double mean_size(int64_t k) const;                                                     // of |x_k|
  double largest(int64_t k) const { return largest_[static_cast<size_t>(k)]; }           // of |x_k|
  // The stream's workspace that add() and finish() need.
  static size_t workspace_bytes();

 private:
  void add_block(Stream& s);
  int64_t n_inputs_, n_tokens_ = 0;
  std::vector<double> products_;  // [K, K], its lower triangle
  std::vector<double> sizes_;     // [K], sums of |x|
  std::vector<double> largest_;   // [K]
  std::vector<float> rows_;       // of a block that is not full yet
};

struct GroupFormat {
  int bits = 4;                 // of a code, 2 to 8
  int64_t group_len = 128;      // g; divides K
  DType scales = DType::kBF16;  // F16, BF16 or F32; all are numbers of F16 too, so that codes stay exact in blocks
};

struct GroupCodes {
  std::vector<int8_t> codes;  // [N, K], from -2^(bits - 1) to 2^(bits - 1) - 1
  std::vector<float> scales;  // [N, K / g]
};

// Each weight becomes the nearest code; a group's largest one is (2^bits - 1) / 2 scales, or `clips` [N, K / g] times
// as much where these are given.
GroupCodes round_to_groups(ThreadTeam& team, std::span<const float> w, int64_t n_inputs, const GroupFormat& format,
                           std::span<const float> clips = {});

// What GPTQ needs of a product's inputs: U[K, K], upper, with (H + damp mean(H_kk) I)^-1 = U^T U.
struct GptqFactor {
  int64_t n_inputs = 0;
  std::vector<double> u;
  std::vector<int32_t> order;  // the inputs as they are gone through; empty: as they are
  std::vector<bool> is_dead;   // [K], inputs that were 0 at every token: their weights become 0
};
// `act_order`: inputs with large squares first. Error: H is not positive definite in doubles, or no token was added.
Result<GptqFactor> gptq_factor(ThreadTeam& team, const InputMoments& moments, double damp, bool act_order);

// GPTQ. A group's scale is of its weights as they are when its first input is reached or, with an order, as they were.
GroupCodes gptq(ThreadTeam& team, std::span<const float> w, const GptqFactor& factor, const GroupFormat& format);

// AWQ's factors s[K] for the inputs of all `matrices` [N_i, K], which multiply weights and divide inputs: of
// mean|x|^a / (mean of w's share of its group's largest)^(1 - a), a = 0, 1/20 ... 19/20, and of ones those with the
// least error of outputs after rounding, of at most 128 outputs of each matrix.
std::vector<double> awq_factors(ThreadTeam& team, const InputMoments& moments,
                                std::span<const std::span<const float>> matrices, const GroupFormat& format);
// SmoothQuant's factors s[K] (section 4, equation 4): max|x_k|^a / max|w_k|^(1 - a), the latter over the outputs of all
// `matrices`; 1 where an input or its weights are all 0. a: 0 to 1.
std::vector<double> smooth_factors(const InputMoments& moments, std::span<const std::span<const float>> matrices,
                                   double a);
// How far a group's largest weight is cut for the least error of what the group adds to the output: 1, 19/20 ... 11/20;
// [N, K / g]. `w` is multiplied by `s` already.
std::vector<float> awq_clips(ThreadTeam& team, const InputMoments& moments, std::span<const double> s,
                             std::span<const float> w, const GroupFormat& format);

}  // namespace ibid
