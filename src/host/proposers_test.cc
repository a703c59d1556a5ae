// Each proposer from its option to what is loaded, counted and used.
#include "host/proposers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/mapped_file.h"
#include "host/host.h"
#include "host/own_eagle.h"
#include "model/testing/tiny_model.h"
#include "temp_folder.h"
#include "tiny_files.h"

namespace ibid::host {
namespace {

// Of 60 tokens.
Request long_request() {
  Request r;
  r.id = RequestId{1};
  r.prompt = {TokenId{65}, TokenId{66}, TokenId{70}, TokenId{65}};
  r.max_tokens = 60;
  r.sampling.temperature = 0;
  r.sampling.ignore_eos = true;
  r.speculation.verifier = Verifier::kRejection;  // drafts whatever they cost
  return r;
}

int64_t drafted_by(Engine& engine) {
  EXPECT_TRUE(engine.submit(long_request()).ok());
  std::vector<Output> out;
  while (engine.step(out)) {
  }
  return engine.stats().drafted_tokens;
}

TEST(DraftModelFlag, MemoryOfADraftModelIsCounted) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const int64_t without = size(model, limits).value().memory.total();
  limits.spec.draft_model = testing::tiny_file(folder, "draft.gguf", 260, 2);
  const Loaded with = load(model, limits).value();
  ASSERT_TRUE(with.draft.has_value());
  EXPECT_EQ(with.draft->kv_bytes, 2 * 128 / 16 * kv_bytes_of_block(*with.draft->model, DType::kF16, 16));
  EXPECT_GT(with.memory.total(), without + with.draft->kv_bytes);
  EXPECT_TRUE(start_engine(with, with.engine_options(limits), {.limits = limits}).ok());
}

// Its weights become zeros, and what it then proposes is refused as any wrong draft is.
TEST(DraftModelFlag, ADraftModelThatIsCutShortWhileItIsReadChangesNoAnswer) {
  end_where_files_are_cut(7);
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  const auto answer = [&](const std::string& draft_model, bool is_cut) {
    const StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .draft_model = draft_model, .k = 4}};
    const Loaded loaded = load(model, limits).value();
    if (is_cut) std::filesystem::resize_file(draft_model, 10);
    auto engine = start_engine(loaded, loaded.engine_options(limits), {.limits = limits}).value();
    EXPECT_TRUE(engine->submit(long_request()).ok());
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    std::vector<TokenId> said;
    for (const Output& o : out) {
      for (const TokenRecord& t : o.tokens) said.push_back(t.chosen.token);
    }
    if (is_cut) {
      EXPECT_GT(engine->stats().drafted_tokens, 0);
    }
    return said;
  };
  const std::vector<TokenId> plain = answer("", false);
  EXPECT_EQ(plain.size(), 60u);
  const std::string draft = testing::tiny_file(folder, "draft.gguf", 260, 2);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(answer(draft, true), plain);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("draft.gguf was cut short while it was in use"), std::string::npos) << said;
}

TEST(DraftModelFlag, AnotherVocabularyIsRefusedByItsFirstDifference) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  const auto sized = size(
      model, {.spec = {.finds_own = false, .draft_model = testing::tiny_file(folder, "draft.gguf", 264, 2), .k = 4}});
  ASSERT_FALSE(sized);
  EXPECT_NE(sized.error().message.find("another vocabulary"), std::string::npos) << sized.error().message;
  EXPECT_NE(sized.error().message.find("264"), std::string::npos) << sized.error().message;
}

TEST(DraftWindowFlag, KeysOfWindowsAreCountedAndMoreThanTheContextIsRefused) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 3, .spec = {.finds_own = false, .k = 4}};
  limits.spec.draft_window = WindowArgs{.n_sink = 8, .n_window = 16};
  EXPECT_NE(size(model, limits).error().message.find("there is none"), std::string::npos);
  limits.spec.draft_model = testing::tiny_file(folder, "draft.gguf", 260, 2);
  const Loaded with = load(model, limits).value();
  // For three sequences of 8 + 2 * 16 tokens and 64 drafts, in blocks of 16.
  EXPECT_EQ(with.draft->model->context_len(), 104);
  EXPECT_EQ(with.draft->kv_bytes, 3 * 7 * kv_bytes_of_block(*with.draft->model, DType::kF16, 16));
  auto engine = start_engine(with, with.engine_options(limits), {.limits = limits}).value();
  EXPECT_GT(drafted_by(*engine), 60);
  limits.spec.draft_window = WindowArgs{.n_sink = 8, .n_window = 28};
  EXPECT_NE(size(model, limits).error().message.find("leaves nothing out of a context of 128"), std::string::npos);
  std::ofstream(limits.spec.draft_model, std::ios::binary)
      << testing::tiny_gguf({.seed = 2, .vocab_size = 260, .context_len = 100, .tokenizer = true});
  limits.spec.draft_window = WindowArgs{.n_sink = 8, .n_window = 16};
  EXPECT_NE(size(model, limits).error().message.find("draft model's context of 100"), std::string::npos);
}

// Its keys and values are counted, and no weight of it: there is none.
TEST(SkipFlag, TheModelItselfDraftsWithoutSomeLayers) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const Loaded without = size(model, limits).value();
  limits.spec.skip = "1";
  const Loaded with = load(model, limits).value();
  ASSERT_TRUE(with.draft.has_value());
  EXPECT_EQ(with.draft->skipped, std::vector<int32_t>{1});
  EXPECT_EQ(with.draft->model->config().n_layers, 1);
  EXPECT_EQ(with.draft->model->memory().repacked_bytes, 0);
  EXPECT_EQ(with.draft->kv_bytes,
            128 / 16 * kv_bytes_of_block(*with.model, DType::kF16, 16));  // half the layers, twice
  int64_t counted = 0;
  for (const MemoryPart& part : with.memory.parts)
    counted += part.name.starts_with("skipping model's") ? part.bytes : 0;
  EXPECT_GT(counted, with.draft->kv_bytes);
  EXPECT_EQ(counted - with.draft->kv_bytes,
            with.draft->model->memory().scratch_bytes + with.draft->model->memory().workspace_bytes + 8 * 260 * 4);
  auto engine = start_engine(with, with.engine_options(limits), {.limits = limits}).value();
  EXPECT_GT(drafted_by(*engine), 60);
}

TEST(SkipFlag, LayersThatTheModelHasNotAreRefused) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  for (const char* skip : {"2", "0-1", "0,7"}) {
    const auto refused = size(model, {.spec = {.finds_own = false, .skip = skip, .k = 4}});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("layers 0 to 1"), std::string::npos) << refused.error().message;
  }
  const auto refused = size(model, {.spec = {.finds_own = false, .skip = std::string(kOwnLayers), .k = 4}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("find-layers"), std::string::npos) << refused.error().message;
}

// It holds nothing of its own: no weights, no keys and values.
TEST(WindowFlag, TheModelItselfDraftsOverAPartOfTheSequence) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const int64_t without = size(model, limits).value().memory.total();
  limits.spec.window = WindowArgs{.n_sink = 8, .n_window = 16};
  const Loaded with = load(model, limits).value();
  EXPECT_EQ(with.memory.total(), without);
  auto engine = start_engine(with, with.engine_options(limits), {.limits = limits}).value();
  EXPECT_GT(drafted_by(*engine), 60);
  limits.spec.window = WindowArgs{.n_sink = 64, .n_window = 64};
  const auto refused = size(model, limits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("all of a context of 128"), std::string::npos) << refused.error().message;
}

TEST(EagleFlag, IbidsOwnIsOfTheModelThatItWasTrainedOn) {
  const ModelFile own = own_eagle().value();
  EXPECT_EQ(own.meta_string("general.architecture").value(), "eagle");
  EXPECT_EQ(own.meta_string("target_digest").value().size(), 32U);
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .eagle = std::string(kOwnEagle), .k = 4}};
  const auto none = size(model, limits);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no draft head for this model"), std::string::npos) << none.error().message;
  limits.spec.eagle.clear();
  limits.spec.finds_own = true;  // then it is used where it can be
  const auto without = size(model, limits);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_FALSE(without->eagle);
}

TEST(HeadsFlag, FilesOfOtherThingsAreRefused) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  limits.spec.heads = testing::tiny_file(folder, "no_heads.gguf", 260, 2);
  const auto refused = size(model, limits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no Medusa or Hydra head"), std::string::npos) << refused.error().message;
}

// Its memory stands under a name of its own in the plan, and it drafts.
void expect_counted_and_used(const Loaded& with, const std::string& name, const StepLimits& limits) {
  const int64_t sized = EagleHead::sized_bytes(*with.eagle->file, *with.model, *with.stream, with.eagle->sizes).value();
  int64_t counted = 0;
  for (const MemoryPart& part : with.memory.parts)
    counted += part.name.find(name) != std::string::npos ? part.bytes : 0;
  EXPECT_EQ(counted, sized);
  auto engine = start_engine(with, with.engine_options(limits), {.limits = limits}).value();
  EXPECT_GT(drafted_by(*engine), 60);
}

TEST(EagleFlag, MemoryOfAHeadIsCountedAndItDrafts) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const Loaded without = load(model, limits).value();
  limits.spec.eagle = testing::tiny_eagle_path(folder, *without.model);
  const Loaded with = load(model, limits).value();
  ASSERT_TRUE(with.eagle.has_value());
  EXPECT_EQ(with.eagle->sizes.n_blocks, 2 * 128 / 16);
  EXPECT_EQ(with.eagle->sizes.context_len, 128);
  expect_counted_and_used(with, "EAGLE", limits);
  limits.spec.eagle = testing::tiny_file(folder, "no_head.gguf", 260, 2);
  const auto refused = size(model, limits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("of no EAGLE head"), std::string::npos) << refused.error().message;
}

TEST(MtpFlag, TheLayerThatAModelBringsAlongIsCountedAndDrafts) {
  TempFolder folder;
  const ModelArgs model{.model = testing::tiny_with_mtp(folder), .threads = 1};
  StepLimits limits{.max_sequences = 2, .spec = {.finds_own = false, .k = 4}};
  const Loaded without = load(model, limits).value();
  EXPECT_EQ(without.model->config().n_layers, 2);
  limits.spec.mtp = true;
  const Loaded with = load(model, limits).value();
  ASSERT_TRUE(with.eagle.has_value());
  expect_counted_and_used(with, "MTP", limits);
  const ModelArgs other{.model = testing::tiny_file(folder, "target.gguf", 260, 1), .threads = 1};
  const auto refused = size(other, limits);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("brings no MTP layer along"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ibid::host
