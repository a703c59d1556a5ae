// What the prefix cache shares between requests of adapters.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/engine.h"
#include "model/testing/random_adapter.h"

namespace ibid {
namespace {

using testing::LoadedModel;

TEST(EngineAdapters, BlocksAreSharedWithTheSameContentAlone) {
  LoadedModel m(testing::tiny_model_file({}),
                {.step_tokens = 128, .max_rows = 128, .max_adapters = 3, .max_adapter_rank = 8});
  auto engine = Engine::create(*m.model, nullptr, *m.stream, {.step_tokens = 128, .max_sequences = 2}).value();
  const auto content = testing::random_adapter(m, 1);
  const auto one = m.model->adapters()->place(content).value(), same = m.model->adapters()->place(content).value(),
             other = m.model->adapters()->place(testing::random_adapter(m, 2)).value();
  uint64_t id = 0;
  const auto cached = [&](std::shared_ptr<const PlacedAdapter> adapter) {
    Request r;
    r.id = RequestId{++id};
    r.prompt = testing::some_tokens(50, 96);
    r.max_tokens = 2;
    r.adapter = std::move(adapter);
    EXPECT_TRUE(engine->submit(std::move(r)).ok());
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    EXPECT_TRUE(out.back().finished);
    return out.back().usage.cached_tokens;
  };
  EXPECT_EQ(cached(nullptr), 0);
  EXPECT_EQ(cached(one), 0);
  EXPECT_GE(cached(one), 48);
  EXPECT_GE(cached(same), 48);  // in another slot, as under another name
  EXPECT_EQ(cached(other), 0);
  EXPECT_GE(cached(nullptr), 48);
}

}  // namespace
}  // namespace ibid
