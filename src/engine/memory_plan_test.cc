#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "model/testing/loaded_model.h"

namespace ibid {
namespace {

using testing::LoadedModel;
using testing::TinyModelOptions;

TEST(MemoryPlan, WhatALimitLeavesIsForKeysAndValuesInWholeBlocks) {
  const LoadedModel m(TinyModelOptions{});
  const EngineOptions options{.max_sequences = 4, .max_waiting = 2};
  MemoryPlan plan;
  plan.add("program", 1 << 20);
  add_engine_parts(plan, *m.model, options, 2);
  int64_t sum = 0;
  for (const MemoryPart& part : plan.parts) {
    EXPECT_GE(part.bytes, 0) << part.name;
    sum += part.bytes;
  }
  EXPECT_EQ(plan.total(), sum);

  const int64_t with_notes = planned_block_bytes(*m.model, options);
  const int64_t bytes = kv_bytes_of_block(*m.model, options.kv_dtype, options.block_len);
  const int64_t n_context = (m.model->context_len() + 15) / 16;
  EXPECT_EQ(kv_bytes_within(sum + n_context * with_notes, plan, *m.model, options).value(), n_context * bytes);
  EXPECT_EQ(kv_bytes_within(sum + (n_context + 4) * with_notes - 1, plan, *m.model, options).value(),
            (n_context + 3) * bytes);

  const auto refused = kv_bytes_within(sum + n_context * with_notes - 1, plan, *m.model, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kExhausted);
  for (const MemoryPart& part : plan.parts) EXPECT_NE(refused.error().message.find(part.name), std::string::npos);
  EXPECT_FALSE(kv_bytes_within(1000, plan, *m.model, options).ok());
}

}  // namespace
}  // namespace ibid
