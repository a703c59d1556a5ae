// Views of sequences: a token that reads some of its sequence's blocks has the bits of one whose sequence has no
// others.
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

const Shape kShapes[] = {
    {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16},
    {.heads = 3, .kv_heads = 1, .head_len = 40, .dtype = DType::kF32, .block_len = 8},
    {.heads = 4, .kv_heads = 2, .head_len = 32, .dtype = DType::kBF16, .block_len = 32, .window = 90},
};
constexpr int32_t kTexts = 3;

// The blocks that are read of a sequence of n tokens: at its start, some between, at its end.
std::vector<int32_t> some_blocks(int32_t n_blocks, std::mt19937_64& random) {
  std::vector<int32_t> out;
  for (int32_t b = 0; b < n_blocks; ++b) {
    if (b < 2 || b >= n_blocks - 3 || random() % 3 == 0) out.push_back(b);
  }
  return out;
}

// The last two tokens of each sequence, over views of it; and the same as sequences that have only these blocks.
void compare(const Shape& shape, int32_t n, Stream& s, uint64_t seed) {
  std::mt19937_64 random(seed);
  Paged whole(shape, kTexts, n + 8, seed), cut(shape, kTexts, n + 8, seed + 1);
  std::vector<TokensOf> views, plain;
  for (int32_t sequence = 0; sequence < kTexts; ++sequence) {
    const int32_t len = n - 37 * sequence;
    whole.step(s, {{sequence, 0, len - 2}}, false);
    const std::vector<int32_t> view = some_blocks((len + shape.block_len - 1) / shape.block_len, random);
    TokensOf text = {sequence, {}}, viewed = {sequence, {}, view}, last = {sequence, {}};
    int32_t place = 0;
    for (const int32_t b : view) {
      for (int32_t p = b * shape.block_len; p < std::min(len, (b + 1) * shape.block_len); ++p, ++place) {
        TokensOf& of = p < len - 2 ? text : last;
        of.tokens.push_back({place, Paged::content(sequence, p), cut.slot(sequence, place), {}, p});
        if (p >= len - 2) viewed.tokens.push_back({p, Paged::content(sequence, p), whole.slot(sequence, p), {}, p});
      }
    }
    cut.step(s, std::vector<TokensOf>{text}, false);
    views.push_back(viewed), plain.push_back(last);
  }
  whole.step(s, views);
  cut.step(s, plain);
  ASSERT_EQ(whole.rows().size(), size_t{2 * kTexts});
  EXPECT_EQ(difference(whole.rows(), cut.rows()), "");
}

TEST(AttentionViews, EqualASequenceOfTheirBlocksOnEveryInstructionSet) {
  ThreadTeam one(1), three(3);
  Stream alone(one), together(three);
  for (const Shape& shape : kShapes) {
    for (const int32_t n : {150, 333, 1500}) {
      SCOPED_TRACE(std::to_string(shape.head_len) + ", text of " + std::to_string(n));
      for_each_isa([&](Isa) {
        compare(shape, n, alone, 3);
        compare(shape, n, together, 4);
      });
    }
  }
}

// The specification reads them too.
TEST(AttentionViews, TheReferenceReadsByPlaces) {
  const int32_t positions[] = {37}, places[] = {13}, slots[] = {13 + 8}, query_start[] = {0, 1}, kv_len[] = {14};
  const int32_t block_start[] = {0, 2};
  const BlockId table[] = {BlockId{4}, BlockId{1}};
  const ForwardBatch batch = {.n_tokens = 1,
                              .n_sequences = 1,
                              .block_len = 8,
                              .positions = positions,
                              .places = places,
                              .slots = slots,
                              .query_start = query_start,
                              .kv_len = kv_len,
                              .block_start = block_start,
                              .block_table = table};
  EXPECT_EQ(batch.read_by()[0], 13);
  EXPECT_EQ(batch.slot_read(0, 0, 3), 4 * 8 + 3);
  EXPECT_EQ(batch.slot_read(0, 0, 13), 1 * 8 + 5);
  PagedKv kv;
  kv.dtype = DType::kF32;
  kv.block_len = kv.key_len = kv.value_len = 8;
  kv.n_kv_heads = 1;
  kv.n_blocks = 5;
  kv.block_bytes = KvLayout{{.n_kv_heads = 1, .key_len = 8, .value_len = 8}, DType::kF32, 8}.block_bytes();
  std::vector<std::byte> cells(static_cast<size_t>(5 * kv.block_bytes) + 64, std::byte{0xff});
  kv.blocks = cells.data() + (64 - reinterpret_cast<uintptr_t>(cells.data()) % 64) % 64;
  // All keys alike: the values' mean.
  for (int32_t place = 0; place <= 13; ++place) {
    for (int32_t d = 0; d < 8; ++d) {
      const int32_t slot = batch.slot_read(0, 0, place);
      kv_write(kv, KvPart::kKey, slot, 0, d, 1);
      kv_write(kv, KvPart::kValue, slot, 0, d, place < 8 ? 2 : 9);
    }
  }
  Guarded q(1, 8), out(1, 8);
  q.fill(5);
  reference::paged_attention(out.view(), q.view(), kv, batch, {1, 0, 0});
  EXPECT_FLOAT_EQ(out.row(0)[0], 5);
  note_bits(out.bits());
}

}  // namespace
}  // namespace ibid::parity
