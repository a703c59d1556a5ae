// A forward pass over a tree of drafts gives each node the logits of its path computed as plain text (row S12), and an
// accepted path that has moved to its positions' slots is text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/ops.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::some_tokens;

constexpr int32_t kText = 29, kNodes = 9, kCapacity = 64;
constexpr int32_t kParent[kNodes] = {-1, 0, 0, 1, 1, -1, 3, 6, 5};  // -1: the text
constexpr int32_t kDepth[kNodes] = {0, 1, 1, 2, 2, 0, 3, 4, 1};
// OneSequence's blocks are in order, so a slot is a place in the text; hardly any node lies at its position's.
constexpr int32_t kSlot[kNodes] = {31, 33, 47, 32, 50, 30, 40, 35, 29};

std::vector<int32_t> way_to(int32_t node) {
  std::vector<int32_t> way;
  for (; node >= 0; node = kParent[node]) way.insert(way.begin(), node);
  return way;
}

std::vector<float> last_row(LoadedModel& m, const std::vector<TokenId>& tokens, DType dtype) {
  const std::vector<float> all = m.logits(tokens, {.kv_dtype = dtype, .capacity = kCapacity});
  return {all.end() - m.model->config().vocab_size, all.end()};
}

// One step of one sequence: the logits of all its tokens.
struct Step {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions, slots, path_slots;
  std::vector<int32_t> path_start = {0};

  void add(TokenId token, int32_t position, int32_t slot, const std::vector<int32_t>& path) {
    tokens.push_back(token);
    positions.push_back(position);
    slots.push_back(slot);
    path_slots.insert(path_slots.end(), path.begin(), path.end());
    path_start.push_back(static_cast<int32_t>(path_slots.size()));
  }
  // Of a model with recurrent layers, token i's state goes to slot i + 1 of `states`; the first goes on from slot
  // `from`.
  std::vector<float> logits(LoadedModel& m, const OneSequence& memory, const StateSlots& states, int32_t from) const {
    const auto n = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<int32_t> state_out(tokens.size());
    std::iota(state_out.begin(), state_out.end(), 1);
    if (states.slot_bytes == 0) state_out.assign(tokens.size(), -1);
    const int32_t query_start[] = {0, n}, block_start[] = {0, kCapacity / 16};
    const int32_t kv_len = *std::max_element(positions.begin(), positions.end()) + 1;
    const BlockId table[] = {BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}};
    const ForwardBatch batch = {.n_tokens = n,
                                .n_sequences = 1,
                                .n_rows = n,
                                .block_len = 16,
                                .tokens = tokens.data(),
                                .positions = positions.data(),
                                .slots = slots.data(),
                                .query_start = query_start,
                                .kv_len = &kv_len,
                                .block_start = block_start,
                                .block_table = table,
                                .logit_rows = rows.data(),
                                .path_start = path_start.data(),
                                .path_slots = path_slots.data(),
                                .state_in = &from,
                                .state_out = state_out.data()};
    const int64_t V = m.model->config().vocab_size;
    std::vector<float> out(static_cast<size_t>(n * V));
    m.model->forward(*m.stream, batch, memory.kv(), TensorView(out.data(), DType::kF32, {n, V}), {}, states);
    return out;
  }
};

TEST(DraftPaths, ATreesLogitsAreThoseOfItsPathsForEveryArchitecture) {
  const DType dtypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  size_t turn = 0;
  for (const std::string_view architecture : testing::tiny_architectures()) {
    SCOPED_TRACE(architecture);
    LoadedModel m(testing::TinyModelOptions{.architecture = architecture, .dtype = DType::kQ8_0, .window = 24});
    const DType dtype = dtypes[turn++ % std::size(dtypes)];
    const auto V = static_cast<size_t>(m.model->config().vocab_size);
    const std::vector<TokenId> text = some_tokens(kText, static_cast<int64_t>(V), 1);
    const std::vector<TokenId> drafts = some_tokens(kNodes, static_cast<int64_t>(V), 2);
    OneSequence memory(*m.model, *m.stream, {.kv_dtype = dtype, .capacity = kCapacity});
    memory.append(text, nullptr);
    Step step;
    for (int32_t node = 0; node < kNodes; ++node) {
      std::vector<int32_t> path;
      for (const int32_t on_way : way_to(node)) path.push_back(kSlot[on_way]);
      step.add(drafts[static_cast<size_t>(node)], kText + kDepth[node], kSlot[node], path);
    }
    const int64_t state_bytes = m.model->state_layout().slot_bytes();
    std::vector<float> state_memory(static_cast<size_t>(state_bytes / 4 * (kNodes + 1)));
    const StateSlots states = {reinterpret_cast<std::byte*>(state_memory.data()), state_bytes, kNodes + 1};
    if (state_bytes > 0) std::memcpy(states.slot(0), memory.states().slot(0), static_cast<size_t>(state_bytes));
    const std::vector<float> tree = step.logits(m, memory, states, 0);
    for (int32_t node = 0; node < kNodes; ++node) {
      std::vector<TokenId> path = text;
      for (const int32_t on_way : way_to(node)) path.push_back(drafts[static_cast<size_t>(on_way)]);
      const std::vector<float> want = last_row(m, path, dtype);
      ASSERT_EQ(0, std::memcmp(want.data(), tree.data() + static_cast<size_t>(node) * V, V * sizeof(float)))
          << "node " << node;
    }
    // The path to node 7 is accepted and moves down to its place; the next token is plain text after it.
    std::vector<TokenId> all = text;
    std::vector<int32_t> from, to;
    for (const int32_t node : way_to(7)) {
      from.push_back(kSlot[node]);
      to.push_back(static_cast<int32_t>(all.size()));
      all.push_back(drafts[static_cast<size_t>(node)]);
    }
    for (size_t l = 0; l < memory.kv().size(); ++l) {  // a cache that several layers read once
      if (m.model->config().layers[l].kv_owner == kOwnCache) ops::copy_slots(*m.stream, memory.kv()[l], from, to);
    }
    const auto end = static_cast<int32_t>(all.size());
    all.push_back(TokenId{3});
    Step next;
    next.add(all.back(), end, end, {});
    EXPECT_EQ(0,
              std::memcmp(last_row(m, all, dtype).data(), next.logits(m, memory, states, 8).data(), V * sizeof(float)));
  }
}

}  // namespace
}  // namespace ibid
