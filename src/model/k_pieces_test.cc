// docs/design.md section 5, law 8, in whole models: those of the goldens are too small to have more than one piece of
// K.
#include "kernels/k_pieces.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "kernels/isa.h"
#include "kernels/ops.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;
using testing::tiny_model_file;
using testing::TinyModelOptions;

class ModelOfPieces : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(select_isa(supported_isas().back()).ok()); }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> copy_of(const TensorView& x) {
  std::vector<float> out;
  for (int64_t t = 0; t < x.n_rows(); ++t) out.insert(out.end(), x.row_as<float>(t), x.row_as<float>(t) + x.row_len());
  return out;
}

// x * W^T, summed in these pieces.
std::vector<float> product(const TensorView& w, const KPieces& pieces, std::vector<float>& x) {
  ThreadTeam team(1);
  Stream s(team);
  const int64_t K = w.dim[1], N = w.dim[0], T = static_cast<int64_t>(x.size()) / K;
  std::vector<float> out(static_cast<size_t>(T * N));
  const TensorView x_view(x.data(), DType::kF32, {T, K}), out_view(out.data(), DType::kF32, {T, N});
  const Weight weight = prepare_weight(s, w, pieces);
  const Weight* weights[] = {&weight};
  EXPECT_TRUE(s.reserve_workspace(ops::linear_workspace_bytes(T, K)).ok());
  ops::linear(s, {&out_view, 1}, x_view, weights);
  return out;
}

// A forward pass that forgets to load one of the two as such would not agree with any tensor parallelism.
TEST_F(ModelOfPieces, SumsTheOutputAndDownProjectionsOfEveryShapeInPieces) {
  for (std::string_view architecture : {"llama", "phi3", "gemma3"}) {
    for (DType dtype : {DType::kF32, DType::kQ4_1, DType::kQ4_K}) {
      SCOPED_TRACE(std::string(architecture) + " " + std::string(traits(dtype).name));
      const auto file = tiny_model_file({.architecture = architecture, .dtype = dtype, .long_sums = true});
      LoadedModel m(file);
      const ModelConfig& c = m.model->config();
      std::map<std::pair<std::string, int>, std::vector<float>> seen;
      m.model->set_tap([&seen](std::string_view name, int layer, const TensorView& x) {
        if (layer >= 0) seen[{std::string(name), layer}] = copy_of(x);
      });
      m.logits(some_tokens(14, c.vocab_size), {.block_len = 8, .capacity = 16});
      for (int l = 0; l < static_cast<int>(c.n_layers); ++l) {
        const std::string blk = "blk." + std::to_string(l);
        const TensorView wo = file->find(blk + ".attn_output.weight")->view;
        const TensorView down = file->find(blk + ".ffn_down.weight")->view;
        const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
        const KPieces wo_pieces = pieces_of(dtype, layer.attention_len(), layer.kv_group_len());
        EXPECT_EQ(wo_pieces.n, 8);
        std::vector<float>&attention = seen[{"attention", l}], &gated = seen[{"gated", l}];
        EXPECT_TRUE(same_bits((seen[{"attn_out", l}]), product(wo, wo_pieces, attention))) << "layer " << l;
        EXPECT_FALSE(same_bits((seen[{"attn_out", l}]), product(wo, one_piece(layer.attention_len()), attention)))
            << "layer " << l;
        EXPECT_TRUE(same_bits((seen[{"ffn_out", l}]), product(down, pieces_of(dtype, layer.ffn_len), gated)))
            << "layer " << l;
        EXPECT_FALSE(same_bits((seen[{"ffn_out", l}]), product(down, one_piece(layer.ffn_len), gated)))
            << "layer " << l;
      }
    }
  }
}

TEST_F(ModelOfPieces, GivesTheSameBitsOnEveryIsaThreadCountAndRowCount) {
  const ModelOptions kOptions{.step_tokens = 128, .max_rows = 128};
  for (const auto& [architecture, dtype] : {std::pair<std::string_view, DType>{"llama", DType::kQ4_1},
                                            {"llama", DType::kF16},
                                            {"phi3", DType::kQ6_K},
                                            {"gemma3", DType::kBF16},
                                            {"qwen3", DType::kQ4_K}}) {
    SCOPED_TRACE(std::string(architecture) + " " + std::string(traits(dtype).name));
    const auto file = tiny_model_file({.architecture = architecture, .dtype = dtype, .n_layers = 1, .long_sums = true});
    LoadedModel alone(file, kOptions, 1), shared(file, kOptions, 3);
    const auto tokens = some_tokens(14, alone.model->config().vocab_size);
    const OneSequenceOptions options{.block_len = 8, .capacity = 16};
    const std::vector<float> whole = alone.logits(tokens, options);
    for (float x : whole) ASSERT_TRUE(std::isfinite(x));
    for (Isa isa : supported_isas()) {
      SCOPED_TRACE(isa_name(isa));
      ASSERT_TRUE(select_isa(isa).ok());
      EXPECT_TRUE(same_bits(shared.logits(tokens, options), whole)) << "three threads";
      EXPECT_TRUE(same_bits(alone.logits(tokens, options, 5), whole)) << "by fives";
    }
    EXPECT_TRUE(same_bits(alone.logits(tokens, options, 1), whole)) << "one by one";
  }
}

}  // namespace
}  // namespace ibid
