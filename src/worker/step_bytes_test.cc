#include "worker/step_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/batch_arrays.h"

namespace ibid {
namespace {

constexpr StepLimits kLimits = {.n_tokens = 64,
                                .n_rows = 64,
                                .n_blocks = 40,
                                .n_host_blocks = 8,
                                .n_states = 12,
                                .n_host_states = 3,
                                .n_adapters = 5,
                                .vocab_size = 100,
                                .context_len = 128,
                                .window = 32};
constexpr int32_t kBlockLen = 8;

struct RandomStep {
  explicit RandomStep(uint64_t seed)
      : bits(seed),
        arrays(kBlockLen, {.n_tokens = 64, .n_sequences = 8, .n_rows = 64, .n_blocks = 128, .n_path_slots = 256}) {
    for (int32_t i = up_to(4); i > 0; --i) {
      copies.push_back(
          {BlockId{up_to(kLimits.n_blocks)}, BlockId{up_to(kLimits.n_host_blocks)}, Tier::kDevice, Tier::kHost});
    }
    work.copies = copies;
    has_states = up_to(3) == 0;
    for (int32_t i = has_states ? up_to(3) : 0; i > 0; --i) {
      state_copies.push_back(
          {StateId{up_to(kLimits.n_host_states)}, StateId{up_to(kLimits.n_states)}, Tier::kHost, Tier::kDevice});
    }
    work.state_copies = state_copies;
    work.wants_hidden = up_to(2) == 1, work.wants_rows_hidden = up_to(2) == 1, work.wants_taps = up_to(2) == 1;
    if (up_to(8) == 0) return;
    const bool has_paths = up_to(2) == 1, is_view = !has_paths && up_to(3) == 0;
    arrays.clear();
    for (int32_t s = 1 + up_to(5); s > 0; --s) add_sequence(has_paths, is_view);
    batch = arrays.batch();
    work.batch = &batch;
  }
  int32_t up_to(int32_t n) { return static_cast<int32_t>(bits() % static_cast<uint64_t>(n)); }
  void add_sequence(bool has_paths, bool is_view) {
    const int32_t first = up_to(100), n = 1 + up_to(8);
    for (int32_t i = 0; i < n; ++i) {
      const int32_t position = first + i, slot = up_to(kLimits.n_blocks * kBlockLen);
      if (has_paths && up_to(2) == 0) {
        for (int32_t& on : arrays.add_path(1 + up_to(std::min(3, position + 1)))) on = slot;
      }
      const TokenId token{up_to(kLimits.vocab_size)};
      is_view ? arrays.add_viewed(token, position, position / 2, slot) : arrays.add(token, position, slot);
      if (up_to(3) == 0) arrays.want_last();
      if (has_states) arrays.add_state_out(up_to(kLimits.n_states + 1) - 1);
    }
    std::vector<BlockId> table;
    for (int32_t b = 0; b * kBlockLen < first + n; ++b) {
      const bool is_gone = (b + 1) * kBlockLen <= (is_view ? first / 2 : first) + 1 - kLimits.window;
      table.push_back(is_gone ? BlockId::kNone : BlockId{up_to(kLimits.n_blocks)});
    }

    if (has_states) arrays.add_state_in(up_to(kLimits.n_states + 1) - 1);
    arrays.add_blocks(table);
    if (up_to(3) == 0) arrays.set_adapter(up_to(kLimits.n_adapters + 1) - 1);
    arrays.end_sequence();
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out(step_bytes(work));
    write_step(work, out);
    return out;
  }

  std::mt19937_64 bits;
  BatchArrays arrays;
  ForwardBatch batch;
  std::vector<BlockCopy> copies;
  std::vector<StateCopy> state_copies;
  bool has_states = false;
  StepWork work;
};

TEST(StepBytes, GiveTheSameStepAgain) {
  int n_with_paths = 0, n_views = 0, n_copies_alone = 0, n_with_states = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const RandomStep step(seed);
    const std::vector<std::byte> bytes = step.bytes();
    const Result<ReadStep> read = ReadStep::read(bytes, kLimits);
    ASSERT_TRUE(read.ok()) << seed << ": " << read.error().message;
    const StepWork work = read->work();
    EXPECT_TRUE(std::ranges::equal(work.copies, step.work.copies));
    EXPECT_EQ(work.wants_hidden, step.work.wants_hidden);
    EXPECT_EQ(work.wants_rows_hidden, step.work.wants_rows_hidden);
    EXPECT_EQ(work.wants_taps, step.work.wants_taps);
    ASSERT_EQ(work.batch != nullptr, step.work.batch != nullptr);
    // All arrays, through the bytes of what was read.
    std::vector<std::byte> again(step_bytes(work));
    ASSERT_EQ(again.size(), bytes.size());
    write_step(work, again);
    EXPECT_EQ(again, bytes) << seed;
    if (work.batch == nullptr) {
      ++n_copies_alone;
      continue;
    }
    EXPECT_TRUE(std::equal(work.batch->slots, work.batch->slots + work.batch->n_tokens, step.batch.slots));
    EXPECT_TRUE(std::equal(work.batch->tokens, work.batch->tokens + work.batch->n_tokens, step.batch.tokens));
    n_with_paths += work.batch->path_start != nullptr;
    n_views += work.batch->places != nullptr;
    ASSERT_EQ(work.batch->state_out != nullptr, step.batch.state_out != nullptr);
    if (work.batch->state_out == nullptr) continue;
    ++n_with_states;
    EXPECT_TRUE(std::ranges::equal(work.state_copies, step.work.state_copies));
    EXPECT_TRUE(std::equal(work.batch->state_in, work.batch->state_in + work.batch->n_sequences, step.batch.state_in));
    EXPECT_TRUE(std::equal(work.batch->state_out, work.batch->state_out + work.batch->n_tokens, step.batch.state_out));
  }
  EXPECT_GT(n_with_paths, 50);
  EXPECT_GT(n_views, 20);
  EXPECT_GT(n_copies_alone, 20);
  EXPECT_GT(n_with_states, 50);
}

// Whatever bytes come, a worker reads nothing that is not there: a step that is taken names only what exists.
TEST(StepBytes, OfNoStepAreRefused) {
  std::mt19937_64 bits(3);
  int n_refused = 0, n_taken = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<std::byte> bytes = RandomStep(seed).bytes();
    for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 9)
      EXPECT_FALSE(ReadStep::read(std::span(bytes).first(cut), kLimits).ok());
    for (int i = 0; i < 50; ++i) {
      std::vector<std::byte> wrong = bytes;
      const size_t at = bits() % (wrong.size() / 4) * 4;
      const int32_t values[] = {-1, 0, 1, 7, 127, 1 << 20, INT32_MAX, INT32_MIN, static_cast<int32_t>(bits())};
      std::memcpy(&wrong[at], &values[bits() % std::size(values)], 4);
      const Result<ReadStep> read = ReadStep::read(wrong, kLimits);
      if (!read.ok()) {
        ++n_refused;
        continue;
      }
      ++n_taken;
      const StepWork work = read->work();
      if (work.batch == nullptr) continue;
      const ForwardBatch& b = *work.batch;
      for (int32_t s = 0; s < b.n_sequences; ++s) {
        for (int32_t t = b.query_start[s]; t < b.query_start[s + 1]; ++t) {
          ASSERT_LT(b.slots[t], kLimits.n_blocks * b.block_len);
          for (int32_t place = std::max(0, b.read_by()[t] + 1 - kLimits.window); place <= b.read_by()[t]; ++place) {
            ASSERT_LT(b.slot_read(s, t, place), kLimits.n_blocks * b.block_len);
            ASSERT_GE(b.slot_read(s, t, place), 0);
          }
        }
      }
    }
  }
  EXPECT_GT(n_refused, 5000);
  EXPECT_GT(n_taken, 1000) << "a change of a token's id is no fault of the step";
}

}  // namespace
}  // namespace ibid
