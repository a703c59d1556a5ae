// The context of --for agent: the model's own, as far as memory goes.
#include <gtest/gtest.h>

#include "cli/options/presets.h"
#include "host/loading.h"
#include "model/testing/tiny_model.h"
#include "temp_folder.h"

namespace ibid::cli {
namespace {

TEST(OwnContext, IsTheModelsAsFarAsMemoryGoes) {
  TempFolder folder;
  ServeOptions options;
  apply(**preset_by_name("agent"), options);
  options.max_sequences = 2;
  ModelArgs args = options.model;
  args.model =
      folder.write("model.gguf", testing::tiny_gguf({.vocab_size = 260, .context_len = 65536, .tokenizer = true}));
  args.process_bytes = int64_t{64} << 20;
  const host::StepLimits limits{.step_tokens = 64, .max_sequences = 2};
  const auto context = [&] { return size(args, limits).value().context_len; };
  EXPECT_EQ(context(), 65536);
  ModelArgs others = args;
  others.own_context = false;
  const host::Loaded small = size(others, limits).value();
  EXPECT_EQ(small.context_len, 8192);
  // Room for a quarter of it, beside what a small one needs and some more for larger tables.
  args.memory_bytes = small.memory.total() + small.kv_bytes_for(1, 20'000, 16) + (int64_t{1} << 20);
  const int32_t cut = context();
  EXPECT_GE(cut, 8192);
  EXPECT_LT(cut, 65536);
  args.memory_bytes = 1 << 20;
  EXPECT_FALSE(size(args, limits).ok());
  args.memory_bytes = 0;
  args.context_len = 100;
  EXPECT_EQ(context(), 100) << "--ctx says otherwise";
}

}  // namespace
}  // namespace ibid::cli
