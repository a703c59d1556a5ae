#include "model/adapters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/batch_arrays.h"
#include "model/adapter_shelf.h"
#include "model/testing/random_adapter.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::random_adapter;
using testing::random_pairs;

constexpr ModelOptions kOptions = {
    .step_tokens = 64, .max_rows = 64, .max_sequences = 8, .max_adapters = 4, .max_adapter_rank = 16};

// Sequences side by side, each in blocks of its own, fed in steps that take some tokens of each.
struct SideBySide {
  struct One {
    std::vector<TokenId> tokens;
    int32_t slot = -1;
    std::vector<float> logits = {};
    int32_t n_done = 0;
  };
  static constexpr int32_t kBlocks = 4, kBlockLen = 16;

  SideBySide(LoadedModel& m, std::vector<One> all, uint64_t seed) : sequences(std::move(all)), bits(seed) {
    const Model& model = *m.model;
    const auto n = static_cast<int32_t>(sequences.size());
    const std::vector<KvLayout> layers = kv_layouts(model.kv_geometries(), DType::kF32, kBlockLen);
    std::vector<std::byte> memory(static_cast<size_t>(kv_pool_bytes(layers, kBlocks * n)) + 64);
    const auto start = reinterpret_cast<uintptr_t>(memory.data());
    const std::vector<PagedKv> kv = kv_pool(layers, kBlocks * n, memory.data() + (64 - start % 64) % 64);
    std::vector<std::byte> states(static_cast<size_t>(model.state_layout().slot_bytes() * n));
    const StateSlots slots = {states.data(), model.state_layout().slot_bytes(), states.empty() ? 0 : n};
    while (true) {
      BatchArrays arrays(kBlockLen, {.n_tokens = 64, .n_sequences = 8, .n_rows = 64, .n_blocks = 64});
      std::vector<One*> rows;
      for (int32_t s = 0; s < n; ++s) {
        One& one = sequences[static_cast<size_t>(s)];
        const int32_t left = static_cast<int32_t>(one.tokens.size()) - one.n_done;
        const int32_t count = std::min(left, static_cast<int32_t>(bits() % 6));
        if (count == 0) continue;
        std::vector<BlockId> table;
        for (int32_t b = 0; b < kBlocks; ++b) table.push_back(BlockId{s * kBlocks + b});
        arrays.add_run(std::span(one.tokens).subspan(static_cast<size_t>(one.n_done), static_cast<size_t>(count)),
                       one.n_done, table);
        for (int32_t i = 0; i < count; ++i) {
          arrays.want(arrays.n_tokens() - count + i);
          rows.push_back(&one);
          if (!states.empty()) arrays.add_state_out(i + 1 < count ? -1 : s);
        }
        if (!states.empty()) arrays.add_state_in(one.n_done == 0 ? -1 : s);
        if (one.slot >= 0) arrays.set_adapter(one.slot);
        arrays.add_blocks(
            std::span(table).first(static_cast<size_t>((one.n_done + count + kBlockLen - 1) / kBlockLen)));
        arrays.end_sequence();
        one.n_done += count;
      }
      if (std::ranges::all_of(sequences, [](const One& o) { return o.n_done == std::ssize(o.tokens); }) &&
          arrays.n_tokens() == 0)
        return;
      if (arrays.n_tokens() == 0) continue;
      const int64_t V = model.config().vocab_size;
      std::vector<float> logits(rows.size() * static_cast<size_t>(V));
      m.model->forward(*m.stream, arrays.batch(), kv, TensorView(logits.data(), DType::kF32, {std::ssize(rows), V}), {},
                       slots);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(i) * V;
        rows[i]->logits.insert(rows[i]->logits.end(), begin, begin + V);
      }
    }
  }
  std::vector<One> sequences;
  std::mt19937_64 bits;
};

// Requests of other adapters in the same steps, cut in any way, change no bit.
TEST(Adapters, AnyMixInAStepIsAsEachAlone) {
  for (const char* architecture : {"llama", "qwen3moe", "qwen35", "gemma3", "phi3", "deepseek2", "nemotron_h_moe"}) {
    for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
      const auto known = testing::tiny_architectures();
      if (std::ranges::find(known, architecture) == known.end()) continue;
      SCOPED_TRACE(architecture);
      LoadedModel m(testing::tiny_model_file({.architecture = architecture, .dtype = dtype}), kOptions);
      ASSERT_NE(m.model, nullptr);
      const auto first = m.model->adapters()->place(random_adapter(m, 1)).value();
      const auto second = m.model->adapters()->place(random_adapter(m, 2)).value();
      std::vector<SideBySide::One> all;
      for (int32_t i = 0; i < 6; ++i) {
        const int32_t slots[] = {first->slot, -1, second->slot};
        all.push_back({.tokens = testing::some_tokens(10 + 5 * i, m.model->config().vocab_size, 7 + i % 2),
                       .slot = slots[i % 3]});
      }
      const SideBySide mixed(m, all, 3), again(m, all, 4);
      for (size_t i = 0; i < all.size(); ++i) {
        const SideBySide alone(m, {all[i]}, 5 + i);
        ASSERT_EQ(mixed.sequences[i].logits, alone.sequences[0].logits) << i;
        ASSERT_EQ(again.sequences[i].logits, alone.sequences[0].logits) << i;
        if (all[i].slot < 0) continue;
        SideBySide::One plain = all[i];
        plain.slot = -1;
        EXPECT_NE(SideBySide(m, {plain}, 6).sequences[0].logits, alone.sequences[0].logits);
      }
    }
  }
}

TEST(Adapters, EachSeatMovesTheLogitsAndZerosMoveNone) {
  LoadedModel m(testing::tiny_model_file({.architecture = "llama"}), kOptions);
  std::vector<Adapter::Pair> pairs = random_pairs(m.model->adapter_seats(), 5);
  // The same with B = 0, and with s = 0 in another way: A of zeros.
  std::vector<Adapter::Pair> zeros = pairs;
  for (Adapter::Pair& pair : zeros) std::ranges::fill(pair.seat % 2 == 0 ? pair.a : pair.b, 0.0f);
  const std::vector<TokenId> tokens = testing::some_tokens(40, 96);
  const std::vector<float> plain = m.logits(tokens);
  const auto zero = m.model->adapters()
                        ->place(Adapter::make(*m.stream, m.model->adapter_seats(), std::move(zeros), "z").value())
                        .value();
  EXPECT_EQ(m.logits(tokens, {.adapter = zero->slot}), plain);
  // One seat after another moves the logits.
  for (const Adapter::Pair& pair : pairs) {
    const auto one =
        m.model->adapters()->place(Adapter::make(*m.stream, m.model->adapter_seats(), {pair}, "one").value()).value();
    EXPECT_NE(m.logits(tokens, {.adapter = one->slot}), plain)
        << m.model->adapter_seats()[static_cast<size_t>(pair.seat)].name;
  }
}

TEST(Adapters, ASlotIsFreeWhenItsLastHolderIsGone) {
  LoadedModel m(testing::tiny_model_file({.architecture = "llama"}), kOptions);
  AdapterTable& table = *m.model->adapters();
  std::vector<std::shared_ptr<const PlacedAdapter>> held;
  for (uint64_t i = 0; i < 4; ++i) held.push_back(table.place(random_adapter(m, i)).value());
  EXPECT_EQ(table.place(random_adapter(m, 9)).error().kind, ErrorKind::kUnavailable);
  const int32_t slot = held[2]->slot;
  auto other = held[2];
  held[2] = nullptr;
  EXPECT_FALSE(table.place(random_adapter(m, 9)).ok());
  other = nullptr;
  EXPECT_EQ(table.place(random_adapter(m, 9)).value()->slot, slot);
}

TEST(Adapters, WhatDoesNotFitIsRefused) {
  LoadedModel m(testing::tiny_model_file({.architecture = "llama"}), kOptions);
  AdapterTable& table = *m.model->adapters();
  const auto seats = m.model->adapter_seats();
  const auto of_rank = [&](int64_t rank) {
    Adapter::Pair pair{.seat = 0, .rank = rank};
    pair.a.resize(static_cast<size_t>(rank * seats[0].n_inputs), 1.0f);
    pair.b.resize(static_cast<size_t>(rank * seats[0].n_outputs), 1.0f);
    return pair;
  };
  EXPECT_EQ(Adapter::make(*m.stream, seats, {of_rank(kMaxAdapterRank + 1)}, "a").error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(table.place(Adapter::make(*m.stream, seats, {of_rank(17)}, "a").value()).error().kind,
            ErrorKind::kUnsupported);
  Adapter::Pair bad = of_rank(2);
  bad.a[3] = std::nanf("");
  EXPECT_EQ(Adapter::make(*m.stream, seats, {bad}, "a").error().kind, ErrorKind::kInvalid);
  bad = of_rank(2);
  bad.factor = 1e300;
  EXPECT_EQ(Adapter::make(*m.stream, seats, {bad}, "a").error().kind, ErrorKind::kInvalid);
  const auto fits = Adapter::make(*m.stream, seats, {of_rank(2)}, "a").value();
  table.limit_bytes(2 * fits->bytes() - 1);
  const auto placed = table.place(fits);
  EXPECT_TRUE(placed.ok());
  EXPECT_EQ(table.place(fits).error().kind, ErrorKind::kUnavailable);
}

// The digest is of what an adapter does: its numbers, factors and places.
TEST(Adapters, ADigestIsOfWhatTheyDo) {
  LoadedModel m(testing::tiny_model_file({.architecture = "llama"}), kOptions);
  const auto seats = m.model->adapter_seats();
  const std::vector<Adapter::Pair> pairs = random_pairs(seats, 1);
  const auto digest = [&](std::vector<Adapter::Pair> of) {
    return Adapter::make(*m.stream, seats, std::move(of), "a").value()->digest();
  };
  const std::string own = digest(pairs);
  EXPECT_EQ(own.size(), 64u);
  std::vector<Adapter::Pair> turned(pairs.rbegin(), pairs.rend());
  EXPECT_EQ(digest(turned), own);
  std::vector<Adapter::Pair> other = pairs;
  other[1].factor *= 2;
  EXPECT_NE(digest(other), own);
  other = pairs;
  other[2].a[0] += 1;
  EXPECT_NE(digest(other), own);
  other = pairs;
  other.pop_back();
  EXPECT_NE(digest(other), own);
}

TEST(AdapterShelf, NamesAreLoadedReplacedAndUnloaded) {
  LoadedModel m(testing::tiny_model_file({.architecture = "llama"}), kOptions);
  uint64_t seed = 0;
  AdapterShelf shelf(*m.model->adapters(), [&](const std::string& path) -> Result<std::shared_ptr<const Adapter>> {
    if (path == "bad") return not_found("there is no file");
    return random_adapter(m, ++seed);
  });
  EXPECT_TRUE(shelf.load("a", "one").ok());
  EXPECT_EQ(shelf.load("a", "two").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(shelf.load("b", "bad").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(shelf.load("", "one").error().kind, ErrorKind::kInvalid);
  EXPECT_EQ(shelf.load("a\n", "one").error().kind, ErrorKind::kInvalid);
  const auto before = shelf.find("a");
  EXPECT_TRUE(shelf.load("a", "two", true).ok());
  const auto after = shelf.find("a");
  EXPECT_NE(before->adapter->digest(), after->adapter->digest());
  EXPECT_NE(before->slot, after->slot);  // answers under way keep theirs
  EXPECT_EQ(shelf.find_digest(after->adapter->digest()), after);
  EXPECT_EQ(shelf.find_digest(before->adapter->digest()), nullptr);
  EXPECT_EQ(shelf.list().size(), 1u);
  EXPECT_TRUE(shelf.unload("a").ok());
  EXPECT_EQ(shelf.unload("a").error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(shelf.find("a"), nullptr);
}

}  // namespace
}  // namespace ibid
