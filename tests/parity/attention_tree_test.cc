// The tree in which attention's pieces merge (kernels/cpu/attention_table.h), and sinks, which enter at its root.
#include <array>
#include <limits>
#include <random>

#include "kernels/cpu/attention_table.h"
#include "kernels/cpu/table.h"
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

constexpr int32_t kHeadLen = 40;
using State = std::array<float, 16 + 48>;  // m, l, 14 unused floats, o rounded up to 16
constexpr auto kStateLen = static_cast<int64_t>(std::tuple_size_v<State>);

std::vector<State> random_states(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<State> out(static_cast<size_t>(n));
  for (State& state : out) {
    state.fill(0.0f);
    for (float& x : state) x = draw(random);
    state[0] = random() % 6 == 0 ? -std::numeric_limits<float>::infinity() : 4.0f * draw(random);
    state[1] = 1.0f + std::fabs(state[1]);
  }
  return out;
}

// The state of pieces [first, first + states.size()) by the table of the instruction set.
State merged(std::vector<State> states, int64_t first) {
  cpu::table().attention->merge(nullptr, states[0].data(), first, static_cast<int64_t>(states.size()), kStateLen,
                                nullptr, kHeadLen);
  return states[0];
}

// The node of level `level` that holds piece `begin`, of which the pieces [first, first + states.size()) were seen:
// the halves are merged by the table as two pieces, and all else is plain recursion.
std::optional<State> node(const std::vector<State>& states, int64_t first, int level, int64_t begin) {
  const int64_t end = begin + (int64_t{1} << level);
  if (end <= first || begin >= first + static_cast<int64_t>(states.size())) return std::nullopt;
  if (level == 0) return states[static_cast<size_t>(begin - first)];
  const std::optional<State> left = node(states, first, level - 1, begin);
  const std::optional<State> right = node(states, first, level - 1, begin + (end - begin) / 2);
  if (!left || !right) return left ? left : right;
  return merged({*left, *right}, 0);
}

bool same_state(const State& a, const State& b) {  // what is unused may differ
  return std::memcmp(a.data(), b.data(), 8) == 0 && std::memcmp(&a[16], &b[16], kHeadLen * sizeof(float)) == 0;
}

TEST(AttentionTree, IsAnchoredAtPieceZeroWhereverTheWindowBegins) {
  for_each_isa([&](Isa) {
    for (const int64_t first : {0, 1, 2, 3, 6, 7, 12, 1023}) {
      for (int64_t n = 1; n <= 19; ++n) {
        const std::vector<State> states = random_states(n, static_cast<uint32_t>(100 * first + n));
        ASSERT_TRUE(same_state(merged(states, first), *node(states, first, 11, 0))) << n << " pieces from " << first;
      }
    }
  });
}

TEST(AttentionTree, GivesEachOfEightRanksASubtreeOfItsOwn) {
  const std::vector<State> states = random_states(64, 5);
  const State whole = merged(states, 0);
  for (const int64_t ranks : {2, 4, 8}) {
    std::vector<State> parts;
    const int64_t share = 64 / ranks;
    for (int64_t rank = 0; rank < ranks; ++rank)
      parts.push_back(merged({states.begin() + rank * share, states.begin() + (rank + 1) * share}, rank * share));
    EXPECT_TRUE(same_state(whole, merged(parts, 0))) << ranks;
  }
}

TEST(AttentionTree, IsNoFold) {
  const std::vector<State> states = random_states(8, 6);
  State fold = states[0];
  for (size_t i = 1; i < states.size(); ++i) fold = merged({fold, states[i]}, 0);
  EXPECT_FALSE(same_state(fold, merged(states, 0))) << "the tests above would not see an order";
}

// Short and long contexts, with a window that leaves piece 0 behind, split over threads and not.
TEST(AttentionSinks, EqualTheReferenceAndDoNotDependOnTheSchedule) {
  const Shape shapes[] = {
      {.heads = 8, .kv_heads = 2, .head_len = 64, .dtype = DType::kF16, .has_sinks = true},
      {.heads = 4, .kv_heads = 1, .head_len = 40, .dtype = DType::kF32, .window = 517, .has_sinks = true},
  };
  ThreadTeam one(1), four(4);
  for (const Shape& shape : shapes) {
    const auto rows = [&](ThreadTeam& team, const std::vector<std::vector<Part>>& steps) {
      Paged paged(shape, 1, 1400);
      Stream s(team);
      paged.step(s, {{0, 0, 1300}}, false);
      for (const auto& parts : steps) paged.step(s, parts);
      return paged.rows();
    };
    const std::vector<std::vector<Part>> decodes = {{{0, 1300, 1301}}, {{0, 1301, 1304}}, {{0, 1304, 1305}}};
    reference::select(true);
    const Paged::Rows want = rows(one, decodes);
    reference::select(false);
    Paged::Rows first;
    for_each_isa([&](Isa) {
      const Paged::Rows got = rows(four, decodes);
      for (const auto& [key, row] : got) {
        for (size_t i = 0; i < row.size(); ++i)
          ASSERT_NEAR(row[i], want.at(key)[i], kAttention.absolute + kAttention.relative * std::fabs(want.at(key)[i]));
      }
      if (first.empty()) first = got;
      ASSERT_EQ(difference(first, got), "");
    });
    EXPECT_EQ(difference(first, rows(one, {{{0, 1300, 1305}}})), "");
    Shape without = shape;
    without.has_sinks = false;
    Paged none(without, 1, 1400);
    Stream s(one);
    none.step(s, {{0, 0, 1300}}, false);
    none.step(s, {{0, 1300, 1305}});
    EXPECT_NE(difference(first, none.rows()), "");
  }
}

}  // namespace
}  // namespace ibid::parity
