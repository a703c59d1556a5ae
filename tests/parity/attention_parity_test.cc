// Paged attention against the reference in double precision, and the properties that make a row's bits its own.
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

const Shape kShapes[] = {
    {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16},
    {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = DType::kF32, .block_len = 8},
    {.heads = 2, .kv_heads = 2, .head_len = 80, .dtype = DType::kBF16, .block_len = 32},
    {.heads = 7, .kv_heads = 1, .head_len = 128, .dtype = DType::kF16, .block_len = 32},
    {.heads = 4, .kv_heads = 2, .head_len = 32, .dtype = DType::kF16, .block_len = 8, .window = 70},
    {.heads = 8, .kv_heads = 2, .head_len = 256, .dtype = DType::kBF16, .soft_cap = 5.0f},
    {.heads = 4, .kv_heads = 4, .head_len = 40, .dtype = DType::kF32, .window = 17},
    {.heads = 1, .kv_heads = 1, .head_len = 8, .dtype = DType::kF16},
    {.heads = 110, .kv_heads = 1, .head_len = 16, .dtype = DType::kF32},
};

std::string name(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.head_len) + ", " +
         s.dtype.name() + ", blocks of " + std::to_string(s.block_len) + ", window " + std::to_string(s.window);
}

// A schedule of two sequences of 77 and 301 tokens: prefill pieces beside each other, then decodes.
std::vector<std::vector<Part>> pieces_and_decodes() {
  return {{{0, 0, 5}, {1, 0, 130}}, {{1, 130, 297}, {0, 5, 77}}, {{1, 297, 298}}, {{1, 298, 301}}};
}
std::vector<std::vector<Part>> at_once() { return {{{0, 0, 77}, {1, 0, 301}}}; }
std::vector<std::vector<Part>> alone() { return {{{1, 0, 301}}, {{0, 0, 77}}}; }
std::vector<std::vector<Part>> token_by_token() {
  std::vector<std::vector<Part>> steps;
  for (int32_t p = 0; p < 301; ++p) {
    steps.push_back({{1, p, p + 1}});
    if (p < 77) steps.back().push_back({0, p, p + 1});
  }
  return steps;
}

Paged::Rows run(const Shape& shape, const std::vector<std::vector<Part>>& steps, ThreadTeam& team, uint64_t seed = 1) {
  Paged paged(shape, 2, 301, seed);
  Stream s(team);
  for (const auto& parts : steps) paged.step(s, parts);
  return paged.rows();
}

// Few rows with much after them, so that double precision and the emulated fma stay quick: prefill pieces over the end
// of a tile and of a piece, then decodes.
Paged::Rows run_few(const Shape& shape, ThreadTeam& team) {
  Paged paged(shape, 2, 320);
  Stream s(team);
  paged.step(s, {{1, 0, 251}, {0, 0, 57}}, false);
  paged.step(s, {{0, 57, 70}, {1, 251, 263}});
  paged.step(s, {{1, 263, 264}});
  paged.step(s, {{1, 264, 265}, {0, 70, 72}});
  return paged.rows();
}

TEST(AttentionParity, EqualsTheReferenceOnEveryInstructionSetWithTheSameBits) {
  ThreadTeam team(2);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name(shape));
    reference::select(true);
    const Paged::Rows want = run_few(shape, team);
    reference::select(false);
    Paged::Rows first;
    for_each_isa([&](Isa) {
      const Paged::Rows got = run_few(shape, team);
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

TEST(AttentionParity, BitsDoNotDependOnCompanyChunkingOrThreads) {
  ThreadTeam one(1), three(3);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name(shape));
    const Paged::Rows whole = run(shape, at_once(), one);
    ASSERT_EQ(difference(whole, run(shape, alone(), one)), "");
    ASSERT_EQ(difference(whole, run(shape, pieces_and_decodes(), one)), "");
    ASSERT_EQ(difference(whole, run(shape, pieces_and_decodes(), three)), "");
    ASSERT_EQ(difference(whole, run(shape, token_by_token(), three)), "");
  }
}

TEST(AttentionParity, BitsDoNotDependOnBlockSizeOrPhysicalBlocks) {
  ThreadTeam team(2);
  for (Shape shape : kShapes) {
    SCOPED_TRACE(name(shape));
    const Paged::Rows first = run(shape, pieces_and_decodes(), team);
    ASSERT_EQ(difference(first, run(shape, pieces_and_decodes(), team, 99)), "");
    for (int32_t block_len : {8, 16, 32}) {
      shape.block_len = block_len;
      ASSERT_EQ(difference(first, run(shape, pieces_and_decodes(), team, 7)), "");
    }
  }
}

// Paging costs no bit: the same keys in one run of blocks in order (row P7).
TEST(AttentionParity, PagedEqualsContiguous) {
  ThreadTeam team(1);
  const Shape shape = {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16, .block_len = 32};
  Paged contiguous(shape, 1, 301);
  for (int32_t b = 0; b < 10; ++b) contiguous.block(0, b) = BlockId{b};
  Paged paged(shape, 1, 301, 5);
  Stream s(team);
  contiguous.step(s, {{0, 0, 301}});
  paged.step(s, {{0, 0, 301}});
  EXPECT_EQ(difference(contiguous.rows(), paged.rows()), "");
}

// Every cell that no query may see is NaN, and blocks before the window are no blocks: Paged does both. Here also what
// lies after a sequence's end in its last block, and what was overwritten by garbage before the window.
TEST(AttentionParity, MaskedAndUnwrittenKeysAreNeverMultiplied) {
  ThreadTeam team(2);
  Stream s(team);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int32_t n : {1, 15, 63, 64, 65, 129, 257}) {
      const Shape shape = {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = dtype, .block_len = 16, .window = 40};
      Paged paged(shape, 1, 320);
      paged.step(s, {{0, 0, n}});
      for (int32_t p = 0; p < n + 1 - shape.window; ++p) {  // before the window of the next query
        const int32_t slot = raw(paged.block(0, p / 16)) * 16 + p % 16;
        for (int32_t d = 0; d < shape.head_len; ++d) {
          kv_write(paged.kv(), KvPart::kKey, slot, 0, d, std::nanf(""));
          kv_write(paged.kv(), KvPart::kValue, slot, 0, d, INFINITY);
        }
      }
      paged.step(s, {{0, n, n + 1}});
      for (const auto& [key, row] : paged.rows()) {
        note_bits(row);
        for (float x : row) ASSERT_TRUE(std::isfinite(x)) << "position " << key.second << " of " << n;
      }
    }
  }
}

// A later token whose key and value are not finite leaves earlier rows of the same step alone.
TEST(AttentionParity, ARowNeverFeelsLaterTokens) {
  ThreadTeam team(1);
  Stream s(team);
  for (int32_t heads : {1, 3, 24}) {
    const Shape shape = {.heads = heads, .kv_heads = 1, .head_len = 64, .dtype = DType::kF16};
    for (int32_t n : {37, 40, 64}) {
      Paged shorter(shape, 1, 96), longer(shape, 1, 96);
      shorter.step(s, {{0, 0, n}});
      longer.not_finite_from = n;
      longer.step(s, {{0, 0, 90}});
      for (const auto& [key, row] : shorter.rows()) {
        note_bits(row);
        ASSERT_EQ(0, std::memcmp(row.data(), longer.rows().at(key).data(), row.size() * sizeof(float)))
            << "position " << key.second << " of " << n;
      }
    }
  }
}

TEST(AttentionParity, ManySequencesAtOnceEqualEachAlone) {
  ThreadTeam one(1), two(2);
  const Shape shape = {.heads = 6, .kv_heads = 2, .head_len = 32, .dtype = DType::kBF16};
  Paged together(shape, 20, 600), apart(shape, 20, 600, 3);
  Stream s1(one), s2(two);
  std::vector<Part> prefill, decode;
  for (int32_t i = 0; i < 20; ++i) {
    prefill.push_back({i, 0, 1 + 29 * i});
    decode.push_back({i, 1 + 29 * i, 2 + 29 * i + i % 3});
  }
  together.step(s2, prefill);
  together.step(s2, decode);
  for (size_t i = 0; i < prefill.size(); ++i) {
    apart.step(s1, {prefill[i]});
    apart.step(s1, {decode[i]});
  }
  EXPECT_EQ(difference(together.rows(), apart.rows()), "");
}

// Drafts after a sequence: as many rows as register tiles have, and some more, each with the bits of its token alone.
TEST(AttentionParity, AnyNumberOfRowsHasTheBitsOfEachAlone) {
  ThreadTeam team(1);
  Stream s(team);
  constexpr int32_t kText = 250, kMost = 26;  // over the end of a tile and of a piece
  const Shape shapes[] = {
      {.heads = 1, .kv_heads = 1, .head_len = 16, .dtype = DType::kF16},
      {.heads = 3, .kv_heads = 1, .head_len = 48, .dtype = DType::kBF16, .soft_cap = 5.0f, .window = 200},
      {.heads = 7, .kv_heads = 1, .head_len = 16, .dtype = DType::kF32, .block_len = 8},
  };
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(name(shape));
    Paged alone(shape, 1, kText + kMost);
    alone.step(s, {{0, 0, kText}}, false);
    for (int32_t p = kText; p < kText + kMost; ++p) alone.step(s, {{0, p, p + 1}});
    for_each_isa([&](Isa) {
      for (int32_t n = 1; n <= kMost; ++n) {
        Paged together(shape, 1, kText + kMost, 3);
        together.step(s, {{0, 0, kText}}, false);
        together.step(s, {{0, kText, kText + n}});
        for (const auto& [key, row] : together.rows()) {
          note_bits(row);
          ASSERT_EQ(0, std::memcmp(row.data(), alone.rows().at(key).data(), row.size() * sizeof(float)))
              << n << " tokens, position " << key.second;
        }
      }
    });
  }
}

// Over all pieces, and over those alone that a window reaches. Those of the longest sequences are of several KV heads,
// all or a part.
TEST(AttentionParity, ALongDecodeIsSplitOverPiecesWithoutAChangedBit) {
  ThreadTeam one(1), four(4);
  const Shape three = {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16};
  const Shape eight = {.heads = 16, .kv_heads = 8, .head_len = 128, .dtype = DType::kBF16, .block_len = 32};
  const Shape many = {.heads = 24, .kv_heads = 24, .head_len = 16, .dtype = DType::kF16};
  const Shape window = {.heads = 4, .kv_heads = 1, .head_len = 64, .dtype = DType::kF16, .window = 517};
  for (const auto& [shape, text] : {std::pair{three, 2048}, std::pair{three, 4352}, std::pair{eight, 4352},
                                    std::pair{many, 4352}, std::pair{window, 2048}}) {
    SCOPED_TRACE(testing::Message() << name(shape) << " after " << text);
    Paged a(shape, 1, text + 52), b(shape, 1, text + 52);
    Stream s1(one), s4(four);
    a.step(s1, {{0, 0, text - 48}}, false);
    b.step(s4, {{0, 0, text - 48}}, false);
    a.step(s1, {{0, text - 48, text}});
    b.step(s4, {{0, text - 48, text}});
    // One token after the other, and four at once whose windows begin on either side of a piece's.
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 2}, {2, 6}}) {
      a.step(s1, {{0, text + begin, text + end}});
      b.step(s4, {{0, text + begin, text + end}});
    }
    EXPECT_EQ(difference(a.rows(), b.rows()), "");
    // Whoever asks for all of them at once has tasks of one KV head each.
    Paged together(shape, 1, text + 52);
    together.step(s4, {{0, 0, text - 48}}, false);
    together.step(s4, {{0, text - 48, text + 6}});
    EXPECT_EQ(difference(a.rows(), together.rows()), "");
  }
}

// 33 pieces merged, against one softmax over all in double precision.
TEST(AttentionParity, ALongContextEqualsTheReference) {
  ThreadTeam team(2);
  const Shape shape = {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = DType::kBF16, .block_len = 32};
  const auto rows = [&] {
    Paged paged(shape, 1, 8300);
    Stream s(team);
    paged.step(s, {{0, 0, 8250}}, false);
    paged.step(s, {{0, 8250, 8252}});
    return paged.rows();
  };
  reference::select(true);
  const Paged::Rows want = rows();
  reference::select(false);
  for (const auto& [key, row] : rows()) {
    note_bits(row);
    for (size_t i = 0; i < row.size(); ++i) {
      const double b = want.at(key)[i];
      ASSERT_LE(std::fabs(row[i] - b), kAttention.absolute + kAttention.relative * std::fabs(b)) << "column " << i;
    }
  }
}

// The exchange form is the block as it lies: keys[D][B], then values[B][D], head by head.
TEST(PagedKv, ABlockIsExchangedAsItLies) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Shape shape = {.heads = 2, .kv_heads = 2, .head_len = 24, .dtype = dtype, .block_len = 8};
    ThreadTeam team(1);
    Stream s(team);
    Paged from(shape, 1, 16), to(shape, 1, 16, 3);
    from.step(s, {{0, 0, 16}});
    std::vector<std::byte> bytes(static_cast<size_t>(from.kv().layer_bytes));
    note_bits({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    EXPECT_EQ(bytes.size(), static_cast<size_t>(2 * 2 * 24 * 8 * traits(dtype).block_bytes));
    kv_export(from.kv(), from.block(0, 1), bytes);
    kv_import(to.kv(), to.block(0, 1), bytes);
    const auto n = static_cast<int64_t>(bytes.size());
    const PagedKv alone = {bytes.data(), n, n, dtype, 1, 8, 2, 24, 24};
    for (KvPart part : {KvPart::kKey, KvPart::kValue}) {
      for (int32_t i = 0; i < 8; ++i) {
        for (int32_t head = 0; head < 2; ++head) {
          for (int32_t d = 0; d < 24; ++d) {
            const float want = kv_read(from.kv(), part, from.slot(0, 8 + i), head, d);
            ASSERT_EQ(kv_read(to.kv(), part, to.slot(0, 8 + i), head, d), want);
            ASSERT_EQ(kv_read(alone, part, i, head, d), want);
          }
        }
      }
    }
    if (dtype == DType::kF32) {
      const float want = kv_read(from.kv(), KvPart::kValue, from.slot(0, 8 + 5), 1, 3);
      EXPECT_EQ(0, std::memcmp(&want, &bytes[((2 * 8 * 24) + 8 * 24 + 5 * 24 + 3) * 4], sizeof want));
    }
  }
}

// A block's bytes are those of its tokens, whenever and in whatever company they arrived.
TEST(PagedKv, ABlocksBytesDependOnItsTokensAlone) {
  const Shape shape = {.heads = 2, .kv_heads = 2, .head_len = 40, .dtype = DType::kF16, .block_len = 16};
  ThreadTeam one(1), two(2);
  Stream s1(one), s2(two);
  Paged whole(shape, 2, 32), pieces(shape, 2, 32, 4);
  whole.step(s2, {{0, 0, 32}, {1, 0, 32}}, false);
  for (int32_t p = 0; p < 32; ++p) pieces.step(s1, {{0, p, p + 1}}, false);
  std::vector<std::byte> a(static_cast<size_t>(whole.kv().layer_bytes)), b(a.size());
  for (int32_t block : {0, 1}) {
    kv_export(whole.kv(), whole.block(0, block), a);
    kv_export(pieces.kv(), pieces.block(0, block), b);
    EXPECT_EQ(a, b);
    note_bits({reinterpret_cast<const char*>(a.data()), a.size()});
  }
}

TEST(AttentionParity, PrefillMemoryGrowsWithTheTokensNotTheirSquare) {
  const auto bytes = [](int32_t n) { return ops::paged_attention_workspace_bytes(n, 9, 64, n); };
  EXPECT_LE(bytes(65536), 2 * bytes(32768) + 4096);
  EXPECT_LE(bytes(8192), size_t{8192} * 9 * 64 * sizeof(float)) << "less than the queries themselves";
}

}  // namespace
}  // namespace ibid::parity
