// Hidden states that a caller asks for, of layers or after the final norm, are those that the tap sees where all rows
// go through every layer, whatever others ask for, and asking changes no logit.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "model/testing/batch_of_one.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::BatchOfOne;
using testing::LoadedModel;
using testing::StepOutput;

constexpr int32_t kTokens = 40;

std::vector<int32_t> up_to(int32_t n) {
  std::vector<int32_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void append(std::vector<float>& to, const std::vector<float>& from) { to.insert(to.end(), from.begin(), from.end()); }

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// One pass over all tokens with all rows of logits: what the tap calls "output" has a row for every token then.
struct Expected {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> hidden;  // [layer][T, C]
  std::vector<float> logits;               // [T, V]
};

Expected expected_of(LoadedModel& m) {
  Expected out{.tokens = testing::some_tokens(kTokens, m.model->config().vocab_size)};
  m.model->set_tap([&](std::string_view name, int layer, const TensorView& x) {
    if (name != "output" && name != "final_norm") return;
    EXPECT_EQ(name == "output" ? layer : static_cast<int>(m.model->config().n_layers),
              static_cast<int>(out.hidden.size()));
    EXPECT_EQ(x.n_rows(), kTokens);
    const float* values = x.row_as<const float>(0);
    out.hidden.emplace_back(values, values + x.n_elements());
  });
  out.logits = BatchOfOne(*m.model, *m.stream).step(out.tokens, up_to(kTokens), {}).logits;
  m.model->set_tap(nullptr);
  EXPECT_EQ(static_cast<int64_t>(out.hidden.size()), m.model->config().n_layers + 1);
  return out;
}

TEST(HiddenStates, AreTheResidualStreamAfterEachLayerOfEveryTokenHoweverTheStepsAreCut) {
  for (std::string_view architecture : testing::tiny_architectures()) {
    LoadedModel m(testing::TinyModelOptions{.architecture = architecture});
    const Expected expected = expected_of(m);
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    const std::vector<int32_t> layers = up_to(static_cast<int32_t>(m.model->config().n_layers) + 1);
    for (int32_t piece : {1, 7, kTokens}) {
      BatchOfOne sequence(*m.model, *m.stream);
      std::vector<std::vector<float>> hidden(layers.size());
      for (int32_t first = 0; first < kTokens; first += piece) {
        const int32_t n = std::min(piece, kTokens - first);
        // No row of logits, the last one, or the first and the last.
        std::vector<int32_t> rows;
        if (first % 3 != 0) rows = {n - 1};
        if (first % 3 == 2 && n > 1) rows = {0, n - 1};
        const auto tokens = std::span(expected.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
        const StepOutput out = sequence.step(tokens, rows, layers);
        for (size_t l = 0; l < layers.size(); ++l) append(hidden[l], out.hidden[l]);
        for (size_t r = 0; r < rows.size(); ++r) {
          const std::span row(out.logits.data() + r * V, V);
          const std::span want(&expected.logits[static_cast<size_t>(first + rows[r]) * V], V);
          EXPECT_TRUE(same_bits(row, want)) << architecture << ", token " << first + rows[r];
        }
      }
      for (size_t l = 0; l < layers.size(); ++l) {
        EXPECT_TRUE(same_bits(hidden[l], expected.hidden[l])) << architecture << ", layer " << l << " by " << piece;
      }
    }
  }
}

// Every subset of layers and the final norm, beside few rows: those after the last layer keep all rows to the end, the
// others do not.
TEST(HiddenStates, OfAnyLayersDoNotDependOnWhichOthersAreAskedFor) {
  for (std::string_view architecture : {"smollm3", "gemma3"}) {
    LoadedModel m(testing::TinyModelOptions{.architecture = architecture});
    const Expected expected = expected_of(m);
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    for (uint32_t subset = 0; subset < 2u << m.model->config().n_layers; ++subset) {
      std::vector<int32_t> layers;
      for (int32_t l = 0; l <= m.model->config().n_layers; ++l) {
        if (subset >> l & 1) layers.push_back(l);
      }
      BatchOfOne sequence(*m.model, *m.stream);
      const std::vector<int32_t> rows = {3, kTokens - 1};
      const StepOutput out = sequence.step(expected.tokens, rows, layers);
      for (size_t i = 0; i < layers.size(); ++i) {
        EXPECT_TRUE(same_bits(out.hidden[i], expected.hidden[static_cast<size_t>(layers[i])])) << architecture;
      }
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::span want(&expected.logits[static_cast<size_t>(rows[r]) * V], V);
        EXPECT_TRUE(same_bits(std::span(out.logits).subspan(r * V, V), want)) << architecture << ", subset " << subset;
      }
    }
  }
}

// Of every token, after the norm that logits are made of, whichever rows of logits and layers are wanted too.
TEST(HiddenStates, AfterTheFinalNormAreWhatAllLogitsWouldBeMadeOf) {
  for (std::string_view architecture : testing::tiny_architectures()) {
    LoadedModel m(testing::TinyModelOptions{.architecture = architecture});
    const std::vector<TokenId> tokens = testing::some_tokens(kTokens, m.model->config().vocab_size);
    std::vector<float> want;  // [T, C]
    m.model->set_tap([&](std::string_view name, int, const TensorView& x) {
      if (name != "final_norm") return;
      ASSERT_EQ(x.n_rows(), kTokens);
      want.assign(x.row_as<const float>(0), x.row_as<const float>(0) + x.n_elements());
    });
    const StepOutput all = BatchOfOne(*m.model, *m.stream).step(tokens, up_to(kTokens), {});
    m.model->set_tap(nullptr);
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    for (const std::vector<int32_t>& rows : {std::vector<int32_t>{}, {kTokens - 1}, {2, 9}, up_to(kTokens)}) {
      const int32_t L = m.model->config().n_layers;
      for (const std::vector<int32_t>& layers : {std::vector<int32_t>{L}, {0, L}}) {
        const StepOutput out = BatchOfOne(*m.model, *m.stream).step(tokens, rows, layers);
        EXPECT_TRUE(same_bits(out.hidden.back(), want)) << architecture << ", " << rows.size() << " rows";
        for (size_t r = 0; r < rows.size(); ++r) {
          EXPECT_TRUE(same_bits(std::span(out.logits).subspan(r * V, V),
                                std::span(all.logits).subspan(static_cast<size_t>(rows[r]) * V, V)));
        }
      }
    }
  }
}

TEST(HiddenStates, OfALayerThatIsNotThereAreAMistakeOfTheCaller) {
  LoadedModel m(testing::TinyModelOptions{});
  const std::vector<TokenId> tokens = testing::some_tokens(3, 96);
  const auto ask = [&](std::vector<int32_t> layers) { BatchOfOne(*m.model, *m.stream).step(tokens, {}, layers); };
  EXPECT_DEATH(ask({3}), "layers of hidden states");
  EXPECT_DEATH(ask({-1}), "layers of hidden states");
  EXPECT_DEATH(ask({1, 0}), "layers of hidden states");
}

}  // namespace
}  // namespace ibid
