// Attention over heads of all lengths, keys longer or shorter than values, and latent rows that are both.
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

const Shape kShapes[] = {
    // Keys as long as values.
    {.heads = 6, .kv_heads = 2, .head_len = 64, .dtype = DType::kBF16},
    {.heads = 3, .kv_heads = 1, .head_len = 80, .dtype = DType::kF16},
    {.heads = 4, .kv_heads = 2, .head_len = 96, .dtype = DType::kF32, .block_len = 32},
    {.heads = 5, .kv_heads = 1, .head_len = 128, .dtype = DType::kF16, .window = 100},
    {.heads = 4, .kv_heads = 2, .head_len = 192, .dtype = DType::kF16, .block_len = 8},
    {.heads = 4, .kv_heads = 4, .head_len = 256, .dtype = DType::kBF16, .block_len = 32, .has_sinks = true},
    {.heads = 4, .kv_heads = 2, .head_len = 512, .dtype = DType::kF16, .soft_cap = 9.0f},
    {.heads = 13, .kv_heads = 1, .head_len = 576, .dtype = DType::kBF16},
    // Unlike.
    {.heads = 6, .kv_heads = 2, .head_len = 192, .dtype = DType::kF16, .value_len = 128},
    {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = DType::kF32, .block_len = 8, .value_len = 96},
    {.heads = 2, .kv_heads = 2, .head_len = 40, .dtype = DType::kBF16, .window = 70, .value_len = 24},
    {.heads = 9, .kv_heads = 1, .head_len = 576, .dtype = DType::kF16, .has_sinks = true, .value_len = 512},
    {.heads = 30, .kv_heads = 1, .head_len = 8, .dtype = DType::kF16, .value_len = 256},
    // Latent.
    {.heads = 13, .kv_heads = 1, .head_len = 576, .dtype = DType::kF16, .value_len = 512, .latent = true},
    {.heads = 2, .kv_heads = 1, .head_len = 72, .dtype = DType::kF32, .block_len = 8, .value_len = 40, .latent = true},
    {.heads = 5,
     .kv_heads = 1,
     .head_len = 320,
     .dtype = DType::kBF16,
     .block_len = 32,
     .soft_cap = 7.0f,
     .window = 90,
     .has_sinks = true,
     .value_len = 256,
     .latent = true},
    {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = DType::kF16, .value_len = 64, .latent = true},
};

// Of heads with slopes, their numbers powers of two or not.
const Shape kSlopes[] = {
    {.heads = 8, .kv_heads = 8, .head_len = 64, .dtype = DType::kF16, .has_slopes = true},
    {.heads = 12, .kv_heads = 4, .head_len = 128, .dtype = DType::kBF16, .block_len = 32, .has_slopes = true},
    {.heads = 7, .kv_heads = 1, .head_len = 40, .dtype = DType::kF32, .block_len = 8, .has_slopes = true},
    {.heads = 30, .kv_heads = 1, .head_len = 16, .dtype = DType::kF16, .window = 70, .has_slopes = true},
    {.heads = 6,
     .kv_heads = 2,
     .head_len = 80,
     .dtype = DType::kF16,
     .soft_cap = 6.0f,
     .has_sinks = true,
     .has_slopes = true,
     .value_len = 48},
    {.heads = 5,
     .kv_heads = 1,
     .head_len = 72,
     .dtype = DType::kF32,
     .has_slopes = true,
     .value_len = 40,
     .latent = true},
};

std::string spelled(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.head_len) + "," +
         std::to_string(s.geometry().value_len) + (s.latent ? ", latent, " : ", ") + s.dtype.name() + ", blocks of " +
         std::to_string(s.block_len);
}

// Chunks over the end of a tile and of a piece, then decodes; rows of two sequences.
Paged::Rows chunks_and_decodes(const Shape& shape, ThreadTeam& team, uint64_t seed = 1) {
  Paged paged(shape, 2, 320, seed);
  Stream s(team);
  paged.step(s, {{1, 0, 251}, {0, 0, 57}}, false);
  paged.step(s, {{0, 57, 70}, {1, 251, 263}});
  paged.step(s, {{1, 263, 264}});
  paged.step(s, {{1, 264, 265}, {0, 70, 72}});
  return paged.rows();
}
// The same rows, other company.
Paged::Rows one_by_one(const Shape& shape, ThreadTeam& team) {
  Paged paged(shape, 2, 320, 5);
  Stream s(team);
  paged.step(s, {{0, 0, 57}}, false);
  paged.step(s, {{0, 57, 72}});
  for (int32_t p = 0; p < 251; ++p) paged.step(s, {{1, p, p + 1}}, false);
  for (int32_t p = 251; p < 265; ++p) paged.step(s, {{1, p, p + 1}});
  return paged.rows();
}

void expect_those_of_the_reference(std::span<const Shape> shapes) {
  ThreadTeam team(2);
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(spelled(shape));
    reference::select(true);
    const Paged::Rows want = chunks_and_decodes(shape, team);
    reference::select(false);
    Paged::Rows first;
    for_each_isa([&](Isa) {
      const Paged::Rows got = chunks_and_decodes(shape, team);
      for (const auto& [key, row] : got) {
        for (size_t i = 0; i < row.size(); ++i) {
          const double b = want.at(key)[i];
          ASSERT_LE(std::fabs(row[i] - b), kAttention.absolute + kAttention.relative * std::fabs(b))
              << "sequence " << key.first << ", position " << key.second << ", column " << i;
        }
      }
      if (first.empty()) first = got;
      ASSERT_EQ(difference(first, got), "");
    });
  }
}
TEST(AttentionHeads, OfAllLengthsEqualTheReferenceWithTheSameBitsOnEveryInstructionSet) {
  expect_those_of_the_reference(kShapes);
}
TEST(AttentionHeads, WithSlopesEqualTheReferenceWithTheSameBitsOnEveryInstructionSet) {
  expect_those_of_the_reference(kSlopes);
}

void expect_bits_of_any_schedule(std::span<const Shape> shapes) {
  ThreadTeam one(1), three(3);
  for (Shape shape : shapes) {
    SCOPED_TRACE(spelled(shape));
    const Paged::Rows rows = chunks_and_decodes(shape, one);
    ASSERT_EQ(difference(rows, chunks_and_decodes(shape, three, 9)), "");
    ASSERT_EQ(difference(rows, one_by_one(shape, one)), "");
    for (const int32_t block_len : {8, 16, 32}) {
      shape.block_len = block_len;
      ASSERT_EQ(difference(rows, chunks_and_decodes(shape, three)), "");
    }
  }
}
TEST(AttentionHeads, BitsDependOnNeitherCompanyNorChunksNorThreadsNorBlocks) { expect_bits_of_any_schedule(kShapes); }
TEST(AttentionHeads, WithSlopesHaveBitsOfNeitherCompanyNorChunksNorThreadsNorBlocks) {
  expect_bits_of_any_schedule(kSlopes);
}

// A decode whose pieces several threads share.
void expect_bits_of_one_thread(std::span<const Shape> shapes) {
  ThreadTeam one(1), four(4);
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(spelled(shape));
    const auto rows = [&](ThreadTeam& team) {
      Paged paged(shape, 1, 1400);
      Stream s(team);
      paged.step(s, {{0, 0, 1300}}, false);
      paged.step(s, {{0, 1300, 1301}});
      paged.step(s, {{0, 1301, 1304}});
      return paged.rows();
    };
    ASSERT_EQ(difference(rows(one), rows(four)), "");
  }
}
TEST(AttentionHeads, ALongDecodeIsSplitOverPiecesWithoutAChangedBit) { expect_bits_of_one_thread(kShapes); }
TEST(AttentionHeads, ALongDecodeWithSlopesIsSplitOverPiecesWithoutAChangedBit) { expect_bits_of_one_thread(kSlopes); }

// Drafts whose keys lie anywhere, and each after its own path.
void expect_bits_of_a_plain_sequence(std::span<const Shape> shapes) {
  constexpr int32_t kText = 250, kDrafts = 9;
  ThreadTeam team(2);
  Stream s(team);
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(spelled(shape));
    Paged plain(shape, 1, 300), drafts(shape, 1, 300, 4);
    for (Paged* paged : {&plain, &drafts}) paged->step(s, {{0, 0, kText}}, false);
    plain.step(s, {{0, kText, kText + kDrafts}});
    TokensOf of = {0, {}};
    std::vector<int32_t> path;
    for (int32_t i = 0; i < kDrafts; ++i) {
      const int32_t position = kText + i, slot = drafts.slot(0, kText + 2 * (kDrafts - i));
      path.push_back(slot);
      of.tokens.push_back({position, Paged::content(0, position), slot, path, position});
    }
    drafts.step(s, {of});
    ASSERT_EQ(difference(plain.rows(), drafts.rows()), "");
  }
}
TEST(AttentionHeads, APathHasTheBitsOfAPlainSequence) { expect_bits_of_a_plain_sequence(kShapes); }
TEST(AttentionHeads, APathWithSlopesHasTheBitsOfAPlainSequence) { expect_bits_of_a_plain_sequence(kSlopes); }

// To the bit, though the rows lie once and in another order.
TEST(AttentionHeads, LatentRowsGiveWhatKeysThatBeginWithTheirValuesGive) {
  ThreadTeam team(2);
  for (const Shape& shape : kShapes) {
    if (!shape.latent) continue;
    Shape heads = shape;
    heads.latent = false;
    heads.values_begin_keys = true;
    ASSERT_EQ(difference(chunks_and_decodes(shape, team), chunks_and_decodes(heads, team)), "") << spelled(shape);
  }
}

TEST(PagedKv, ALatentBlockHasOneRowATokenInTheOrderOfTokens) {
  constexpr int32_t kLen = 24, kValueLen = 16;
  ThreadTeam team(1);
  Stream s(team);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Shape shape = {.heads = 2,
                         .kv_heads = 1,
                         .head_len = kLen,
                         .dtype = dtype,
                         .block_len = 8,
                         .value_len = kValueLen,
                         .latent = true};
    Paged paged(shape, 1, 16);
    paged.step(s, {{0, 0, 16}}, false);
    const PagedKv& kv = paged.kv();
    const int64_t size = traits(dtype).block_bytes;
    EXPECT_EQ(kv.layer_bytes, 8 * kLen * size);
    std::vector<float> before(kLen);
    for (int32_t d = 0; d < kLen; ++d) {
      before[static_cast<size_t>(d)] = kv_read(kv, KvPart::kKey, paged.slot(0, 11), 0, d);
      EXPECT_EQ(kv_element_offset(kv, KvPart::kKey, 3, 0, d), (3 * kLen + d) * size);
    }
    for (int32_t d = 0; d < kValueLen; ++d)
      EXPECT_EQ(kv_read(kv, KvPart::kValue, paged.slot(0, 11), 0, d), before[static_cast<size_t>(d)]);
    const std::vector<int32_t> from = {paged.slot(0, 11)}, to = {paged.slot(0, 2)};
    const float beside = kv_read(kv, KvPart::kKey, paged.slot(0, 3), 0, 0);
    ops::copy_slots(s, kv, from, to);
    for (int32_t d = 0; d < kLen; ++d)
      EXPECT_EQ(kv_read(kv, KvPart::kKey, to[0], 0, d), before[static_cast<size_t>(d)]);
    EXPECT_EQ(kv_read(kv, KvPart::kKey, paged.slot(0, 3), 0, 0), beside);
    note_bits(before);
  }
}

TEST(KvLayout, HasTheBytesThatEachKindKeepsOfAToken) {
  const KvGeometry latent = {.kind = KvKind::kLatent, .n_kv_heads = 1, .key_len = 576, .value_len = 512};
  const KvGeometry heads = {.n_kv_heads = 4, .key_len = 192, .value_len = 128};
  const KvGeometry nothing = {.kind = KvKind::kNothing};
  EXPECT_EQ(kv_token_len(latent), 576);
  EXPECT_EQ(kv_token_len(heads), 4 * (192 + 128));
  EXPECT_EQ(kv_token_len(nothing), 0);
  const std::vector<KvLayout> layers = kv_layouts(std::vector{nothing, latent, heads}, DType::kF16, 16);
  EXPECT_EQ(kv_block_bytes(layers), 2 * 16 * (576 + 4 * (192 + 128)));
  EXPECT_EQ(layers[1].name(), "B.D F16 B16 K1 D576,512");
  EXPECT_EQ(layers[2].name(), "K:D.B,B.D F16 B16 K4 D192,128");
  std::vector<std::byte> memory(static_cast<size_t>(kv_pool_bytes(layers, 3)));
  const std::vector<PagedKv> pool = kv_pool(layers, 3, memory.data());
  EXPECT_EQ(pool[0].layer_bytes, 0);
  EXPECT_EQ(pool[2].blocks - pool[1].blocks, 2 * 16 * 576);
  for (const KvLayout& layer : layers) EXPECT_TRUE(kv_supported(layer).ok());
  const auto supports = [](KvGeometry g, int32_t KvGeometry::*member, int32_t value) {
    g.*member = value;
    return kv_supported({g, DType::kF16, 16}).ok();
  };
  EXPECT_FALSE(supports(latent, &KvGeometry::n_kv_heads, 2));
  EXPECT_FALSE(supports(latent, &KvGeometry::key_len, 504)) << "a value is a part of its row";
  EXPECT_FALSE(supports(heads, &KvGeometry::key_len, 584));
  EXPECT_FALSE(supports(heads, &KvGeometry::value_len, 20));
}

}  // namespace
}  // namespace ibid::parity
