#include "kernels/batch_arrays.h"

#include <gtest/gtest.h>

#include <array>

namespace ibid {
namespace {

constexpr BatchSizes kSizes = {.n_tokens = 8, .n_sequences = 3, .n_rows = 4, .n_blocks = 6, .n_path_slots = 5};

template <typename T>
std::vector<int> list(const T* first, int32_t n) {
  std::vector<int> out;
  for (int32_t i = 0; i < n; ++i) {
    if constexpr (std::is_enum_v<T>) {
      out.push_back(raw(first[i]));
    } else {
      out.push_back(first[i]);
    }
  }
  return out;
}
using List = std::vector<int>;

// A run of a sequence, then two draft tokens for one place, each with its path.
void fill(BatchArrays& arrays) {
  constexpr std::array<TokenId, 3> kRun = {TokenId{50}, TokenId{51}, TokenId{52}};
  constexpr std::array<BlockId, 3> kFirst = {BlockId{7}, BlockId{2}, BlockId{5}};
  constexpr std::array<BlockId, 1> kSecond = {BlockId{4}};
  arrays.clear();
  arrays.add_run(kRun, 3, kFirst);
  EXPECT_EQ(arrays.want_last(), 0);
  arrays.add_blocks(std::span(kFirst).first(2));
  arrays.end_sequence();
  for (const int32_t slot : {18, 19}) {
    const std::span<int32_t> path = arrays.add_path(2);
    path[0] = 17, path[1] = slot;
    arrays.add(TokenId{slot}, 2, slot);
    arrays.want_last();
  }
  arrays.add_blocks(kSecond);
  arrays.end_sequence();
}

TEST(BatchArrays, AreFilledSequenceBySequence) {
  BatchArrays arrays(4, kSizes);
  fill(arrays);
  const ForwardBatch b = arrays.batch();
  EXPECT_EQ(b.block_len, 4);
  ASSERT_EQ((List{b.n_tokens, b.n_sequences, b.n_rows}), (List{5, 2, 3}));
  EXPECT_EQ(list(b.tokens, 5), (List{50, 51, 52, 18, 19}));
  EXPECT_EQ(list(b.positions, 5), (List{3, 4, 5, 2, 2}));
  EXPECT_EQ(list(b.slots, 5), (List{31, 8, 9, 18, 19}));
  EXPECT_EQ(list(b.query_start, 3), (List{0, 3, 5}));
  EXPECT_EQ(list(b.kv_len, 2), (List{6, 3}));
  EXPECT_EQ(list(b.block_start, 3), (List{0, 2, 3}));
  EXPECT_EQ(list(b.block_table, 3), (List{7, 2, 4}));
  EXPECT_EQ(list(b.logit_rows, 3), (List{2, 3, 4}));
  EXPECT_EQ(list(b.path_start, 6), (List{0, 0, 0, 0, 2, 4}));
  EXPECT_EQ(list(b.path_slots, 4), (List{17, 18, 17, 19}));
  EXPECT_EQ(b.places, nullptr);
  EXPECT_EQ(b.token_types, nullptr);
}

TEST(BatchArrays, OfViewsHavePlacesAndReadAsFarAsThese) {
  BatchArrays arrays(4, kSizes);
  arrays.add_viewed(TokenId{1}, 21, 9, 13);
  arrays.add_viewed(TokenId{2}, 22, 10, 14);
  arrays.end_sequence();
  const ForwardBatch b = arrays.batch();
  EXPECT_EQ(list(b.positions, 2), (List{21, 22}));
  EXPECT_EQ(list(b.places, 2), (List{9, 10}));
  EXPECT_EQ(list(b.kv_len, 1), (List{11}));
  EXPECT_EQ(b.path_start, nullptr);
}

TEST(BatchArrays, OfPairsHaveTypes) {
  BatchArrays arrays(4, kSizes);
  for (const uint8_t type : {uint8_t{0}, uint8_t{1}}) {
    arrays.add(TokenId{3}, type, type);
    arrays.add_type(type);
  }
  arrays.end_sequence();
  EXPECT_EQ(list(arrays.batch().token_types, 2), (List{0, 1}));
}

TEST(BatchArrays, ForgetTheBatchBeforeAndStayWhereTheyLie) {
  BatchArrays arrays(4, kSizes);
  fill(arrays);
  const ForwardBatch before = arrays.batch();
  arrays.clear();
  EXPECT_EQ(arrays.batch().n_tokens + arrays.batch().n_sequences + arrays.batch().n_rows, 0);
  fill(arrays);
  const ForwardBatch b = arrays.batch();
  EXPECT_EQ(b.n_tokens, before.n_tokens);
  EXPECT_EQ(b.tokens, before.tokens);
  EXPECT_EQ(b.slots, before.slots);
  EXPECT_EQ(b.kv_len, before.kv_len);
  EXPECT_EQ(b.block_table, before.block_table);
  EXPECT_EQ(b.path_slots, before.path_slots);
}

}  // namespace
}  // namespace ibid
