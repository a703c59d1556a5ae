// Ops of recurrent layers against the reference in double precision, on every instruction set and any number of threads
// with the same bits; and a step of several sequences, kept states and a tree of drafts to the bit of its tokens one by
// one.
#include <functional>

#include "base/thread_team.h"
#include "kernels/batch_arrays.h"
#include "kernels/ops.h"
#include "kernels/reference/elements.h"
#include "kernels/reference/reference.h"
#include "parity/harness.h"

namespace ibid::parity {
namespace {

constexpr int32_t kSlots = 10;

// The states of a layer, which is not the first of its model.
struct States {
  StateLayout layout;
  std::vector<float> memory;
  explicit States(int64_t n_values)
      : layout(std::vector<StateGeometry>{{.n_values = 3}, {}, {.n_values = n_values}}),
        memory(static_cast<size_t>(layout.slot_bytes() / 4 * kSlots)) {
    std::mt19937 random(5);
    for (float& x : memory) x = std::uniform_real_distribution<float>(-1, 1)(random);
  }
  LayerStates view() { return {{reinterpret_cast<std::byte*>(memory.data()), layout.slot_bytes(), kSlots}, layout, 2}; }
};

struct Token {
  int32_t state_out;
  std::vector<int32_t> path = {};
};
struct Sequence {
  int32_t state_in;
  std::vector<Token> tokens;
};
// A prompt's piece at its begin, which leaves two states; one token, whose state is written over; a token and a tree of
// drafts after it, of which the third is the first one's child and the fourth the second one's.
const std::vector<Sequence> kStep = {
    {-1, {{-1}, {-1}, {1}, {-1}, {-1}, {0}}},
    {2, {{2}}},
    {4, {{3}, {5, {41}}, {6, {42}}, {7, {41, 43}}, {8, {42, 44}}}},
};
constexpr int32_t kTokens = 12;
// The same token by token: of each, in the step's order, the slot that it goes on from.
constexpr int32_t kGoesOnFrom[kTokens] = {-1, 9, 9, 1, 9, 9, 2, 4, 3, 3, 5, 6};
constexpr int32_t kGoesTo[kTokens] = {9, 9, 1, 9, 9, 0, 2, 3, 5, 6, 7, 8};

void add(BatchArrays& a, const Sequence& of) {
  int32_t slot = 40;  // of the sequence's first token; the batch's slots say who goes on from whom alone
  for (const Token& t : of.tokens) {
    if (!t.path.empty()) std::ranges::copy(t.path, a.add_path(static_cast<int32_t>(t.path.size())).begin());
    a.add(TokenId{0}, slot, slot);
    ++slot;
    a.add_state_out(t.state_out);
  }
  a.add_state_in(of.state_in);
  a.end_sequence();
}

// The op, over rows [begin, end) of the step's inputs and outputs.
using Op = std::function<void(Stream& s, int64_t begin, int64_t end, const ForwardBatch& batch, const LayerStates&)>;

TensorView rows_of(Guarded& x, int64_t begin, int64_t end) {
  TensorView v = x.view();
  v.data += begin * v.row_stride_bytes;
  v.dim[0] = end - begin;
  return v;
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> out(values.size());
  std::memcpy(out.data(), values.data(), values.size() * sizeof(float));
  return out;
}

// `run` writes `out`; `reset` gives the inputs back their values where it writes over them.
void check(Guarded& out, int64_t n_values, const Op& run, const Op& of_reference, const std::function<void()>& reset,
           size_t workspace) {
  ThreadTeam one(1), three(3);
  BatchArrays whole(16, {});
  for (const Sequence& of : kStep) add(whole, of);
  const ForwardBatch batch = whole.batch();
  ASSERT_EQ(batch.n_tokens, kTokens);

  Stream plain(one);
  reset();
  States want(n_values);
  of_reference(plain, 0, kTokens, batch, want.view());
  const Guarded expected = out;
  std::vector<uint32_t> bits, state_bits;
  const auto expect_same = [&](const States& states) {
    ASSERT_TRUE(out.untouched_around());
    Guarded reference_rows = expected;
    expect_near(out.view(), reference_rows.view(), {2e-6, 2e-5});
    for (size_t i = 0; i < want.memory.size() / kSlots * 9; ++i)
      ASSERT_NEAR(states.memory[i], want.memory[i], 2e-6 + 2e-5 * std::fabs(want.memory[i])) << i;
    std::vector<float> kept(states.memory.begin(),
                            states.memory.end() - static_cast<std::ptrdiff_t>(states.memory.size() / kSlots));
    if (bits.empty()) bits = out.bits(), state_bits = bits_of(kept);
    ASSERT_EQ(difference(bits, out.bits()), "");
    ASSERT_EQ(difference(state_bits, bits_of(kept)), "");
  };
  for_each_isa([&](Isa) {
    for (ThreadTeam* team : {&one, &three}) {
      Stream s(*team);
      ASSERT_TRUE(s.reserve_workspace(3 * workspace).ok());
      reset();
      States states(n_values);
      run(s, 0, kTokens, batch, states.view());
      expect_same(states);
    }
    Stream s(one);
    ASSERT_TRUE(s.reserve_workspace(workspace).ok());
    reset();
    States states(n_values);
    for (int32_t t = 0; t < kTokens; ++t) {
      BatchArrays single(16, {});
      add(single, {kGoesOnFrom[t], {{kGoesTo[t]}}});
      run(s, t, t + 1, single.batch(), states.view());
    }
    expect_same(states);
  });
}

size_t workspace_of(int64_t n_values) { return static_cast<size_t>(n_values + 16) * sizeof(float); }

TEST(Recurrent, ShortConvolutionsGoOnFromAnyState) {
  for (const int64_t L : {2, 3, 7}) {
    for (const int64_t N : {1, 16, 33, 300}) {
      SCOPED_TRACE(::testing::Message() << L << " taps, " << N << " channels");
      Guarded in(kTokens, 3 * N), out(kTokens, N), taps(L, N, 0);
      in.fill(static_cast<uint64_t>(L + N));
      taps.fill(2, -1, 1);
      check(
          out, (L - 1) * N,
          [&](Stream& s, int64_t begin, int64_t end, const ForwardBatch& b, const LayerStates& states) {
            ops::short_conv(s, rows_of(out, begin, end), rows_of(in, begin, end), taps.view(), b, states);
          },
          [&](Stream&, int64_t, int64_t, const ForwardBatch& b, const LayerStates& states) {
            reference::short_conv(out.view(), in.view(), taps.view(), b, states);
          },
          [&] { out.fill_nan(); }, workspace_of((L - 1) * N));
      ASSERT_TRUE(in.untouched_around() && taps.untouched_around());
    }
  }
}

TEST(Recurrent, ConvolutionsOverTheirInputGoOnFromAnyState) {
  for (const int64_t N : {1, 17, 300}) {
    const int64_t L = 4;
    Guarded x(kTokens, N), taps(L, N, 0);
    taps.fill(2, -1, 1);
    check(
        x, (L - 1) * N,
        [&](Stream& s, int64_t begin, int64_t end, const ForwardBatch& b, const LayerStates& states) {
          ops::conv_silu(s, rows_of(x, begin, end), rows_of(x, begin, end), taps.view(), {}, b, states);
        },
        [&](Stream&, int64_t, int64_t, const ForwardBatch& b, const LayerStates& states) {
          reference::conv_silu(x.view(), x.view(), taps.view(), {}, b, states);
        },
        [&] { x.fill(3); }, workspace_of((L - 1) * N));
  }
}

TEST(Recurrent, ConvolutionsWithBiasesGoOnFromAnyState) {
  for (const int64_t N : {1, 17, 300}) {
    const int64_t L = 4;
    Guarded x(kTokens, N), taps(L, N, 0), bias(1, N);
    taps.fill(2, -1, 1);
    bias.fill(4, -1, 1);
    check(
        x, (L - 1) * N,
        [&](Stream& s, int64_t begin, int64_t end, const ForwardBatch& b, const LayerStates& states) {
          ops::conv_silu(s, rows_of(x, begin, end), rows_of(x, begin, end), taps.view(), bias.vector(), b, states);
        },
        [&](Stream&, int64_t, int64_t, const ForwardBatch& b, const LayerStates& states) {
          reference::conv_silu(x.view(), x.view(), taps.view(), bias.vector(), b, states);
        },
        [&] { x.fill(3); }, workspace_of((L - 1) * N));
  }
}

TEST(Recurrent, DeltaNetsGoOnFromAnyState) {
  const DeltaHeads kHeads[] = {{1, 1, 8, 8, false},   {2, 4, 16, 24, false},   {2, 4, 16, 24, true},
                               {3, 3, 40, 16, false}, {2, 6, 128, 128, false}, {2, 6, 24, 80, true}};
  for (const DeltaHeads& heads : kHeads) {
    SCOPED_TRACE(::testing::Message() << heads.n_key_heads << ", " << heads.n_value_heads << ", " << heads.key_len
                                      << ", " << heads.value_len);
    const int64_t Hv = heads.n_value_heads;
    Guarded qkv(kTokens, heads.qkv_len()), a(kTokens, Hv), b(kTokens, Hv), decay(1, Hv), bias(1, Hv),
        out(kTokens, heads.v_len());
    qkv.fill(1, -0.3F, 0.3F);
    a.fill(2, -25, 25);
    b.fill(3);
    decay.fill(4, -2, 0);
    bias.fill(5, -1, 1);
    const auto inputs = [&](int64_t begin, int64_t end) {
      return ops::DeltaInputs{rows_of(qkv, begin, end), rows_of(a, begin, end), rows_of(b, begin, end), decay.vector(),
                              bias.vector()};
    };
    check(
        out, heads.state_len(),
        [&](Stream& s, int64_t begin, int64_t end, const ForwardBatch& batch, const LayerStates& states) {
          ops::delta_net(s, rows_of(out, begin, end), inputs(begin, end), heads, batch, states);
        },
        [&](Stream&, int64_t begin, int64_t end, const ForwardBatch& batch, const LayerStates& states) {
          reference::delta_net(out.view(), inputs(begin, end), heads, batch, states);
        },
        [&] { out.fill_nan(); }, workspace_of(heads.key_len * heads.value_len));
  }
}

// Value head h reads key head h / r or h mod Hk.
TEST(Recurrent, ValueHeadsReadTheirKeyHead) {
  const DeltaHeads grouped = {.n_key_heads = 2, .n_value_heads = 6, .key_len = 8, .value_len = 8};
  DeltaHeads tiled = grouped;
  tiled.tiled = true;
  for (int64_t h = 0; h < 6; ++h) {
    EXPECT_EQ(grouped.key_head(h), h / 3);
    EXPECT_EQ(tiled.key_head(h), h % 2);
  }
}

TEST(Recurrent, StateSpacesGoOnFromAnyState) {
  const SsmHeads kHeads[] = {{1, 1, 8, 8},    {4, 2, 16, 24}, {6, 3, 40, 16},
                             {4, 1, 128, 40}, {6, 2, 80, 24}, {2, 2, 64, 128}};
  for (const SsmHeads& heads : kHeads) {
    SCOPED_TRACE(::testing::Message() << heads.n_heads << ", " << heads.n_groups << ", " << heads.head_len << ", "
                                      << heads.state_len);
    const int64_t H = heads.n_heads;
    Guarded xbc(kTokens, heads.xbc_len()), dt(kTokens, H), decay(1, H), bias(1, H), skip(1, H),
        out(kTokens, heads.x_len());
    xbc.fill(1, -0.3F, 0.3F);
    dt.fill(2, -25, 25);
    decay.fill(4, -2, 0);
    bias.fill(5, -1, 1);
    skip.fill(6, -2, 2);
    const auto inputs = [&](int64_t begin, int64_t end) {
      return ops::SsmInputs{rows_of(xbc, begin, end), rows_of(dt, begin, end), decay.vector(), bias.vector(),
                            skip.vector()};
    };
    check(
        out, heads.n_values(),
        [&](Stream& s, int64_t begin, int64_t end, const ForwardBatch& batch, const LayerStates& states) {
          ops::ssm_scan(s, rows_of(out, begin, end), inputs(begin, end), heads, batch, states);
        },
        [&](Stream&, int64_t begin, int64_t end, const ForwardBatch& batch, const LayerStates& states) {
          reference::ssm_scan(out.view(), inputs(begin, end), heads, batch, states);
        },
        [&] { out.fill_nan(); }, workspace_of(heads.head_len * heads.state_len));
  }
}

TEST(Recurrent, RowsAreNormalisedAndGatedAsTheReferenceDoes) {
  ThreadTeam one(1), three(3);
  for (const int64_t D : {1, 8, 24, 128}) {
    constexpr int64_t kRows = 7, kHeads = 5;
    Guarded x(kRows, kHeads * D), gate(kRows, kHeads * D), out(kRows, kHeads * D);
    gate.fill(2, -90, 90);
    x.fill(1);
    reference::l2_norm(x.view(), D, 1e-6, 0.25);
    reference::sigmoid_mul(out.view(), x.view(), gate.view());
    Guarded want_norm = x, want = out;
    std::vector<uint32_t> bits;
    for_each_isa([&](Isa) {
      for (ThreadTeam* team : {&one, &three}) {
        Stream s(*team);
        x.fill(1);
        out.fill_nan();
        ops::l2_norm(s, x.view(), D, 1e-6F, 0.25F);
        expect_near(x.view(), want_norm.view(), {1e-7, 2e-6});
        ops::sigmoid_mul(s, out.view(), x.view(), gate.view());
        expect_near(out.view(), want.view(), {1e-7, 4e-6});
        ASSERT_TRUE(x.untouched_around() && out.untouched_around());
        if (bits.empty()) bits = out.bits();
        ASSERT_EQ(difference(bits, out.bits()), "");
      }
    });
  }
}

TEST(Recurrent, ColumnsOfGroupsArePartedByTheirPlace) {
  ThreadTeam team(1);
  Stream s(team);
  Guarded x(2, 12), a(2, 2), b(2, 6), c(2, 4);
  for (int64_t i = 0; i < 12; ++i) x.row(0)[i] = static_cast<float>(i), x.row(1)[i] = static_cast<float>(100 + i);
  ops::part_groups(s, std::array{a.view(), b.view(), c.view()}, x.view(), 2);
  const auto row = [](Guarded& of, int64_t i, int64_t n) { return std::vector<float>(of.row(i), of.row(i) + n); };
  EXPECT_EQ(row(a, 0, 2), (std::vector<float>{0, 6}));
  EXPECT_EQ(row(b, 0, 6), (std::vector<float>{1, 2, 3, 7, 8, 9}));
  EXPECT_EQ(row(c, 1, 4), (std::vector<float>{104, 105, 110, 111}));
  EXPECT_TRUE(a.untouched_around() && b.untouched_around() && c.untouched_around());
}

}  // namespace
}  // namespace ibid::parity
