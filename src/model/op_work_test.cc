// The work that ops report (kernels/op_profile.h) equals the formulas.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string_view>

#include "kernels/op_profile.h"
#include "kernels/reference.h"
#include "model/gguf_form.h"
#include "model/kv_arithmetic.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;

// Sums by op, while it lives.
struct Counted final : OpProfile {
  std::map<std::string_view, OpWork> sums;
  Counted() { profile_ops(this); }
  ~Counted() override { profile_ops(nullptr); }
  void ran(const OpRun& run) override {
    EXPECT_LE(run.begin, run.end);
    OpWork& sum = sums[run.op];
    for (size_t u = 0; u < kMacUnits; ++u) sum.macs[u] += run.work.macs[u];
    sum.bytes += run.work.bytes;
  }
  int64_t macs(std::string_view op, MacUnit unit = MacUnit::kFp32) { return sums[op].macs[static_cast<size_t>(unit)]; }
};

// The notes' model: every head has keys of its own, C = H D, and F is such that a gated feed-forward's three matrices
// hold the 8 C^2 of the two of 4 C.
constexpr int64_t kC = 48, kF = 8 * kC / 3, kLayers = 2, kV = 96;

std::shared_ptr<const ModelFile> notes_model() {
  ModelConfig c = testing::tiny_config({});
  c.width = kC, c.vocab_size = kV;
  for (LayerConfig& layer : c.layers) layer.n_heads = layer.n_kv_heads = kC / 16, layer.ffn_len = kF;
  EXPECT_EQ(c.layers.front().key_len, 16);
  EXPECT_EQ(c.n_layers, kLayers);
  ModelFile::Parts parts;
  parts.metadata = metadata_of(c);
  for (const TensorSpec& spec : tensors_of(c)) {
    const bool is_matrix = spec.dims.size() == 2;
    const auto n = static_cast<size_t>(is_matrix ? spec.dims[0] * spec.dims[1] : spec.dims[0]);
    auto bytes = std::make_unique<std::byte[]>(n * sizeof(float));
    const TensorView view = is_matrix ? TensorView(bytes.get(), DType::kF32, {spec.dims[0], spec.dims[1]})
                                      : TensorView(bytes.get(), DType::kF32, {spec.dims[0]});
    parts.tensors.push_back({spec.name, view});
    parts.copies.push_back(std::move(bytes));
  }
  return std::make_shared<const ModelFile>(std::move(parts));
}

// Operations (two a multiply-add) of all layers over T tokens after none: 6 T C^2 for q, k, v, 2 T C^2 for the output,
// 16 T C^2 for feed-forward, and 4 C for each visible pair, of which causality leaves T (T + 1) / 2 of T^2.
int64_t products(int64_t T) { return kLayers * (6 + 2 + 16) * T * kC * kC; }
int64_t attention(int64_t T) { return kLayers * 4 * kC * (T * (T + 1) / 2); }

// Row K16, on the reference and on the kernels.
TEST(OpWork, OfALayerEqualsTheFormulas) {
  LoadedModel m(notes_model());
  const auto tokens = testing::some_tokens(40, kV);
  for (const bool on_reference : {true, false}) {
    reference::select(on_reference);
    Counted counted;
    m.logits(tokens, {.kv_dtype = DType::kF16});
    EXPECT_EQ(2 * counted.macs("linear"), products(40) + 2 * 40 * kC * kV);
    EXPECT_EQ(2 * counted.macs("paged_attention"), attention(40));
    EXPECT_EQ(counted.macs("rms_norm"), 0);
    EXPECT_EQ(counted.sums["paged_attention"].bytes, m.model->config().n_layers * 40 * 2 * kC * 2);
  }
  reference::select(false);
}

// Row K17: with a cache a text costs what one pass over it does; without one, every length from 1 is a pass of its own,
// and work is the sum over all lengths and over their squares.
TEST(OpWork, WithoutACacheIsTheSumOverAllLengths) {
  LoadedModel m(notes_model());
  const auto tokens = testing::some_tokens(24, kV);
  const int64_t logits = 2 * kC * kV;
  {
    Counted cached;
    m.logits(tokens, {}, 1);
    EXPECT_EQ(2 * cached.macs("linear"), products(24) + 24 * logits);
    EXPECT_EQ(2 * cached.macs("paged_attention"), attention(24));
    // Each step reads all weights, and the keys and values so far.
    int64_t weights = kV * kC * 4, positions = 0;
    weights += kLayers * 12 * kC * kC * 4;
    for (int64_t t = 1; t <= 24; ++t) positions += t;
    EXPECT_EQ(cached.sums["linear"].bytes, 24 * weights);
    EXPECT_EQ(cached.sums["paged_attention"].bytes, positions * 4 * kC * kLayers);
  }
  Counted recomputed;
  int64_t sum = 0, squares = 0;
  for (size_t t = 1; t <= 24; ++t) {
    m.logits(std::span(tokens).first(t), {});
    sum += static_cast<int64_t>(t), squares += static_cast<int64_t>(t * t);
  }
  EXPECT_EQ(2 * recomputed.macs("linear"), sum * (products(1) + logits));
  EXPECT_EQ(2 * recomputed.macs("paged_attention"), kLayers * 2 * kC * (squares + sum));
}

// A step without rows of logits needs only the keys and values of the last layer.
TEST(OpWork, OfTheLastLayerIsKeysAndValuesIfNoRowsAreNeeded) {
  LoadedModel m(notes_model());
  OneSequence text(*m.model, *m.stream, {});
  Counted counted;
  text.append(testing::some_tokens(40, kV), {});
  EXPECT_EQ(2 * counted.macs("linear"), products(40) / kLayers * (kLayers - 1) + 4 * 40 * kC * kC);
  EXPECT_EQ(2 * counted.macs("paged_attention"), attention(40) / kLayers * (kLayers - 1));
}

// A token's products are those of the experts that it uses, and an expert that several tokens use is read once.
TEST(OpWork, OfExpertsIsThatOfTheOnesThatAreUsed) {
  LoadedModel m(testing::TinyModelOptions{.architecture = "qwen3moe", .dtype = DType::kF16});
  const ModelConfig& c = m.model->config();
  const LayerConfig& layer = *c.first_with_experts();
  const int64_t one = 3 * c.width * layer.expert_len;  // gate, up and down of an expert
  {
    Counted counted;
    m.logits(testing::some_tokens(1, 96), {});
    EXPECT_EQ(counted.macs("linear_experts"), 2 * layer.n_experts_used * one) << "in two of its three layers";
    EXPECT_EQ(counted.sums["linear_experts"].bytes, 2 * layer.n_experts_used * one * 2);
  }
  Counted counted;
  m.logits(testing::some_tokens(60, 96), {});
  EXPECT_EQ(counted.macs("linear_experts"), 60 * 2 * layer.n_experts_used * one);
  EXPECT_EQ(counted.sums["linear_experts"].bytes, 2 * layer.n_experts * one * 2) << "all are used";
}

// Row M2: what a token of latent attention computes besides attention does not grow with the context; no up-projection
// of keys or values runs over what is cached.
TEST(OpWork, OfLatentAttentionIsThatOfItsTokensWhateverTheContext) {
  LoadedModel m(testing::TinyModelOptions{.architecture = "deepseek2"});
  const ModelConfig& c = m.model->config();
  const LayerConfig& l = c.layers.front();
  OneSequence text(*m.model, *m.stream, {.capacity = 256});
  const auto tokens = testing::some_tokens(202, 96);
  const auto decode = [&](size_t at) {
    text.append(
        std::span(tokens).subspan(static_cast<size_t>(text.n_tokens()), at - static_cast<size_t>(text.n_tokens())), {});
    Counted counted;
    text.append(std::span(tokens).subspan(at, 1), [](int64_t, const TensorView&) {});
    return std::array{counted.macs("linear"), counted.macs("linear_heads"), counted.macs("paged_attention")};
  };
  const auto at_ten = decode(10), at_two_hundred = decode(200);
  EXPECT_EQ(at_ten[0], at_two_hundred[0]);
  EXPECT_EQ(at_ten[1], at_two_hundred[1]);
  EXPECT_EQ(at_ten[1], c.n_layers * l.n_heads * (l.plain_len + l.out_len) * l.value_len);
  EXPECT_EQ(at_ten[2], c.n_layers * l.n_heads * 11 * (l.key_len + l.value_len));
  EXPECT_EQ(at_two_hundred[2], c.n_layers * l.n_heads * 201 * (l.key_len + l.value_len));
}

// Products of quantised weights are int8's; a window bounds what attention reads.
TEST(OpWork, NamesTheUnitAndKeepsToTheWindow) {
  LoadedModel quantised(testing::TinyModelOptions{.architecture = "llama", .dtype = DType::kQ8_0});
  {
    Counted counted;
    quantised.logits(testing::some_tokens(5, 96), {});
    EXPECT_GT(counted.macs("linear", MacUnit::kInt8), 0);
    EXPECT_EQ(counted.macs("linear", MacUnit::kBf16), 0);
  }
  LoadedModel windowed(testing::TinyModelOptions{.architecture = "mistral", .window = 8});
  const ModelConfig& c = windowed.model->config();
  const auto visible = [](int64_t n) { return n <= 8 ? n * (n + 1) / 2 : 36 + (n - 8) * 8; };
  Counted counted;
  windowed.logits(testing::some_tokens(30, c.vocab_size), {});
  EXPECT_EQ(counted.macs("paged_attention"), c.n_layers * 2 * c.layers.front().q_len() * visible(30));
}

}  // namespace
}  // namespace ibid
