// Experts (kernels/expert_rows.h): the choice against the reference and its rules, products of an expert's rows to the
// bit of ops::linear, sums to the bit of kernels/expert_groups.h; the same bits on all instruction sets and threads.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/thread_team.h"
#include "kernels/reference/reference.h"
#include "kernels/sort_experts.h"
#include "parity/harness.h"
#include "parity/linear_cases.h"

namespace ibid {
namespace {

using parity::for_each_isa;
using parity::Guarded;

// The arrays of ExpertRows, filled with what no op may leave.
struct Rows {
  std::vector<int32_t> expert, row, token, first_row;
  std::vector<float> weight;
  ExpertRows view;
  Rows(int32_t T, int32_t k, int32_t E)
      : expert(static_cast<size_t>(T * k), -1),
        row(expert),
        token(expert),
        first_row(static_cast<size_t>(E + 1), -1),
        weight(expert.size(), std::nanf("")),
        view{T, k, E, expert.data(), weight.data(), row.data(), token.data(), first_row.data()} {}
};

struct RouterCase {
  const char* name;
  Router router;
  bool has_bias;
  bool has_scales = false;
};
const RouterCase kRouters[] = {
    {"softmax", {}, false},
    {"normalised softmax", {.normalises = true}, false},
    {"softmax of the chosen", {.score = RouterScore::kChosenSoftmax}, false},
    {"sigmoid, bias, scale",
     {.score = RouterScore::kSigmoid, .normalises = true, .sum_epsilon = 1e-20f, .scale = 2.5f},
     true},
    {"groups by their two best",
     {.score = RouterScore::kSigmoid, .normalises = true, .scale = 1.5f, .n_groups = 4, .groups_used = 2},
     true},
    {"groups by their best", {.n_groups = 8, .groups_used = 3, .group_by_highest = true}, false},
    {"a floor of the sum", {.normalises = true, .sum_floor = 0.5f}, false},
    {"scales of experts", {.normalises = true, .scale = 1.5f}, false, true},
};

TEST(Experts, AreChosenAsTheReferenceChooses) {
  ThreadTeam one(1), three(3);
  for (const RouterCase& c : kRouters) {
    for (const auto& [T, k, E] : {std::array{1, 1, 8}, {3, 3, 40}, {300, 8, 128}, {2, 16, 64}, {0, 4, 16}}) {
      if (k > E / c.router.n_groups * c.router.groups_used) continue;
      SCOPED_TRACE(::testing::Message() << c.name << ", " << T << " tokens, " << k << " of " << E);
      std::vector<float> bias(static_cast<size_t>(E));
      std::mt19937 random(static_cast<uint32_t>(E + k));
      for (float& b : bias) b = 0.25f * std::normal_distribution<float>()(random);
      Router router = c.router;
      if (c.has_bias) router.bias = bias.data();
      if (c.has_scales) router.expert_scale = bias.data();
      Guarded of_reference(T, E);
      of_reference.fill(11);
      Rows want(T, k, E);
      reference::route(want.view, of_reference.view(), router);
      std::vector<uint32_t> bits;
      for_each_isa([&](Isa) {
        for (ThreadTeam* team : {&one, &three}) {
          Stream s(*team);
          Guarded logits(T, E);
          logits.fill(11);
          Rows rows(T, k, E);
          ops::route(s, rows.view, logits.view(), router);
          ASSERT_TRUE(logits.untouched_around());
          ASSERT_EQ(rows.expert, want.expert) << "seeds are such that no choice is near";
          ASSERT_EQ(rows.row, want.row);
          ASSERT_EQ(rows.token, want.token);
          ASSERT_EQ(rows.first_row, want.first_row);
          for (size_t i = 0; i < rows.weight.size(); ++i) {
            ASSERT_NEAR(rows.weight[i], want.weight[i], 2e-6f * std::fabs(want.weight[i]));
          }
          if (bits.empty()) bits = logits.bits();
          ASSERT_EQ(parity::difference(bits, logits.bits()), "");
          note_bits(rows.weight);
        }
      });
    }
  }
}

TEST(Experts, OfTheSameScoreAreChosenByTheLowerIndex) {
  ThreadTeam team(1);
  Stream s(team);
  std::vector<float> logits = {1, 2, 2, 0, 2, 2, 1, 2};
  Rows rows(1, 3, 8);
  ops::route(s, rows.view, TensorView(logits.data(), DType::kF32, {1, 8}), {});
  EXPECT_EQ(rows.expert, (std::vector{1, 2, 4}));
  // Groups of two, by the sum of both: 3, 2, 4, 3.
  logits = {1, 2, 2, 0, 2, 2, 1, 2};
  ops::route(s, rows.view, TensorView(logits.data(), DType::kF32, {1, 8}),
             {.score = RouterScore::kChosenSoftmax, .n_groups = 4, .groups_used = 2});
  EXPECT_EQ(rows.expert, (std::vector{1, 4, 5})) << "of the groups 0 and 3 the lower one";
}

// The bias moves the choice and not the weight.
TEST(Experts, HaveWeightsWithoutTheBiasOfTheChoice) {
  ThreadTeam team(1);
  Stream s(team);
  std::vector<float> logits = {0, 0, 0, 0};
  const std::vector<float> bias = {-1, 0.5f, -2, 7};
  Rows rows(1, 2, 4);
  ops::route(s, rows.view, TensorView(logits.data(), DType::kF32, {1, 4}),
             {.score = RouterScore::kSigmoid, .bias = bias.data()});
  EXPECT_EQ(rows.expert, (std::vector{1, 3}));
  EXPECT_EQ(rows.weight, (std::vector{0.5f, 0.5f}));
}

// Whatever a row holds, each of its tokens has k experts, each once.
TEST(Experts, AreWholeNumbersWhateverTheLogits) {
  ThreadTeam team(1);
  Stream s(team);
  for (const float x : {std::nanf(""), INFINITY, -INFINITY, 3e38f}) {
    for (const RouterCase& c : kRouters) {
      std::vector<float> logits(2 * 16, x);
      logits[3] = 1;
      Rows rows(2, 5, 16);
      ops::route(s, rows.view, TensorView(logits.data(), DType::kF32, {2, 16}), c.router);
      for (size_t t = 0; t < 2; ++t) {
        const std::set<int32_t> chosen(rows.expert.begin() + 5 * static_cast<ptrdiff_t>(t),
                                       rows.expert.begin() + 5 * static_cast<ptrdiff_t>(t + 1));
        EXPECT_EQ(chosen.size(), 5u) << c.name;
        EXPECT_GE(*chosen.begin(), 0);
        EXPECT_LT(*chosen.rbegin(), 16);
      }
    }
  }
}

// k experts of each token, some of them used by many and some by none.
void deal(Rows& rows, std::mt19937& random) {
  const ExpertRows& v = rows.view;
  for (int32_t t = 0; t < v.n_tokens; ++t) {
    std::set<int32_t> chosen;
    while (static_cast<int32_t>(chosen.size()) < v.n_used) {
      const auto e = static_cast<int32_t>(random() % static_cast<uint32_t>(v.n_experts));
      if (e % 5 != 2 || v.n_experts < 5) chosen.insert(random() % 2 == 0 ? e / 3 : e);
    }
    std::ranges::copy(chosen, v.expert + t * v.n_used);
  }
  for (float& w : rows.weight) w = std::normal_distribution<float>()(random);
  sort_experts(v);
}

// An expert's rows have the bits of ops::linear, one row at a time, however many of them there are.
TEST(Experts, GiveARowTheBitsOfAProductOfItsOwn) {
  ThreadTeam one(1), three(3);
  constexpr int32_t E = 7;
  constexpr int64_t N = 40, N2 = 17, K = 256;
  for (const DType dtype : kMatrixDTypes) {
    std::mt19937 random(static_cast<uint32_t>(dtype) + 1);
    const std::vector<std::byte> first = random_weight_bytes(dtype, E * N, K, random),
                                 second = random_weight_bytes(dtype, E * N2, K, random);
    const TensorView raw(const_cast<std::byte*>(first.data()), dtype, {E, N, K}),
        raw2(const_cast<std::byte*>(second.data()), dtype, {E, N2, K});
    for (const auto& [T, k] : {std::array{1, 3}, {5, 2}, {130, 3}}) {
      const std::vector<float> x = random_activations(T * k, K, random);
      for (const ops::ExpertInput input : {ops::ExpertInput::kOfToken, ops::ExpertInput::kOfRow}) {
        SCOPED_TRACE(::testing::Message() << traits(dtype).name << ", " << T << " tokens, " << static_cast<int>(input));
        Rows rows(T, k, E);
        deal(rows, random);
        const int32_t R = T * k;
        const TensorView in(const_cast<float*>(x.data()), DType::kF32, {input == ops::ExpertInput::kOfRow ? R : T, K});
        for_each_isa([&](Isa) {
          GuardedOutput want(R, N), want2(R, N2);
          for (ThreadTeam* team : {&one, &three}) {
            Stream s(*team);
            const std::vector<Weight> w = prepare_weights(s, raw, one_piece(K)),
                                      w2 = prepare_weights(s, raw2, one_piece(K));
            ASSERT_TRUE(s.reserve_workspace(ops::linear_experts_workspace_bytes(R, K)).ok());
            for (int32_t e = 0; team == &one && e < E; ++e) {
              for (int32_t r = rows.first_row[static_cast<size_t>(e)]; r < rows.first_row[static_cast<size_t>(e) + 1];
                   ++r) {
                const int32_t from = input == ops::ExpertInput::kOfRow ? r : rows.token[static_cast<size_t>(r)];
                const TensorView row(in.row(from), DType::kF32, {1, K});
                run_linear(s, TensorView(want.view.row(r), DType::kF32, {1, N}), row, w[static_cast<size_t>(e)]);
                run_linear(s, TensorView(want2.view.row(r), DType::kF32, {1, N2}), row, w2[static_cast<size_t>(e)]);
              }
            }
            ASSERT_TRUE(s.reserve_workspace(ops::linear_experts_workspace_bytes(R, K)).ok());
            GuardedOutput out(R, N), out2(R, N2);
            const std::array<TensorView, 2> views = {out.view, out2.view};
            const std::array<std::span<const Weight>, 2> experts = {w, w2};
            ops::linear_experts(s, views, in, input, rows.view, experts);
            ASSERT_TRUE(out.guards_intact() && out2.guards_intact());
            ASSERT_TRUE(out.same_bits(want) && out2.same_bits(want2));
          }
        });
      }
    }
  }
}

TEST(Experts, AreMultipliedByTheReferenceToo) {
  ThreadTeam team(2);
  Stream s(team);
  std::mt19937 random(5);
  constexpr int32_t E = 6, T = 9, k = 2;
  constexpr int64_t N = 33, K = 64;
  std::vector<std::byte> bytes = random_weight_bytes(DType::kF32, E * N, K, random);
  const std::vector<Weight> w = prepare_weights(s, TensorView(bytes.data(), DType::kF32, {E, N, K}), one_piece(K));
  std::vector<float> x = random_activations(T, K, random);
  const TensorView in(x.data(), DType::kF32, {T, K});
  Rows rows(T, k, E);
  deal(rows, random);
  ASSERT_TRUE(s.reserve_workspace(ops::linear_experts_workspace_bytes(T * k, K)).ok());
  const std::array<std::span<const Weight>, 1> experts = {w};
  GuardedOutput out(T * k, N), want(T * k, N);
  ops::linear_experts(s, {&out.view, 1}, in, ops::ExpertInput::kOfToken, rows.view, experts);
  reference::select(true);
  ops::linear_experts(s, {&want.view, 1}, in, ops::ExpertInput::kOfToken, rows.view, experts);
  reference::select(false);
  parity::expect_near(out.view, want.view, {1e-4, 1e-5});
}

TEST(Experts, AreAddedInTheirOrder) {
  ThreadTeam one(1), three(3);
  std::mt19937 random(3);
  for (const auto& [T, k, E] : {std::array{1, 1, 1}, {4, 2, 8}, {70, 8, 128}, {3, 40, 60}, {0, 2, 9}}) {
    for (const int64_t C : {1, 16, 37, 96}) {
      SCOPED_TRACE(::testing::Message() << T << " tokens, " << k << " of " << E << ", " << C);
      Rows rows(T, k, E);
      std::vector<int32_t> all(static_cast<size_t>(E));
      for (int32_t e = 0; e < E; ++e) all[static_cast<size_t>(e)] = e;
      for (int32_t t = 0; t < T; ++t) {
        std::ranges::shuffle(all, random);
        std::ranges::sort(all.begin(), all.begin() + k);
        std::copy_n(all.begin(), k, rows.expert.begin() + t * k);
      }
      for (float& w : rows.weight) w = std::normal_distribution<float>()(random);
      sort_experts(rows.view);
      Guarded y(T * k, C), want(T, C);
      y.fill(17);
      reference::add_experts(want.view(), y.view(), rows.view);
      for_each_isa([&](Isa) {
        for (ThreadTeam* team : {&one, &three}) {
          Stream s(*team);
          Guarded out(T, C);
          ops::add_experts(s, out.view(), y.view(), rows.view);
          ASSERT_EQ(parity::difference(out.bits(), want.bits()), "");
        }
      });
    }
  }
}

TEST(Experts, HaveBiasesOfTheirOwn) {
  ThreadTeam one(1), three(3);
  std::mt19937 random(8);
  for (const auto& [T, k, E] : {std::array{1, 2, 7}, {60, 3, 9}, {0, 1, 4}}) {
    Rows rows(T, k, E);
    deal(rows, random);
    Guarded bias(E, 45), want(T * k, 45);
    bias.fill(5);
    want.fill(6);
    reference::add_expert_bias(want.view(), bias.view(), rows.view);
    for_each_isa([&](Isa) {
      for (ThreadTeam* team : {&one, &three}) {
        Stream s(*team);
        Guarded x(T * k, 45);
        x.fill(6);
        ops::add_expert_bias(s, x.view(), bias.view(), rows.view);
        ASSERT_EQ(parity::difference(x.bits(), want.bits()), "");
      }
    });
  }
}

// A head's product has the bits of ops::linear, and what is behind it in its row stays.
TEST(Heads, HaveProductsOfTheirOwn) {
  ThreadTeam one(1), three(3);
  constexpr int32_t H = 5;
  constexpr int64_t N = 40, K = 64, kOut = 48, kIn = 72;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4}) {
    std::mt19937 random(static_cast<uint32_t>(dtype) + 1);
    const std::vector<std::byte> bytes = random_weight_bytes(dtype, H * N, K, random);
    const TensorView raw(const_cast<std::byte*>(bytes.data()), dtype, {H, N, K});
    for (const int64_t T : {1, 3, 130}) {
      SCOPED_TRACE(::testing::Message() << traits(dtype).name << ", " << T << " tokens");
      const std::vector<float> x = random_activations(T, H * kIn, random);
      const TensorView in(const_cast<float*>(x.data()), DType::kF32, {T, H * kIn});
      for_each_isa([&](Isa) {
        GuardedOutput want(T, H * kOut);
        for (ThreadTeam* team : {&one, &three}) {
          Stream s(*team);
          const std::vector<Weight> w = prepare_weights(s, raw, one_piece(K));
          for (int64_t h = 0; team == &one && h < H; ++h) {
            run_linear(s, want.view.columns(h * kOut, N), in.columns(h * kIn, K), w[static_cast<size_t>(h)]);
          }
          ASSERT_TRUE(s.reserve_workspace(ops::linear_heads_workspace_bytes(T, H, K)).ok());
          GuardedOutput out(T, H * kOut);
          ops::linear_heads(s, out.view, in, w);
          ASSERT_TRUE(out.guards_intact() && out.same_bits(want));
        }
      });
    }
  }
}

TEST(Heads, AreMultipliedByTheReferenceToo) {
  ThreadTeam team(2);
  Stream s(team);
  std::mt19937 random(5);
  std::vector<std::byte> bytes = random_weight_bytes(DType::kF32, 3 * 24, 16, random);
  const std::vector<Weight> w = prepare_weights(s, TensorView(bytes.data(), DType::kF32, {3, 24, 16}), one_piece(16));
  std::vector<float> x = random_activations(7, 3 * 16, random);
  const TensorView in(x.data(), DType::kF32, {7, 3 * 16});
  ASSERT_TRUE(s.reserve_workspace(ops::linear_heads_workspace_bytes(7, 3, 16)).ok());
  GuardedOutput out(7, 3 * 24), want(7, 3 * 24);
  ops::linear_heads(s, out.view, in, w);
  reference::select(true);
  ops::linear_heads(s, want.view, in, w);
  reference::select(false);
  parity::expect_near(out.view, want.view, {1e-4, 1e-5});
}

TEST(Experts, SharedByAllAreGatedByASigmoid) {
  ThreadTeam one(1), three(3);
  for (const int64_t T : {0, 1, 50}) {
    Guarded gate(T, 1), want(T, 77);
    gate.fill(1);
    want.fill(2);
    reference::gate_rows(want.view(), gate.view());
    std::vector<uint32_t> bits;
    for_each_isa([&](Isa) {
      for (ThreadTeam* team : {&one, &three}) {
        Stream s(*team);
        Guarded x(T, 77);
        x.fill(2);
        ops::gate_rows(s, x.view(), gate.view());
        parity::expect_near(x.view(), want.view(), parity::kSiluMul);
        if (bits.empty()) bits = x.bits();
        ASSERT_EQ(parity::difference(bits, x.bits()), "");
      }
    });
  }
}

}  // namespace
}  // namespace ibid
