// docs/design.md section 5, law 8: products in pieces of K are the contract to the bit on every path, and what ranks
// compute from their own inputs adds up to the same bits.
#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "parity/linear_cases.h"
#include "parity/linear_contract.h"

namespace ibid {
namespace {

struct Shape {
  int64_t T, N, K;
  int64_t group_len = 1;
};

// T above 12 takes the path of many rows, whose panels of up to 576 inputs are a piece or a part of one. 75 outputs are
// tiles of one row that are read two at a time, and one that is left.
constexpr Shape kShapes[] = {{13, 20, 2048}, {14, 3, 5632},      {13, 1, 14336},
                             {3, 75, 2048},  {2, 17, 5120, 512}, {110, 1, 2304}};

class LinearPieces : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { ASSERT_TRUE(select_isa(supported_isas().back()).ok()); }
};

// x of `rows` rows a step.
GuardedOutput in_steps(Stream& s, const TensorView& x, const Weight& w, int64_t rows) {
  const int64_t T = x.dim[0];
  GuardedOutput out(T, w.n_outputs);
  for (int64_t t = 0; t < T; t += rows) {
    TensorView x_part = x, out_part = out.view;
    x_part.data = x.row(t);
    out_part.data = out.view.row(t);
    x_part.dim[0] = out_part.dim[0] = std::min(rows, T - t);
    run_linear(s, out_part, x_part, w);
  }
  return out;
}

TEST_P(LinearPieces, AreTheContractToTheBitOnEveryIsaThreadCountAndRowCount) {
  const DType dtype = GetParam();
  std::mt19937 random(21);
  ThreadTeam one(1), three(3);
  Stream alone(one), shared(three);
  for (const auto& [T, N, K, group_len] : kShapes) {
    SCOPED_TRACE(testing::Message() << "T " << T << " N " << N << " K " << K);
    auto bytes = random_weight_bytes(dtype, N, K, random);
    const TensorView raw(bytes.data(), dtype, {N, K});
    const auto x = random_activations(T, K, random);
    const TensorView x_view(const_cast<float*>(x.data()), DType::kF32, {T, K});
    for (const KPieces& pieces : {pieces_of(dtype, K, group_len), one_piece(K)}) {
      if (pieces.n == 1 && K > 2048) continue;
      SCOPED_TRACE(testing::Message() << pieces.n << " pieces");
      const Weight w = prepare_weight(shared, raw, pieces);
      const Contract contract(w);
      GuardedOutput want(T, N);
      for (int64_t t = 0; t < T; ++t) {
        const ContractRow row(x.data() + t * K, K);
        for (int64_t n = 0; n < N; ++n) want.view.row_as<float>(t)[n] = contract.output(row, n);
      }
      for (Isa isa : supported_isas()) {
        SCOPED_TRACE(isa_name(isa));
        ASSERT_TRUE(select_isa(isa).ok());
        EXPECT_TRUE(in_steps(shared, x_view, w, T).same_bits(want)) << "all rows in one step";
        for (int64_t rows : {1, 3, 12}) {
          EXPECT_TRUE(in_steps(alone, x_view, w, rows).same_bits(want)) << "in steps of " << rows << " rows";
        }
        const cpu::Core core = cpu::core();
        for (const bool is_other : {false, true}) {
          cpu::assume_core({.fetches_into_second = is_other, .has_dot_a_cycle = is_other});
          for (int64_t rows : {1, 2, 8, 29}) {
            EXPECT_TRUE(in_steps(alone, x_view, w, rows).same_bits(want)) << rows << " rows, core " << is_other;
          }
        }
        cpu::assume_core(core);
      }
    }
  }
}

// A rank's weight has its own inputs and its own pieces; nothing in it knows of the others.
TEST_P(LinearPieces, SummedByRanksAndAddedAsTheRestOfTheTreeGiveTheSameBits) {
  const DType dtype = GetParam();
  std::mt19937 random(22);
  ThreadTeam team(2);
  Stream s(team);
  for (const auto& [T, N, K, group_len] : kShapes) {
    const KPieces pieces = pieces_of(dtype, K, group_len);
    auto bytes = random_weight_bytes(dtype, N, K, random);
    auto x = random_activations(T, K, random);
    const TensorView raw(bytes.data(), dtype, {N, K}), x_view(x.data(), DType::kF32, {T, K});
    GuardedOutput want(T, N);
    run_linear(s, want.view, x_view, prepare_weight(s, raw, pieces));
    for (int tp : {2, 4, 8}) {
      std::vector<GuardedOutput> partial;
      for (int rank = 0; rank < tp; ++rank) {
        const int64_t k = pieces.edges[static_cast<size_t>(rank * pieces.n / tp)];
        const int64_t k_end = pieces.edges[static_cast<size_t>((rank + 1) * pieces.n / tp)];
        const auto begin = static_cast<size_t>(row_bytes(dtype, k)),
                   len = static_cast<size_t>(row_bytes(dtype, k_end - k));
        std::vector<std::byte> own(static_cast<size_t>(N) * len);
        for (int64_t n = 0; n < N; ++n) std::memcpy(own.data() + static_cast<size_t>(n) * len, raw.row(n) + begin, len);
        const Weight w =
            prepare_weight(s, TensorView(own.data(), dtype, {N, k_end - k}), pieces_of_rank(pieces, tp, rank));
        partial.emplace_back(T, N);
        run_linear(s, partial.back().view, x_view.columns(k, k_end - k), w);
      }
      for (size_t step = 1; step < partial.size(); step *= 2) {
        for (size_t i = 0; i < partial.size(); i += 2 * step) {
          for (int64_t t = 0; t < T; ++t) {
            for (int64_t n = 0; n < N; ++n)
              partial[i].view.row_as<float>(t)[n] += partial[i + step].view.row_as<float>(t)[n];
          }
        }
      }
      EXPECT_TRUE(partial[0].same_bits(want)) << "TP " << tp << ", T " << T << " N " << N << " K " << K;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryDType, LinearPieces, testing::ValuesIn(kMatrixDTypes),
                         [](const auto& i) { return std::string(traits(i.param).name); });

// Else the tests above would show nothing: the tree, the fold from the left and the sum in one piece differ.
TEST(LinearPiecesInputs, DistinguishTheTreeFromTheFoldAndFromOnePiece) {
  constexpr int64_t N = 20, K = 2048;
  ThreadTeam team(1);
  Stream s(team);
  for (DType dtype : kMatrixDTypes) {
    std::mt19937 random(21);
    auto bytes = random_weight_bytes(dtype, N, K, random);
    const auto x = random_activations(1, K, random);
    const TensorView raw(bytes.data(), dtype, {N, K});
    const Weight w = prepare_weight(s, raw, pieces_of(dtype, K)), whole = prepare_weight(s, raw);
    const Contract contract(w);
    const ContractRow row(x.data(), K);
    int from_fold = 0, from_swapped_halves = 0, from_one_piece = 0;
    for (int64_t n = 0; n < N; ++n) {
      float p[8];
      for (int i = 0; i < 8; ++i) p[i] = contract.piece(row, n, i);
      float fold = p[0];
      for (int i = 1; i < 8; ++i) fold += p[i];
      const float swapped = ((p[0] + p[2]) + (p[1] + p[3])) + ((p[4] + p[6]) + (p[5] + p[7]));
      const float tree = contract.output(row, n);
      from_fold += tree != fold;
      from_swapped_halves += tree != swapped;
      from_one_piece += tree != Contract(whole).output(row, n);
    }
    EXPECT_GT(from_fold, 2) << traits(dtype).name;
    EXPECT_GT(from_swapped_halves, 2) << traits(dtype).name;
    EXPECT_GT(from_one_piece, 2) << traits(dtype).name;
  }
}

// The pairs of BF16 flush subnormals; the tree adds plainly, as ranks do that know of no dtype.
TEST(LinearPiecesInputs, SumsOfPiecesKeepSubnormalsInEveryFamily) {
  constexpr int64_t K = 2048;
  ThreadTeam team(1);
  Stream s(team);
  std::vector<uint16_t> weights(K, 0);
  weights[0] = float_to_bf16(0x1.8p-100f);
  weights[300] = float_to_bf16(-0x1p-100f);  // in the second piece
  const Weight w = prepare_weight(s, TensorView(weights.data(), DType::kBF16, {1, K}), pieces_of(DType::kBF16, K));
  const Weight whole = prepare_weight(s, TensorView(weights.data(), DType::kBF16, {1, K}));
  std::vector<float> x(K, 0x1p-26f);
  const TensorView x_view(x.data(), DType::kF32, {1, K});
  for (Isa isa : supported_isas()) {
    ASSERT_TRUE(select_isa(isa).ok());
    GuardedOutput out(1, 1);
    run_linear(s, out.view, x_view, w);
    out.note();
    EXPECT_EQ(out.view.row_as<float>(0)[0], 0x1p-127f) << isa_name(isa);
    run_linear(s, out.view, x_view, whole);
    EXPECT_EQ(out.view.row_as<float>(0)[0], 0.0f) << isa_name(isa);
  }
  ASSERT_TRUE(select_isa(supported_isas().back()).ok());
}

}  // namespace
}  // namespace ibid
