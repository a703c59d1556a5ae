// Keys and values as codes (kernels/kv_codes.h): attention over them is that over an F32 cache of the numbers that they
// stand for, bit for bit, so every property of the latter holds; and how far codes are from what they were made of.
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

const Shape kShapes[] = {
    {.heads = 9, .kv_heads = 3, .head_len = 64},
    {.heads = 2, .kv_heads = 2, .head_len = 80, .block_len = 32},
    {.heads = 7, .kv_heads = 1, .head_len = 128, .block_len = 32, .has_sinks = true},
    {.heads = 4, .kv_heads = 2, .head_len = 32, .block_len = 8, .window = 70},
    {.heads = 8, .kv_heads = 2, .head_len = 256, .soft_cap = 5.0f},
    {.heads = 4, .kv_heads = 4, .head_len = 40, .window = 17},
    {.heads = 12, .kv_heads = 4, .head_len = 128, .has_slopes = true},
    {.heads = 6, .kv_heads = 2, .head_len = 96, .value_len = 64},
    {.heads = 2, .kv_heads = 1, .head_len = 512},
    {.heads = 1, .kv_heads = 1, .head_len = 8},
    {.heads = 110, .kv_heads = 1, .head_len = 16},
};

std::string spelled(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.head_len) +
         ", blocks of " + std::to_string(s.block_len);
}

// Of one type, and pairs: codes with codes, and with floats either way.
const KvTypes kTypes[] = {
    KvType::kI8, {KvType::kI8, KvType::kI4},  KvType::kI4, {KvType::kI4, KvType::kBF16}, {KvType::kF16, KvType::kI8},
    KvType::kF8, {KvType::kF32, KvType::kF16}};

Shape as_codes(Shape shape, KvTypes types = KvType::kI8) {
  shape.dtype = types;
  return shape;
}
Shape as_numbers(Shape shape, KvTypes types = KvType::kI8) {
  shape.dtype = KvType::kF32;
  shape.rounds_to = types;
  return shape;
}

// Prefill pieces over the end of a tile and of a piece, beside each other, then decodes and a few rows at once.
Paged::Rows run(const Shape& shape, ThreadTeam& team, uint64_t seed = 1) {
  Paged paged(shape, 2, 320, seed);
  Stream s(team);
  paged.step(s, {{0, 0, 5}, {1, 0, 251}});
  paged.step(s, {{0, 5, 70}, {1, 251, 263}});
  paged.step(s, {{1, 263, 264}});
  paged.step(s, {{1, 264, 268}, {0, 70, 72}});
  return paged.rows();
}

TEST(AttentionOfCodes, IsThatOfTheNumbersTheyStandFor) {
  for (const KvTypes types : kTypes) {
    SCOPED_TRACE(types.name());
    ThreadTeam one(1), three(3);
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(spelled(shape));
      const Paged::Rows want = run(as_numbers(shape, types), one);
      for_each_isa([&](Isa) {
        ASSERT_EQ(difference(want, run(as_codes(shape, types), one)), "");
        ASSERT_EQ(difference(want, run(as_codes(shape, types), three, 5)), "");
      });
      for (const int32_t block_len : {8, 16, 32}) {
        Shape other = as_codes(shape, types);
        other.block_len = block_len;
        ASSERT_EQ(difference(want, run(other, three, 7)), "");
      }
    }
  }
}

// A third of all pairs, as double precision takes its time; an F32 cache of the numbers has all shapes elsewhere.
TEST(AttentionOfCodes, EqualsTheReference) {
  for (size_t type = 0; type < std::size(kTypes); ++type) {
    const KvTypes types = kTypes[type];
    SCOPED_TRACE(types.name());
    ThreadTeam team(2);
    for (size_t i = type % 3; i < std::size(kShapes); i += 3) {
      const Shape& shape = kShapes[i];
      if (shape.heads > 100 || shape.head_len > 256) continue;
      SCOPED_TRACE(spelled(shape));
      reference::select(true);
      const Paged::Rows want = run(as_codes(shape, types), team);
      reference::select(false);
      const Paged::Rows got = run(as_codes(shape, types), team);
      for (const auto& [key, row] : got) {
        for (size_t column = 0; column < row.size(); ++column) {
          const double b = want.at(key)[column];
          ASSERT_LE(std::fabs(row[column] - b), kAttention.absolute + kAttention.relative * std::fabs(b))
              << "column " << column;
        }
      }
      note_bits(got.begin()->second);
    }
  }
}

// Five drafts in a chain, in slots that are not their positions' own.
TEST(AttentionOfCodes, ReadsPathsInAnySlots) {
  for (const KvTypes types : kTypes) {
    SCOPED_TRACE(types.name());
    ThreadTeam team(2);
    Stream s(team);
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(spelled(shape));
      constexpr int32_t kText = 61, kDrafts = 5;
      const auto content = [](int32_t i) { return (uint64_t{9} << 40) + static_cast<uint64_t>(i); };
      const auto rows = [&](const Shape& of, bool is_path) {
        Paged paged(of, 1, 96, 3);
        paged.step(s, {{0, 0, kText}}, false);
        TokensOf drafts = {0, {}};
        for (int32_t i = 0; i < kDrafts; ++i) {
          std::vector<int32_t> path;
          for (int32_t j = 0; is_path && j <= i; ++j) path.push_back(paged.slot(0, kText + 20 - 3 * j));
          const int32_t slot = is_path ? path.back() : paged.slot(0, kText + i);
          drafts.tokens.push_back({kText + i, content(i), slot, path, i});
        }
        paged.step(s, std::vector<TokensOf>{drafts});
        return paged.rows();
      };
      const Paged::Rows plain = rows(as_codes(shape, types), false);
      ASSERT_EQ(difference(rows(as_numbers(shape, types), false), plain), "");
      for_each_isa([&](Isa) { ASSERT_EQ(difference(plain, rows(as_codes(shape, types), true)), ""); });
    }
  }
}

TEST(AttentionOfCodes, ASlotIsCopiedWithItsScales) {
  for (const KvTypes types : kTypes) {
    SCOPED_TRACE(types.name());
    ThreadTeam team(2);
    Stream s(team);
    for (const bool is_reference : {false, true}) {
      for (const int32_t block_len : {8, 16}) {
        constexpr int32_t kLen = 72;  // the last group of codes is shorter
        const Shape shape = {.heads = 2, .kv_heads = 2, .head_len = kLen, .dtype = types, .block_len = block_len};
        Paged paged(shape, 1, 32);
        paged.step(s, {{0, 0, 32}}, false);
        const PagedKv& kv = paged.kv();
        const std::vector<int32_t> from = {paged.slot(0, 3), paged.slot(0, 21)},
                                   to = {paged.slot(0, 30), paged.slot(0, 4)};
        std::vector<float> before, beside, after, beside_after;
        const auto read = [&](std::span<const int32_t> slots, std::vector<float>& out) {
          for (const int32_t slot : slots) {
            for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
              for (int32_t d = 0; d < 2 * kLen; ++d) out.push_back(kv_read(kv, part, slot, d / kLen, d % kLen));
            }
          }
        };
        const std::vector<int32_t> neighbours = {paged.slot(0, 29), paged.slot(0, 31), paged.slot(0, 5)};
        read(from, before), read(neighbours, beside);
        reference::select(is_reference);
        ops::copy_slots(s, kv, from, to);
        reference::select(false);
        read(to, after), read(neighbours, beside_after);
        EXPECT_EQ(after, before);
        EXPECT_EQ(beside_after, beside);
        note_bits(after);
      }
    }
  }
}

// References and kernels store the same bytes.
TEST(AttentionOfCodes, AreStoredAsTheReferenceStoresThem) {
  for (const KvTypes types : kTypes) {
    SCOPED_TRACE(types.name());
    ThreadTeam team(2);
    Stream s(team);
    for (const int32_t head_len : {8, 40, 64, 96, 128}) {
      const Shape shape = {.heads = 3, .kv_heads = 3, .head_len = head_len, .dtype = types};
      Paged a(shape, 1, 40), b(shape, 1, 40);
      a.step(s, {{0, 0, 40}}, false);
      reference::select(true);
      b.step(s, {{0, 0, 40}}, false);
      reference::select(false);
      const auto n = static_cast<size_t>(a.kv().n_blocks * a.kv().block_bytes);
      EXPECT_EQ(std::memcmp(a.kv().blocks, b.kv().blocks, n), 0) << head_len;
    }
  }
}

// Some number about 0, the same on every machine.
float drawn(std::mt19937_64& random) {
  const auto part = [&] {
    return static_cast<float>(static_cast<int64_t>(random() >> 41) - (int64_t{1} << 22)) * 0x1p-22f;
  };
  return part() + part() + part();
}

TEST(KvCodes, AreTheNearestMultiplesOfAScaleThatReachesAll) {
  std::mt19937_64 random(3);
  for (const float size : {1.0f, 1e-3f, 3e4f, 1e-6f}) {
    for (const int32_t n : {8, 64, 80, 576}) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& v : x) v = drawn(random) * size;
      x[3] *= 20;
      std::vector<int8_t> codes(x.size());
      const float scale = half_to_float(quantise_head(x.data(), n, codes.data()));
      float largest = 0;
      for (const float v : x) largest = std::max(largest, std::fabs(v));
      EXPECT_GE(scale * 127.0f, largest * (1 - 1e-6f));
      // A half above: of normal halves 2^-10 of it, of subnormal ones their step.
      EXPECT_LE(scale, largest / 127.0f * (1 + 0x1p-9f) + 0x1p-24f);
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_LE(std::fabs(x[i] - static_cast<float>(codes[i]) * scale), 0.5f * scale * (1 + 0x1p-15f)) << x[i];
      note_bits({reinterpret_cast<const char*>(codes.data()), codes.size()});
    }
  }
}

TEST(KvCodes, OfZerosInfinitiesAndNaNsAreInRange) {
  std::vector<float> x(16, 0.0f);
  int8_t codes[16];
  EXPECT_EQ(quantise_head(x.data(), 16, codes), 0);
  EXPECT_TRUE(std::all_of(codes, codes + 16, [](int8_t c) { return c == 0; }));
  for (const float bad : {INFINITY, -INFINITY, std::nanf(""), 3e38f, 1e-45f}) {
    x.assign(16, 1.0f);
    x[5] = bad;
    quantise_head(x.data(), 16, codes);
    EXPECT_TRUE(std::all_of(codes, codes + 16, [](int8_t c) { return c >= -127; })) << bad;
  }
  x.assign(16, 1e-45f);
  EXPECT_LE(half_to_float(quantise_head(x.data(), 16, codes)), 0x1p-24f);
}

// A score moves by at most half a scale for each element of the query: |q . (k - code scale)| <= scale / 2 |q|_1.
TEST(KvCodes, MoveAScoreByLessThanItsBound) {
  std::mt19937_64 random(4);
  double closest = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    constexpr int32_t kLen = 64;
    std::vector<float> q(kLen), k(kLen);
    for (float& v : q) v = drawn(random);
    for (float& v : k) v = drawn(random) + 3;
    k[static_cast<size_t>(turn) % kLen] *= static_cast<float>(1 + turn % 40);  // a channel far from the others
    int8_t codes[kLen];
    const double scale = half_to_float(quantise_head(k.data(), kLen, codes));
    double moved = 0, sum = 0;
    for (size_t d = 0; d < kLen; ++d) {
      moved += static_cast<double>(q[d]) * (static_cast<double>(k[d]) - codes[d] * scale);
      sum += std::fabs(q[d]);
    }
    ASSERT_LE(std::fabs(moved), scale / 2 * sum * (1 + 0x1p-15));
    closest = std::max(closest, std::fabs(moved) / (scale / 2 * sum));
  }
  EXPECT_GT(closest, 0.2) << "a bound that no score comes near proves little";
}

TEST(KvCodes, OfE4M3AreTheNearestOfItsNumbersTimesAScaleThatReachesAll) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<float> x(64);
    std::mt19937_64 random(seed);
    for (float& v : x) v = drawn(random);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= std::ldexp(1.0f, static_cast<int>(seed % 30) - 15 - static_cast<int>(i % 12));
    uint8_t codes[64];
    const float scale = half_to_float(quantise_head_e4m3(x.data(), 64, codes));
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    ASSERT_GE(scale * 448, largest);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NE(codes[i] & 0x7f, 0x7f);
      const double error = std::fabs(double{x[i]} - double{e4m3_to_float(codes[i]) * scale});
      ASSERT_LE(error, std::max(std::fabs(double{x[i]}) / 16, double{scale} / 1024) * (1 + 0x1p-15)) << i;
      for (int other = 0; other < 256; ++other) {
        if ((other & 0x7f) == 0x7f) continue;
        const double of_other = std::fabs(double{x[i]} - double{e4m3_to_float(static_cast<uint8_t>(other)) * scale});
        ASSERT_LE(error, of_other + std::fabs(double{x[i]}) * 0x1p-20) << i << " " << other;
      }
    }
  }
  const float zeros[16] = {}, bad[16] = {1, -std::numeric_limits<float>::quiet_NaN(), 2};
  uint8_t codes[16];
  EXPECT_EQ(quantise_head_e4m3(zeros, 16, codes), 0);
  EXPECT_TRUE(std::ranges::all_of(codes, [](uint8_t code) { return code == 0; }));
  EXPECT_TRUE(std::isnan(half_to_float(quantise_head_e4m3(bad, 16, codes))));
  EXPECT_TRUE(std::ranges::all_of(codes, [](uint8_t code) { return (code & 0x7f) != 0x7f; }));
}

TEST(KvCodes, OfFourBitsAreTheNearestOfSixteenNumbersThatReachAll) {
  std::mt19937_64 random(5);
  for (const float size : {1.0f, 1e-3f, 3e4f, 1e-6f}) {
    for (const int32_t n : {4, 8, 24, 32}) {
      for (const float offset : {0.0f, 5.0f, -5.0f}) {
        std::vector<float> x(static_cast<size_t>(n));
        for (float& v : x) v = (drawn(random) + offset) * size;
        x[1] *= 9;
        uint8_t codes[kCodeGroup];
        const FourBits by = quantise_group(x.data(), n, codes);
        const float step = half_to_float(by.step);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_LE(codes[i], 15);
          const float number = four_bit_number(codes[i], step, by.zero);
          EXPECT_LE(std::fabs(x[i] - number), 8 * step * (1 + 0x1p-15f)) << x[i];
          for (uint8_t other = 0; other < 16; ++other) {  // up to the rounding of x / step
            const float distance = std::fabs(x[i] - four_bit_number(other, step, by.zero));
            EXPECT_GE(distance, std::fabs(x[i] - number) - step * 0x1p-12f);
          }
        }
        note_bits({reinterpret_cast<const char*>(codes), static_cast<size_t>(n)});
      }
    }
  }
}

TEST(KvCodes, OfFourBitsOfZerosInfinitiesAndNaNs) {
  std::vector<float> x(32, 0.0f);
  uint8_t codes[kCodeGroup];
  FourBits by = quantise_group(x.data(), 32, codes);
  EXPECT_EQ(by.step, 0);
  EXPECT_EQ(four_bit_number(codes[7], half_to_float(by.step), by.zero), 0.0f);
  for (const float bad : {INFINITY, -INFINITY, std::nanf(""), 3e38f}) {
    x.assign(32, 1.0f);
    x[5] = bad;
    by = quantise_group(x.data(), 32, codes);
    EXPECT_TRUE(std::isnan(four_bit_number(codes[7], half_to_float(by.step), by.zero))) << bad;
    EXPECT_TRUE(std::all_of(codes, codes + 32, [](uint8_t c) { return c <= 15; })) << bad;
  }
  x.assign(32, 3.0f);  // a range of one number reaches zero, too
  by = quantise_group(x.data(), 32, codes);
  EXPECT_NEAR(four_bit_number(codes[7], half_to_float(by.step), by.zero), 3.0f, 0.01f);
}

TEST(KvCodes, TurnsUndoEachOtherAndKeepScores) {
  std::mt19937_64 random(6);
  for (const int32_t n : {8, 16, 24, 40, 64, 80, 128, 192, 576}) {
    std::vector<float> q(static_cast<size_t>(n)), k(q.size());
    for (float& v : q) v = drawn(random);
    for (float& v : k) v = drawn(random);
    std::vector<float> turned_q = q, turned_k = k;
    turn_out(turned_q.data(), n);
    turn_in(turned_k.data(), n);
    double score = 0, turned = 0;
    for (size_t i = 0; i < q.size(); ++i) {
      score += double{q[i]} * k[i];
      turned += double{turned_q[i]} * turned_k[i];
    }
    EXPECT_NEAR(score, turned, 1e-4) << n;
    EXPECT_NE(turned_k, k);
    turn_out(turned_k.data(), n);
    for (size_t i = 0; i < k.size(); ++i) EXPECT_NEAR(turned_k[i], k[i], 1e-5) << n;
    note_bits(turned_q);
  }
  std::vector<float> one(64, 0.0f);  // an element that is far from the others is spread over all
  one[9] = 8;
  turn_in(one.data(), 64);
  EXPECT_TRUE(std::ranges::all_of(one, [](float x) { return std::fabs(x) == 1.0f; }));
}

// As that of eight bits, by the steps of a key's groups: |q . (k - number)| <= sum over groups of 8 step |q|_1, both
// turned.
TEST(KvCodes, OfFourBitsMoveAScoreByLessThanTheirBound) {
  std::mt19937_64 random(7);
  double closest = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    constexpr int32_t kLen = 64;
    std::vector<float> q(kLen), k(kLen);
    for (float& v : q) v = drawn(random);
    for (float& v : k) v = drawn(random) + 3;
    k[static_cast<size_t>(turn) % kLen] *= static_cast<float>(1 + turn % 40);
    turn_out(q.data(), kLen);
    turn_in(k.data(), kLen);
    double moved = 0, bound = 0;
    for (size_t first = 0; first < kLen; first += kCodeGroup) {
      uint8_t codes[kCodeGroup];
      const FourBits by = quantise_group(k.data() + first, kCodeGroup, codes);
      const float step = half_to_float(by.step);
      for (size_t i = 0; i < kCodeGroup; ++i) {
        moved += double{q[first + i]} * (double{k[first + i]} - four_bit_number(codes[i], step, by.zero));
        bound += 8.0 * step * std::fabs(q[first + i]) * (1 + 0x1p-15);
      }
    }
    ASSERT_LE(std::fabs(moved), bound);
    closest = std::max(closest, std::fabs(moved) / bound);
  }
  EXPECT_GT(closest, 0.2) << "a bound that no score comes near proves little";
}

// What turning is for: a channel that is far from the others takes their digits, unless it is spread.
TEST(KvCodes, OfFourBitsLoseLessOfATurnedHeadWithAnOutlier) {
  std::mt19937_64 random(8);
  const auto error = [&](bool turns) {
    double sum = 0;
    for (int turn = 0; turn < 200; ++turn) {
      constexpr int32_t kLen = 64;
      float x[kLen], numbers[kLen];
      for (float& v : x) v = drawn(random);
      x[turn % kLen] *= 12;
      if (turns) turn_in(x, kLen);
      for (int32_t first = 0; first < kLen; first += kCodeGroup) {
        uint8_t codes[kCodeGroup];
        const FourBits by = quantise_group(x + first, kCodeGroup, codes);
        for (int32_t i = 0; i < kCodeGroup; ++i)
          numbers[first + i] = four_bit_number(codes[i], half_to_float(by.step), by.zero);
      }
      for (int32_t i = 0; i < kLen; ++i) sum += double{x[i] - numbers[i]} * (x[i] - numbers[i]);
    }
    return sum;
  };
  EXPECT_LT(2 * error(true), error(false));
}

TEST(KvLayout, OfCodesHasTheirScales) {
  const KvGeometry heads = {.n_kv_heads = 4, .key_len = 192, .value_len = 128};
  const KvLayout layout = {.geometry = heads, .dtype = DType::kI8, .block_len = 16};
  EXPECT_TRUE(kv_supported(layout).ok());
  EXPECT_EQ(layout.block_bytes(), 16 * 4 * (192 + 128 + 2 * 2));
  EXPECT_EQ(layout.name(), "K:D.B,B.D I8 B16 K4 D192,128");
  KvLayout four = {.geometry = heads, .dtype = {KvType::kI8, KvType::kI4}, .block_len = 16};
  EXPECT_EQ(four.block_bytes(), 16 * 4 * (192 + 2 + 128 / 2 + 4 * 3));
  EXPECT_EQ(four.name(), "K:D.B,B.D I8:I4 B16 K4 D192,128");
  four.dtype = KvType::kI4;
  EXPECT_EQ(four.block_bytes(), 16 * 4 * (192 / 2 + 6 * 3 + 128 / 2 + 4 * 3));
  EXPECT_EQ(four.name(), "K:D.B,B.D I4 B16 K4 D192,128");
  const KvGeometry latent = {.kind = KvKind::kLatent, .n_kv_heads = 1, .key_len = 576, .value_len = 512};
  for (const auto& [types, name] : {std::pair<KvTypes, const char*>{KvType::kI8, "latent rows as I8, "},
                                    {{KvType::kF16, KvType::kF32}, "latent rows as F16:F32, "}}) {
    const Status refused = kv_supported({.geometry = latent, .dtype = types});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(name), std::string::npos) << refused.error().message;
  }
}

TEST(KvTypes, HaveNamesThatAreReadBack) {
  for (int key = 0; key < kKvTypeCount; ++key) {
    for (int value = 0; value < kKvTypeCount; ++value) {
      const KvTypes types = {static_cast<KvType>(key), static_cast<KvType>(value)};
      EXPECT_EQ(kv_types_from_name(types.name()), types) << types.name();
    }
  }
  EXPECT_EQ(kv_types_from_name("i8i4"), KvTypes(KvType::kI8, KvType::kI4));
  EXPECT_EQ(kv_types_from_name("bf16"), KvTypes(KvType::kBF16));
  for (const char* f8 : {"f8", "fp8", "FP8_E4M3"}) EXPECT_EQ(kv_types_from_name(f8), KvTypes(KvType::kF8));
  for (const char* bad : {"", "fp8_e5m2", "i8:", ":i4", "i8:i4:i4", "i4i8", "q8_0", "i8 :i4"})
    EXPECT_FALSE(kv_types_from_name(bad)) << bad;
}

}  // namespace
}  // namespace ibid::parity
