// Row ops against the reference in double precision, on every instruction set, and the same bits on all.
#include <functional>

#include "base/thread_team.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"
#include "parity/harness.h"

namespace ibid::parity {
namespace {

using reference::Between;

constexpr int64_t kRowCounts[] = {0, 1, 3, 37};
constexpr int64_t kColumnCounts[] = {1, 7, 15, 16, 17, 64, 96, 575, 576, 1000};

Between copy(Guarded& x) {
  Between b(x.view());
  for (int64_t i = 0; i < x.view().n_rows(); ++i) {
    for (int64_t j = 0; j < x.view().row_len(); ++j) b.view.row_as<double>(i)[j] = x.row(i)[j];
  }
  return b;
}

// Runs `op` on each shape, instruction set and 1 and 3 threads; `want` computes the reference from the same inputs.
struct Case {
  Guarded x, y, out, weight;
  Case(int64_t rows, int64_t columns)
      : x(rows, columns), y(rows, columns, 0), out(rows, columns, 1), weight(1, columns) {
    x.fill(static_cast<uint64_t>(rows * 1000 + columns));
    y.fill(static_cast<uint64_t>(rows * 1000 + columns + 1));
    weight.fill(7);
    out.fill_nan();
  }
};
using Op = std::function<void(Stream&, Case&)>;
using Want = std::function<void(Case&, Between&)>;

void check(const Op& op, const Want& want, Tolerance tolerance, Guarded Case::*result = &Case::out) {
  ThreadTeam one(1);
  ThreadTeam three(3);
  for (int64_t rows : kRowCounts) {
    for (int64_t columns : kColumnCounts) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      Case reference_case(rows, columns);
      Between expected(reference_case.x.view());
      want(reference_case, expected);
      std::vector<uint32_t> bits;
      for_each_isa([&](Isa) {
        for (ThreadTeam* team : {&one, &three}) {
          Stream s(*team);
          Case c(rows, columns);
          op(s, c);
          expect_near((c.*result).view(), expected.view, tolerance);
          for (Guarded* g : {&c.x, &c.y, &c.out, &c.weight}) ASSERT_TRUE(g->untouched_around());
          if (bits.empty()) bits = (c.*result).bits();
          ASSERT_EQ(difference(bits, (c.*result).bits()), "");
        }
      });
    }
  }
}

TEST(RowParity, RmsNorm) {
  check([](Stream& s, Case& c) { ops::rms_norm(s, c.out.view(), c.x.view(), c.weight.vector(), 1e-5f); },
        [](Case& c, Between& want) { reference::rms_norm(want.view, c.x.view(), c.weight.view(), double{1e-5f}); },
        kRmsNorm);
}

TEST(RowParity, RmsNormInPlace) {
  check([](Stream& s, Case& c) { ops::rms_norm(s, c.x.view(), c.x.view(), c.weight.vector(), 1e-5f); },
        [](Case& c, Between& want) { reference::rms_norm(want.view, c.x.view(), c.weight.view(), double{1e-5f}); },
        kRmsNorm, &Case::x);
}

TEST(RowParity, AddRmsNorm) {
  check(
      [](Stream& s, Case& c) { ops::add_rms_norm(s, c.out.view(), c.x.view(), c.y.view(), c.weight.vector(), 1e-6f); },
      [](Case& c, Between& want) {
        Between x = copy(c.x);
        reference::add_rms_norm(want.view, x.view, c.y.view(), c.weight.view(), double{1e-6f});
      },
      kRmsNorm);
}

TEST(RowParity, AddRmsNormGivesTheBitsOfItsTwoOps) {
  ThreadTeam team(1);
  Stream s(team);
  for_each_isa([&](Isa) {
    Case fused(5, 577), apart(5, 577);
    ops::add_rms_norm(s, fused.out.view(), fused.x.view(), fused.y.view(), fused.weight.vector(), 1e-6f);
    ops::add(s, apart.x.view(), apart.y.view());
    ops::rms_norm(s, apart.out.view(), apart.x.view(), apart.weight.vector(), 1e-6f);
    EXPECT_EQ(difference(fused.out.bits(), apart.out.bits()), "");
    EXPECT_EQ(difference(fused.x.bits(), apart.x.bits()), "");
  });
}

TEST(RowParity, Add) {
  check([](Stream& s, Case& c) { ops::add(s, c.x.view(), c.y.view()); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::add(want.view, c.y.view());
        },
        kAdd, &Case::x);
}

TEST(RowParity, AddBias) {
  check([](Stream& s, Case& c) { ops::add_bias(s, c.x.view(), c.weight.vector()); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::add_bias(want.view, c.weight.view());
        },
        kAdd, &Case::x);
}

TEST(RowParity, Scale) {
  check([](Stream& s, Case& c) { ops::scale(s, c.x.view(), 0.3f); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::scale(want.view, double{0.3f});
        },
        kAdd, &Case::x);
}

TEST(RowParity, ReluSquared) {
  check([](Stream& s, Case& c) { ops::relu_squared(s, c.out.view(), c.x.view()); },
        [](Case& c, Between& want) { reference::relu_squared(want.view, c.x.view()); }, kAdd);
}

TEST(RowParity, Clamp) {
  check([](Stream& s, Case& c) { ops::clamp(s, c.x.view(), 0.7f); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::clamp(want.view, double{0.7f});
        },
        kAdd, &Case::x);
}

// Positions on both sides of where the factor changes.
std::vector<int32_t> positions_of(const TensorView& x) {
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < x.n_rows(); ++i) positions.push_back(static_cast<int32_t>(i % 2 == 0 ? 64 * i : 64 * i - 1));
  return positions;
}

TEST(RowParity, ScaleByPosition) {
  check([](Stream& s, Case& c) { ops::scale_by_position(s, c.x.view(), positions_of(c.x.view()), 0.1f, 64); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::scale_by_position(want.view, positions_of(want.view), double{0.1f}, 64);
        },
        kScaleByPosition, &Case::x);
}

TEST(RowParity, SiluMul) {
  check([](Stream& s, Case& c) { ops::silu_mul(s, c.out.view(), c.x.view(), c.y.view()); },
        [](Case& c, Between& want) { reference::silu_mul(want.view, c.x.view(), c.y.view()); }, kSiluMul);
}

TEST(RowParity, ClampedSiluMul) {
  for (const float limit : {0.5f, 7.0f}) {
    check([=](Stream& s, Case& c) { ops::clamped_silu_mul(s, c.out.view(), c.x.view(), c.y.view(), limit); },
          [=](Case& c, Between& want) {
            reference::clamped_silu_mul(want.view, c.x.view(), c.y.view(), static_cast<double>(limit));
          },
          kClampedSiluMul);
  }
}

TEST(RowParity, SiluMulOverItsGate) {
  check([](Stream& s, Case& c) { ops::silu_mul(s, c.x.view(), c.x.view(), c.y.view()); },
        [](Case& c, Between& want) { reference::silu_mul(want.view, c.x.view(), c.y.view()); }, kSiluMul, &Case::x);
}

TEST(RowParity, GeluMul) {
  check([](Stream& s, Case& c) { ops::gelu_mul(s, c.out.view(), c.x.view(), c.y.view()); },
        [](Case& c, Between& want) { reference::gelu_mul(want.view, c.x.view(), c.y.view()); }, kGeluMul);
}

TEST(RowParity, LayerNorm) {
  check([](Stream& s,
           Case& c) { ops::layer_norm(s, c.out.view(), c.x.view(), c.weight.vector(), c.weight.vector(), 1e-5f); },
        [](Case& c, Between& want) {
          reference::layer_norm(want.view, c.x.view(), c.weight.view(), c.weight.view(), double{1e-5f});
        },
        kLayerNorm);
}

TEST(RowParity, LayerNormInPlace) {
  check([](Stream& s,
           Case& c) { ops::layer_norm(s, c.x.view(), c.x.view(), c.weight.vector(), c.weight.vector(), 1e-12f); },
        [](Case& c, Between& want) {
          reference::layer_norm(want.view, c.x.view(), c.weight.view(), c.weight.view(), double{1e-12f});
        },
        kLayerNorm, &Case::x);
}

TEST(RowParity, Activations) {
  check([](Stream& s, Case& c) { ops::gelu(s, c.out.view(), c.x.view()); },
        [](Case& c, Between& want) { reference::gelu(want.view, c.x.view()); }, kGeluMul);
  check([](Stream& s, Case& c) { ops::gelu_tanh(s, c.out.view(), c.x.view()); },
        [](Case& c, Between& want) { reference::gelu_tanh(want.view, c.x.view()); }, kGeluMul);
  check([](Stream& s, Case& c) { ops::tanh(s, c.x.view(), c.x.view()); },
        [](Case& c, Between& want) { reference::tanh(want.view, c.x.view()); }, kSoftCap, &Case::x);
}

TEST(RowParity, SoftCap) {
  check([](Stream& s, Case& c) { ops::soft_cap(s, c.x.view(), 3.0f); },
        [](Case& c, Between& want) {
          want = copy(c.x);
          reference::soft_cap(want.view, 3.0);
        },
        kSoftCap, &Case::x);
}

TEST(RowParity, LogSoftmax) {
  check([](Stream& s, Case& c) { ops::log_softmax(s, c.out.view(), c.x.view()); },
        [](Case& c, Between& want) { reference::log_softmax(want.view, c.x.view()); }, kLogSoftmax);
}

TEST(RowParity, LogSoftmaxOfAWholeVocabularyInPlace) {
  ThreadTeam team(2);
  Stream s(team);
  std::vector<uint32_t> bits;
  for_each_isa([&](Isa) {
    Guarded x(2, 49152);
    x.fill(3, -20.0f, 20.0f);
    x.row(1)[17] = -INFINITY;
    Between want(x.view());
    reference::log_softmax(want.view, x.view());
    ops::log_softmax(s, x.view(), x.view());
    expect_near(x.view(), want.view, kLogSoftmax);
    if (bits.empty()) bits = x.bits();
    EXPECT_EQ(difference(bits, x.bits()), "");
  });
}

TEST(RowParity, GatherRows) {
  ThreadTeam team(2);
  Stream s(team);
  Guarded x(6, 33), out(4, 33, 2);
  x.fill(1);
  const std::vector<int32_t> rows = {5, 0, 0, 3};
  ops::gather_rows(s, out.view(), x.view(), rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(0, std::memcmp(out.row(static_cast<int64_t>(i)), x.row(rows[i]), 33 * sizeof(float)));
  }
  EXPECT_TRUE(out.untouched_around());
  note_bits(out.bits());
}

TEST(RowParity, CopyRows) {
  ThreadTeam team(2);
  Stream s(team);
  Guarded x(6, 33), out(5, 33, 2);
  x.fill(1), out.fill(2);
  const std::vector<float> kept(out.row(1), out.row(1) + 33);
  const std::vector<int32_t> out_rows = {4, 0, 2, 3}, rows = {5, 0, 0, 3};
  ops::copy_rows(s, out.view(), out_rows, x.view(), rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(0, std::memcmp(out.row(out_rows[i]), x.row(rows[i]), 33 * sizeof(float))) << i;
  EXPECT_EQ(0, std::memcmp(out.row(1), kept.data(), 33 * sizeof(float))) << "a row that is not named";
  EXPECT_TRUE(out.untouched_around());
  // Columns of one tensor, among its own rows.
  const std::vector<int32_t> to = {1}, from = {3};
  const TensorView part = out.view().columns(8, 16);
  ops::copy_rows(s, part, to, part, from);
  EXPECT_EQ(0, std::memcmp(out.row(1) + 8, x.row(3) + 8, 16 * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(out.row(1), kept.data(), 8 * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(out.row(1) + 24, kept.data() + 24, 9 * sizeof(float)));
}

TEST(RowParity, EmbedGivesTheRowsOfAnyDtypeScaled) {
  ThreadTeam team(2);
  Stream s(team);
  std::vector<uint16_t> half(5 * 32);
  for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(0x3c00 + i);
  Weight table;
  table.dtype = DType::kF16;
  table.n_outputs = 5;
  table.n_inputs = 32;
  table.raw = TensorView(half.data(), DType::kF16, {5, 32});
  const std::vector<TokenId> tokens = {TokenId{4}, TokenId{0}, TokenId{4}};
  Guarded out(3, 32);
  ops::embed(s, out.view(), table, tokens, 2.0f);
  for (int64_t j = 0; j < 32; ++j) {
    EXPECT_EQ(out.row(0)[j], 2.0f * (1.0f + static_cast<float>(4 * 32 + j) / 1024.0f));
    EXPECT_EQ(out.row(1)[j], 2.0f * (1.0f + static_cast<float>(j) / 1024.0f));
    EXPECT_EQ(out.row(2)[j], out.row(0)[j]);
  }
  EXPECT_TRUE(out.untouched_around());
  note_bits(out.bits());
}

// Rope: head sizes, partial rotation, both pairings.
struct RopeShape {
  int64_t tokens;
  int heads, head_len, n_pairs, first = 0;
};
constexpr RopeShape kRopeShapes[] = {{1, 1, 8, 4},   {3, 3, 64, 32}, {70, 2, 80, 16},
                                     {5, 2, 96, 48}, {2, 1, 34, 17}, {0, 1, 8, 4}};
constexpr RopeShape kLastTurns[] = {{1, 1, 24, 4, 16}, {33, 3, 80, 32, 16}, {4, 2, 40, 10, 9}};

std::vector<double> frequencies(int n_pairs) {
  std::vector<double> f;
  for (int i = 0; i < n_pairs; ++i) f.push_back(math::pow(10000.0, -double{1} * i / n_pairs));
  return f;
}

void expect_turns(std::span<const RopeShape> shapes) {
  ThreadTeam one(1), three(3);
  for (const RopeShape& shape : shapes) {
    for (bool interleaved : {false, true}) {
      const std::vector<double> f = frequencies(shape.n_pairs);
      const ops::Rope rope = {interleaved, shape.n_pairs, 1.25f, f.data(), shape.first};
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < shape.tokens; ++t) positions.push_back(static_cast<int32_t>(t * 977 % 8192));
      std::vector<uint32_t> bits;
      for_each_isa([&](Isa) {
        for (ThreadTeam* team : {&one, &three}) {
          Stream s(*team);
          Guarded x(shape.tokens, shape.heads * shape.head_len), angles(shape.tokens, 2 * shape.n_pairs);
          x.fill(9);
          Between want = copy(x);
          Between want_angles(angles.view());
          ops::rope_angles(s, angles.view(), rope, positions);
          reference::rope_angles(want_angles.view, rope, positions);
          expect_near(angles.view(), want_angles.view, kRopeAngles);
          ops::rope(s, x.view(), shape.head_len, rope, angles.view());
          reference::rope(want.view, shape.head_len, rope, want_angles.view);
          expect_near(x.view(), want.view, kRope);
          EXPECT_TRUE(x.untouched_around() && angles.untouched_around());
          if (bits.empty()) bits = x.bits();
          ASSERT_EQ(difference(bits, x.bits()), "");
        }
      });
    }
  }
}

TEST(RowParity, RopeTurnsBothPairingsAndLeavesTheRestOfAHead) { expect_turns(kRopeShapes); }
TEST(RowParity, RopeTurnsTheLastValuesOfAHead) { expect_turns(kLastTurns); }

TEST(RowParity, CopiesColumnsOfHeads) {
  ThreadTeam one(1), three(3);
  for (ThreadTeam* team : {&one, &three}) {
    Stream s(*team);
    Guarded x(40, 3 * 10), out(40, 3 * 12);
    x.fill(1);
    out.fill(2);
    Guarded want = out;
    for (int64_t t = 0; t < 40; ++t) {
      for (int h = 0; h < 3; ++h) std::copy_n(x.row(t) + h * 10 + 6, 4, want.row(t) + h * 12 + 5);
    }
    ops::copy_heads(s, out.view(), x.view(), 3, {.to = 5, .from = 6, .len = 4});
    EXPECT_TRUE(out.untouched_around());
    EXPECT_EQ(difference(out.bits(), want.bits()), "");
  }
}

// R_t^T R_s = R_{s-t}: the product of a query turned to s with a key turned to t depends on s - t alone (row M6).
TEST(RowParity, RopeMakesProductsDependOnTheDistanceAlone) {
  ThreadTeam team(1);
  Stream s(team);
  const std::vector<double> f = frequencies(32);
  for (bool interleaved : {false, true}) {
    const ops::Rope rope = {interleaved, 32, 1.0f, f.data()};
    auto product = [&](int32_t at_q, int32_t at_k) {
      Guarded x(2, 64), angles(2, 64);
      x.fill(5, -1.0f, 1.0f);
      const std::vector<int32_t> positions = {at_q, at_k};
      ops::rope_angles(s, angles.view(), rope, positions);
      ops::rope(s, x.view(), 64, rope, angles.view());
      note_bits(x.bits());
      double sum = 0.0;
      for (int d = 0; d < 64; ++d) sum += double{x.row(0)[d]} * x.row(1)[d];
      return sum;
    };
    for (int32_t distance : {0, 1, 7, 500}) {
      for (int32_t t : {0, 3, 1000, 7000}) EXPECT_NEAR(product(t + distance, t), product(distance, 0), 2e-5);
    }
    EXPECT_GT(std::fabs(product(7, 0) - product(8, 0)), 1e-3) << "the test can tell distances apart";
  }
}

}  // namespace
}  // namespace ibid::parity
