// The engine over a model whose layers keep different state (model/testing/hand_made.h): blocks of every layer are
// shared, copied, evicted and recomputed, and an answer is that of the request alone.
#include <gtest/gtest.h>

#include "model/testing/hand_made.h"
#include "model/testing/loaded_model.h"
#include "model/testing/mixed_layers.h"
#include "property/schedules.h"

namespace ibid {
namespace {

using namespace testing::hand_made;

std::vector<Request> requests() {
  std::vector<Request> out;
  for (uint64_t i = 0; i < 4; ++i) {
    Request r;
    r.id = RequestId{i + 1};
    r.prompt = testing::some_tokens(40, kVocab);
    const std::vector<TokenId> own = testing::some_tokens(5 + 11 * static_cast<int64_t>(i), kVocab, i + 7);
    r.prompt.insert(r.prompt.end(), own.begin(), own.end());
    r.max_tokens = 12;
    r.n = i == 1 ? 3 : 1;
    r.sampling.seed = 100 * i;
    out.push_back(r);
  }
  return out;
}

void expect_own_answers(Model& model, Stream& stream) {
  testing::Totals totals;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const testing::Digests expected = testing::alone(model, stream, nullptr, dtype, kSteps, requests());
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const testing::Schedule schedule = testing::random_schedule(seed, kSteps, 8);
      const testing::Digests actual =
          testing::ScheduleRun(model, stream, nullptr, dtype, schedule, requests()).run(&totals);
      ASSERT_EQ(actual, expected) << spelled(schedule);
    }
  }
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
}

TEST(KvOfEachLayer, AnswersAreTheRequestsOwnUnderAnySchedule) {
  Matrices matrices;
  ThreadTeam team(2);
  Stream stream(team);
  HandMade model(matrices, stream);
  expect_own_answers(model, stream);
}

// The same model with a recurrent layer: its states are found, forked, snapshotted, kept on a host and a disk.
TEST(StateOfALayer, AnswersAreTheRequestsOwnUnderAnySchedule) {
  Matrices matrices;
  ThreadTeam team(2);
  Stream stream(team);
  HandMade model(matrices, stream, true);
  expect_own_answers(model, stream);
}

// Layers that differ within the blocks that real models are made of (model/testing/mixed_layers.h).
TEST(MixedLayers, AnswersAreTheRequestsOwnUnderAnySchedule) {
  ThreadTeam team(2);
  Stream stream(team);
  const std::unique_ptr<Model> model =
      testing::mixed_model(stream, {.dtype = DType::kF16, .with_norms = true, .context_len = kContext},
                           {.step_tokens = kSteps, .max_rows = kSteps});
  expect_own_answers(*model, stream);
}

TEST(KvOfEachLayer, EngineKnowsTheKvOfEachLayer) {
  Matrices matrices;
  ThreadTeam team(1);
  Stream stream(team);
  HandMade model(matrices, stream);
  const ModelPass pass(model, stream, {}, "");
  ASSERT_EQ(pass.facts().layers.size(), size_t{kLayers});
  for (size_t l = 0; l < kLayers; ++l) {
    EXPECT_EQ(pass.facts().layers[l].n_kv_heads, kGeometry[l].n_kv_heads);
    EXPECT_EQ(pass.facts().layers[l].key_len, kGeometry[l].key_len);
    EXPECT_EQ(pass.facts().layers[l].value_len, kGeometry[l].value_len);
    EXPECT_EQ(pass.facts().layers[l].kind, kGeometry[l].kind);
    EXPECT_EQ(pass.facts().layers[l].owner, kGeometry[l].owner);
  }
  EXPECT_EQ(pass.facts().window, 0) << "some layer reads all";
  EXPECT_EQ(KvStore::block_bytes(pass.facts(), DType::kF16, 16), 2 * 16 * kElementsOfToken);
}

// Blocks before the widest window may be released if every layer that keeps tokens has a window.
class HasWindowsAlone final : public HandMade {
 public:
  using HandMade::HandMade;
  KvGeometry kv_geometry(int layer) const override {
    KvGeometry geometry = kGeometry[layer];
    if (attends(layer)) geometry.window = 4 + layer;
    return geometry;
  }
};

TEST(KvOfEachLayer, ALayerThatKeepsNothingHoldsNoBlocks) {
  Matrices matrices;
  ThreadTeam team(1);
  Stream stream(team);
  HasWindowsAlone model(matrices, stream);
  EXPECT_EQ(ModelPass(model, stream, {}, "").facts().window, 4 + 4);
}

}  // namespace
}  // namespace ibid
