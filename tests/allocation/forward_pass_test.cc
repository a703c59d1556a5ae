// A forward pass makes no allocation, with hidden states and without. Counted are the calls of operator new by the
// thread that runs it.
#include <gtest/gtest.h>

#include <array>

#include "allocation_hook.h"
#include "kernels/isa.h"
#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

thread_local bool counts_pass = false;
thread_local size_t n_in_pass = 0;

TEST(ForwardPass, AllocatesNothing) {
  selected_isa();  // a process finds out once what its machine can do
  bool (*const before)() noexcept = testing::may_allocate;
  testing::may_allocate = []() noexcept {
    n_in_pass += counts_pass;
    return true;
  };
  for (std::string_view architecture : testing::tiny_architectures()) {
    testing::LoadedModel m(testing::TinyModelOptions{.architecture = architecture, .dtype = DType::kQ4_0});
    const int64_t V = m.model->config().vocab_size, C = m.model->config().width;
    const std::vector<TokenId> tokens = testing::some_tokens(8, V);
    const std::vector<int32_t> slots = {0, 1, 2, 3, 4, 5, 6, 7}, rows = {7}, layers = {0, 1}, query_start = {0, 8};
    const int32_t kv_len = 8;
    const BlockId block{0};
    OneSequence memory(*m.model, *m.stream, {.capacity = 16});
    std::vector<float> logits(static_cast<size_t>(V)), states(static_cast<size_t>(16 * C));
    const TensorView hidden[] = {{states.data(), DType::kF32, {8, C}}, {&states[8 * size_t(C)], DType::kF32, {8, C}}};
    const std::array<int32_t, 2> block_start = {0, 1};
    ForwardBatch batch;
    batch.n_tokens = 8;
    batch.n_sequences = batch.n_rows = 1;
    batch.block_len = 16;
    batch.tokens = tokens.data();
    batch.positions = batch.slots = slots.data();
    batch.query_start = query_start.data();
    batch.kv_len = &kv_len;
    batch.block_start = block_start.data();
    batch.block_table = &block;
    batch.logit_rows = rows.data();
    const std::array<int32_t, 8> state_out = {-1, -1, -1, -1, -1, -1, -1, 0};
    batch.state_in = state_out.data();  // nothing comes before
    batch.state_out = state_out.data();
    const TensorView out(logits.data(), DType::kF32, {1, V});
    n_in_pass = 0;
    counts_pass = true;
    m.model->forward(*m.stream, batch, memory.kv(), out, {}, memory.states());
    m.model->forward(*m.stream, batch, memory.kv(), out, {.layers = layers, .out = hidden}, memory.states());
    counts_pass = false;
    EXPECT_EQ(n_in_pass, 0u) << architecture;
  }
  testing::may_allocate = before;
}

}  // namespace
}  // namespace ibid
