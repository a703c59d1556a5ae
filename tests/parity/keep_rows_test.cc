// Which rows outlive an eviction: those of the law (kernels/kept_rows.h) in double precision, on every instruction set
// and for any number of threads; copied as they lie, and nothing beside them written.
#include "kernels/kept_rows.h"

#include "kernels/reference.h"
#include "parity/harness.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

// A text of n tokens in one cache, whose last n_queries tokens are a step, and blocks for what is kept.
class Text {
 public:
  Text(KvTypes dtype, int32_t n_kv_heads, int32_t group, int32_t head_len, int32_t block_len, int32_t n, uint64_t seed,
       bool keys_alike = false)
      : n_(n), group_(group), n_blocks_((n + block_len - 1) / block_len), random_(seed) {
    const KvLayout layout = {{.n_kv_heads = n_kv_heads, .key_len = head_len, .value_len = head_len}, dtype, block_len};
    kv_ = {.block_bytes = layout.block_bytes(),
           .layer_bytes = layout.block_bytes(),
           .dtype = dtype,
           .n_blocks = 2 * n_blocks_,
           .block_len = block_len,
           .n_kv_heads = n_kv_heads,
           .key_len = head_len,
           .value_len = head_len};
    cells_.assign(static_cast<size_t>(kv_.n_blocks * kv_.block_bytes), std::byte{0xff});
    kv_.blocks = cells_.data();
    for (int32_t b = 0; b < kv_.n_blocks; ++b) table_.push_back(BlockId{b});
    std::shuffle(table_.begin(), table_.end(), random_);
    std::vector<float> key(static_cast<size_t>(head_len)), value = key;
    draw(key);
    for (int32_t place = 0; place < n; ++place) {
      for (int32_t head = 0; head < n_kv_heads; ++head) {
        if (!keys_alike) draw(key);
        draw(value);
        kv_write_row(kv_, KvPart::kKey, slot(place), head, key.data());
        kv_write_row(kv_, KvPart::kValue, slot(place), head, value.data());
      }
    }
    q_len_ = n_kv_heads * group * head_len;
  }

  // The bytes of the blocks that have what is kept.
  std::vector<std::byte> keep(Stream& s, KeptRows rows, int32_t n_step) {
    q_.resize(static_cast<size_t>(n_step) * static_cast<size_t>(q_len_));
    std::mt19937_64 queries(7);
    std::uniform_real_distribution<float> one(-2, 2);
    for (float& x : q_) x = one(queries);
    std::vector<int32_t> positions;
    for (int32_t p = n_ - n_step; p < n_; ++p) positions.push_back(p);
    const int32_t query_start[] = {0, n_step}, kv_len[] = {n_}, block_start[] = {0, n_blocks_};
    const ForwardBatch batch = {.n_tokens = n_step,
                                .n_sequences = 1,
                                .block_len = kv_.block_len,
                                .positions = positions.data(),
                                .query_start = query_start,
                                .kv_len = kv_len,
                                .block_start = block_start,
                                .block_table = table_.data(),
                                .kept = &rows,
                                .kept_blocks = table_.data() + n_blocks_,
                                .n_kept = 1};
    for (int32_t b = n_blocks_; b < kv_.n_blocks; ++b) std::fill_n(block(b), kv_.block_bytes, std::byte{0xff});
    EXPECT_TRUE(s.reserve_workspace(ops::keep_rows_workspace_bytes(s, group_, kv_.key_len, n_)).ok());
    ops::keep_rows(s, TensorView(q_.data(), DType::kF32, {n_step, q_len_}), kv_, batch,
                   1.0f / std::sqrt(static_cast<float>(kv_.key_len)));
    std::vector<std::byte> out;
    for (int32_t b = n_blocks_; b < kv_.n_blocks; ++b) out.insert(out.end(), block(b), block(b) + kv_.block_bytes);
    return out;
  }
  // Which place lies in row i of a head; -1: none, as its numbers are NaN.
  int32_t place_in_row(int32_t head, int32_t i) {
    const BlockId block = table_[static_cast<size_t>(n_blocks_ + i / kv_.block_len)];
    const int32_t at = raw(block) * kv_.block_len + i % kv_.block_len;
    for (int32_t place = 0; place < n_; ++place) {
      bool is_same = true;
      for (int32_t d = 0; d < kv_.value_len && is_same; ++d)
        is_same = kv_read(kv_, KvPart::kValue, slot(place), head, d) == kv_read(kv_, KvPart::kValue, at, head, d);
      if (is_same) return place;
    }
    return -1;
  }
  int32_t n_heads() const { return kv_.n_kv_heads; }

 private:
  int32_t slot(int32_t place) const {
    return raw(table_[static_cast<size_t>(place / kv_.block_len)]) * kv_.block_len + place % kv_.block_len;
  }
  std::byte* block(int32_t b) { return cells_.data() + raw(table_[static_cast<size_t>(b)]) * kv_.block_bytes; }
  void draw(std::vector<float>& row) {
    std::uniform_real_distribution<float> one(-2, 2);
    for (float& x : row) x = one(random_);
  }

  int32_t n_, group_, n_blocks_, q_len_ = 0;
  std::mt19937_64 random_;
  PagedKv kv_;
  std::vector<std::byte> cells_;
  std::vector<BlockId> table_;  // of the text, then of what is kept
  std::vector<float> q_;
};

TEST(KeepRows, AreThoseOfTheLawOnEveryInstructionSet) {
  struct Case {
    KvTypes dtype;
    int32_t n_kv_heads, group, head_len, block_len, n;
    KeptRows rows;
  };
  const Case cases[] = {
      {KvType::kF16, 3, 3, 64, 16, 333, {.n = 96, .n_last = 32, .n_queries = 32, .pool = 7}},
      {KvType::kF32, 1, 3, 40, 8, 150, {.n = 20, .n_last = 5, .n_queries = 5, .pool = 7}},
      {KvType::kBF16, 2, 1, 32, 32, 200, {.n = 70, .n_last = 35, .n_queries = 8, .pool = 1}},
      {KvType::kI8, 2, 4, 64, 16, 260, {.n = 65, .n_last = 16, .n_queries = 16, .pool = 7}},
      {{KvType::kI8, KvType::kI4}, 2, 4, 64, 16, 260, {.n = 65, .n_last = 16, .n_queries = 16, .pool = 5}},
      {KvType::kI4, 2, 2, 64, 32, 131, {.n = 64, .n_first = 4, .n_last = 16, .n_queries = 16, .pool = 3}},
      {KvType::kF16, 2, 2, 64, 16, 100, {.n = 40, .n_first = 4, .n_last = 36}},
  };
  ThreadTeam one(1), three(3);
  Stream alone(one), together(three);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.dtype.name() + ", " + std::to_string(c.n));
    Text text(c.dtype, c.n_kv_heads, c.group, c.head_len, c.block_len, c.n, 11);
    const int32_t n_step = std::max(1, c.rows.n_queries) + 3;
    reference::select(true);
    const std::vector<std::byte> expected = text.keep(alone, c.rows, n_step);
    reference::select(false);
    for_each_isa([&](Isa) {
      EXPECT_TRUE(text.keep(alone, c.rows, n_step) == expected);
      EXPECT_TRUE(text.keep(together, c.rows, n_step) == expected);
    });
    for (int32_t head = 0; head < text.n_heads(); ++head) {
      for (int32_t i = 0; i < c.rows.n_first; ++i) EXPECT_EQ(text.place_in_row(head, i), i);
      for (int32_t i = 0; i < c.rows.n_last; ++i)
        EXPECT_EQ(text.place_in_row(head, c.rows.n - 1 - i), c.n - 1 - i) << "the last ones are kept";
      EXPECT_EQ(text.place_in_row(head, c.rows.n), -1) << "no row more";
    }
  }
}

TEST(KeepRows, OfEqualScoresAreTheFirst) {
  ThreadTeam one(1);
  Stream s(one);
  Text text(KvType::kF16, 1, 2, 64, 16, 90, 5, true);
  text.keep(s, {.n = 30, .n_last = 10, .n_queries = 10, .pool = 1}, 10);
  for (int32_t i = 0; i < 20; ++i) EXPECT_EQ(text.place_in_row(0, i), i);
  EXPECT_EQ(text.place_in_row(0, 20), 80);
}

TEST(KeepRows, AreChosenByScoreThenByPlace) {
  const auto chosen = [](std::vector<float> scores, size_t n) {
    std::vector<int32_t> order(scores.size()), out(n);
    choose_rows(scores, 100, order, out);
    return out;
  };
  using List = std::vector<int32_t>;
  EXPECT_EQ(chosen({1, 3, 2, 3, 0}, 2), (List{101, 103}));
  EXPECT_EQ(chosen({1, 3, 2, 3, 2}, 3), (List{101, 102, 103}));
  EXPECT_EQ(chosen({0, 0, 0, 0}, 3), (List{100, 101, 102}));
  EXPECT_EQ(chosen({NAN, -INFINITY, NAN, 0}, 3), (List{100, 101, 103}));
  EXPECT_EQ(chosen({5, 4}, 2), (List{100, 101}));
  EXPECT_EQ(chosen({5, 4}, 0), List{});
}

}  // namespace
}  // namespace ibid::parity
