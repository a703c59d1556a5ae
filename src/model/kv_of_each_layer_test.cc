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
std::vector<Row> naive(const Matrices& m, std::span<const TokenId> tokens, bool has_state = false) {
  Row state(kWidth);
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
        for (size_t c = 0; c < x.size(); ++c) state[c] = 0.5 * state[c] + x[c];
        const Row out = times(m.o[i], has_state ? state : x);
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

TEST(StateOfALayer, GivesTheNaiveModelsLogits) {
  Matrices m;
  ThreadTeam team(2);
  Stream s(team);
  HandMade model(m, s, true);
  EXPECT_EQ(model.state_layout().slot_bytes(), kWidth * 4);
  EXPECT_EQ(model.state_layout().name(), "F32 0,0,0,0,0,48");
  const std::vector<TokenId> tokens = testing::some_tokens(40, kVocab);
  const std::vector<Row> want = naive(m, tokens, true);
  const std::vector<float> got = logits_of(model, s, tokens, {.kv_dtype = DType::kF32}, 0);
  ASSERT_EQ(got.size(), want.size() * kVocab);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i / kVocab][i % kVocab], 2e-4) << i / kVocab;
}

void expect_the_same_bits(bool has_state) {
  Matrices m;
  ThreadTeam one(1), two(2);
  Stream s1(one), s2(two);
  HandMade model(m, s1, has_state), other(m, s2, has_state);
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

TEST(KvOfEachLayer, TheirBitsDependOnNeitherStepsNorBlocks) { expect_the_same_bits(false); }
TEST(StateOfALayer, ItsBitsDependOnNeitherStepsNorBlocks) { expect_the_same_bits(true); }

// One step over two sequences that go on from one state, and drafts of the second as a tree: the rows and the states
// are those of each way alone.
TEST(StateOfALayer, EachTokenReadsTheStateBeforeItAndWritesItsOwn) {
  Matrices m;
  ThreadTeam team(1);
  Stream s(team);
  HandMade model(m, s, true);
  const std::vector<KvLayout> layouts = kv_layouts(model.kv_geometries(), DType::kF32, 8);
  std::vector<std::byte> memory(static_cast<size_t>(kv_pool_bytes(layouts, 12)) + 64), bytes(8 * kWidth * 4);
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  const std::vector<PagedKv> kv = kv_pool(layouts, 12, memory.data() + (64 - start % 64) % 64);
  const StateSlots slots = {.bytes = bytes.data(), .slot_bytes = kWidth * 4, .n_slots = 8};
  BatchArrays arrays(8, {.n_tokens = 32, .n_sequences = 2, .n_rows = 32, .n_blocks = 8, .n_path_slots = 32});
  std::vector<float> rows(32 * kVocab);
  const auto run = [&] {
    arrays.end_sequence();
    const ForwardBatch b = arrays.batch();
    model.forward(s, b, kv, TensorView(rows.data(), DType::kF32, {b.n_rows, kVocab}), {}, slots);
  };
  const std::vector<TokenId> prompt = testing::some_tokens(8, kVocab);
  const std::vector<BlockId> table_a = {BlockId{0}, BlockId{1}, BlockId{2}}, table_b = {BlockId{0}, BlockId{3}};
  arrays.clear();
  for (int32_t i = 0; i < 8; ++i) {
    arrays.add(prompt[static_cast<size_t>(i)], i, i);
    arrays.add_state_out(i == 5 ? 5 : i == 7 ? 0 : -1);  // a snapshot on the way
  }
  arrays.add_blocks(table_a);
  arrays.add_state_in(-1);
  run();
  // The first sequence: a token in another slot. The second, of the same first block and state: a token, then drafts 20
  // and 21 after it, and 22 after 20. Each goes where it is told.
  arrays.clear();
  arrays.add(TokenId{11}, 8, 8);
  arrays.add_state_out(1);
  arrays.add_blocks(table_a);
  arrays.add_state_in(0);
  arrays.end_sequence();
  const auto draft = [&](int32_t token, int32_t position, std::vector<int32_t> path, int32_t out) {
    std::ranges::copy(path, arrays.add_path(static_cast<int32_t>(path.size())).begin());
    arrays.add(TokenId{token}, position, path.back());
    arrays.want_last();
    arrays.add_state_out(out);
  };
  arrays.add(TokenId{12}, 8, 24);
  arrays.want_last();
  arrays.add_state_out(2);
  draft(20, 9, {24, 40}, 3);
  draft(21, 9, {24, 41}, 4);
  draft(22, 10, {24, 40, 42}, 6);
  arrays.add_blocks(table_b);
  arrays.add_state_in(0);
  run();
  const auto state = [&](int32_t slot) {
    const auto* values = reinterpret_cast<const float*>(slots.slot(slot));
    return std::vector<float>(values, values + kWidth);
  };
  // Alone, each token in a step of its own and its state written in place.
  const auto alone = [&](std::vector<int32_t> after, size_t n_prompt) {
    std::vector<TokenId> tokens(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n_prompt));
    for (const int32_t token : after) tokens.push_back(TokenId{token});
    HandMade other(m, s, true);
    std::vector<std::byte> own_memory(memory.size()), own(kWidth * 4);
    const auto at = reinterpret_cast<uintptr_t>(own_memory.data());
    const std::vector<PagedKv> own_kv = kv_pool(layouts, 12, own_memory.data() + (64 - at % 64) % 64);
    for (size_t i = 0; i < tokens.size(); ++i) {
      arrays.clear();
      arrays.add(tokens[i], static_cast<int32_t>(i), static_cast<int32_t>(i));
      arrays.add_state_out(0);
      arrays.add_blocks(table_a);
      arrays.add_state_in(i == 0 ? -1 : 0);
      arrays.end_sequence();
      other.forward(s, arrays.batch(), own_kv, TensorView(rows.data(), DType::kF32, {0, kVocab}), {},
                    {.bytes = own.data(), .slot_bytes = kWidth * 4, .n_slots = 1});
    }
    const auto* values = reinterpret_cast<const float*>(own.data());
    return std::vector<float>(values, values + kWidth);
  };
  const std::vector<std::vector<float>> left = {state(0), state(1), state(2), state(3), state(4), state(5), state(6)};
  EXPECT_EQ(left[0], alone({}, 8)) << "what both go on from is as it was";
  EXPECT_EQ(left[5], alone({}, 6));
  EXPECT_EQ(left[1], alone({11}, 8));
  EXPECT_EQ(left[2], alone({12}, 8));
  EXPECT_EQ(left[3], alone({12, 20}, 8));
  EXPECT_EQ(left[4], alone({12, 21}, 8));
  EXPECT_EQ(left[6], alone({12, 20, 22}, 8));
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
