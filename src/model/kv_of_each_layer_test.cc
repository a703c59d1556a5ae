// Layers that keep different things (model/testing/hand_made.h), against plain loops in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/one_sequence.h"
#include "model/testing/hand_made.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using namespace testing::hand_made;

using Row = std::vector<double>;
Row times(const Matrix& m, const Row& x) {
  Row out(static_cast<size_t>(m.n_outputs));
  for (size_t n = 0; n < out.size(); ++n) {
    for (size_t i = 0; i < x.size(); ++i) out[n] += static_cast<double>(m.values[n * x.size() + i]) * x[i];
  }
  return out;
}
void turn(Row& heads, int D, double position) {
  for (size_t head = 0; head < heads.size(); head += static_cast<size_t>(D)) {
    for (size_t i = 0; i < kPairs; ++i) {
      const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / (2 * kPairs));
      double &a = heads[head + i], &b = heads[head + i + kPairs];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
  }
}

// Plain loops over growing lists, in double precision.
std::vector<Row> naive(const Matrices& m, std::span<const TokenId> tokens) {
  std::vector<std::vector<Row>> keys(kLayers), values(kLayers);
  std::vector<Row> logits;
  for (const TokenId token : tokens) {
    const auto position = logits.size();
    const auto first = m.embedding.values.begin() + raw(token) * kWidth;
    Row x(first, first + kWidth);
    for (int l = 0; l < kLayers; ++l) {
      const KvGeometry& g = kGeometry[l];
      const auto i = static_cast<size_t>(l), own = static_cast<size_t>(g.owner == kOwnCache ? l : g.owner);
      const auto Dk = static_cast<size_t>(g.key_len), Dv = static_cast<size_t>(g.value_len);
      if (!attends(l)) {
        const Row out = times(m.o[i], x);
        for (size_t c = 0; c < x.size(); ++c) x[c] += out[c];
        continue;
      }
      Row q = times(m.q[i], x);
      turn(q, g.key_len, static_cast<double>(position));
      if (own == i) {
        keys[i].push_back(times(m.k[i], x));
        turn(keys[i].back(), g.key_len, static_cast<double>(position));
        values[i].push_back(has_values(l) ? times(m.v[i], x) : keys[i].back());
      }
      const size_t n_heads = q.size() / Dk, group = n_heads / static_cast<size_t>(g.n_kv_heads);
      Row attended(n_heads * Dv);
      const size_t begin = g.window > 0 && position + 1 > static_cast<size_t>(g.window)
                               ? position + 1 - static_cast<size_t>(g.window)
                               : 0;
      for (size_t h = 0; h < n_heads; ++h) {
        Row weight;
        double sum = 0;
        for (size_t p = begin; p <= position; ++p) {
          double score = 0;
          for (size_t d = 0; d < Dk; ++d) score += q[h * Dk + d] * keys[own][p][h / group * Dk + d];
          weight.push_back(std::exp(score * static_cast<double>(scale_of(l))));
          sum += weight.back();
        }
        for (size_t p = begin; p <= position; ++p) {
          for (size_t d = 0; d < Dv; ++d)
            attended[h * Dv + d] += weight[p - begin] / sum * values[own][p][h / group * Dv + d];
        }
      }
      const Row out = times(m.o[i], attended);
      for (size_t c = 0; c < x.size(); ++c) x[c] += out[c];
    }
    logits.push_back(times(m.embedding, x));
  }
  return logits;
}

std::vector<float> logits_of(HandMade& model, Stream& s, std::span<const TokenId> tokens,
                             const OneSequenceOptions& options, int64_t max_step) {
  OneSequence sequence(model, s, options);
  std::vector<float> out;
  sequence.append(
      tokens,
      [&](int64_t, const TensorView& rows) {
        out.insert(out.end(), rows.row_as<float>(0), rows.row_as<float>(0) + rows.n_elements());
      },
      max_step);
  return out;
}

TEST(KvOfEachLayer, LayersThatKeepDifferentThingsGiveTheNaiveModelsLogits) {
  Matrices m;
  ThreadTeam team(2);
  Stream s(team);
  HandMade model(m, s);
  const std::vector<TokenId> tokens = testing::some_tokens(40, kVocab);
  const std::vector<Row> want = naive(m, tokens);
  const std::vector<float> got = logits_of(model, s, tokens, {.kv_dtype = DType::kF32}, 0);
  ASSERT_EQ(got.size(), want.size() * kVocab);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i / kVocab][i % kVocab], 2e-4) << "token " << i / kVocab << ", column " << i % kVocab;
  }
}

TEST(KvOfEachLayer, TheirBitsDependOnNeitherStepsNorBlocks) {
  Matrices m;
  ThreadTeam one(1), two(2);
  Stream s1(one), s2(two);
  HandMade model(m, s1), other(m, s2);
  const std::vector<TokenId> tokens = testing::some_tokens(40, kVocab);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<float> whole = logits_of(model, s1, tokens, {.kv_dtype = dtype}, 0);
    for (const int32_t block_len : {8, 16, 32}) {
      for (const int64_t step : {1, 7}) {
        const OneSequenceOptions options = {.kv_dtype = dtype, .block_len = block_len, .backwards = true};
        const std::vector<float> pieces = logits_of(other, s2, tokens, options, step);
        ASSERT_EQ(0, std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float))) << block_len << step;
      }
    }
  }
}

// The size of the model's pool is the sum over its layers, which may differ.
TEST(KvOfEachLayer, TheCacheHasRoomForEachLayerAndNoMore) {
  Matrices m;
  ThreadTeam team(1);
  Stream s(team);
  HandMade model(m, s);
  const OneSequence sequence(model, s, {.kv_dtype = DType::kF16, .block_len = 16, .capacity = 64});
  ASSERT_EQ(sequence.kv().size(), size_t{kLayers});
  EXPECT_EQ(sequence.kv()[3].blocks, sequence.kv()[1].blocks);
  EXPECT_EQ(sequence.kv()[4].layer_bytes, 2 * 16 * 24) << "one row a token";
  EXPECT_EQ(sequence.kv()[5].layer_bytes, 0);
  EXPECT_EQ(sequence.kv_bytes(), 64 + 2 * 64 * kElementsOfToken);
}

}  // namespace
}  // namespace ibid
