// Requests with pictures and without, under schedules: each answers as alone, and pictures are shared by what they
// show.
#include <gtest/gtest.h>

#include <random>

#include "model/vision/prompt_pictures.h"
#include "property/budget.h"
#include "property/tiny_models.h"
#include "source_paths.h"

namespace ibid {
namespace {

using testing::alone;
using testing::Digests;
using testing::LoadedModel;
using testing::Schedule;
using testing::ScheduleRun;

constexpr int32_t kVocab = 80;  // of the golden models, with
constexpr TokenId kCell{70};    // for the cells of pictures

// What a tower might make; the same for the same seed.
std::shared_ptr<const PictureRows> picture(uint64_t seed, int32_t rows, int32_t columns, int32_t row_len) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> draw(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(rows * columns * row_len));
  for (float& value : values) value = draw(random);
  auto out = std::make_shared<PictureRows>();
  out->digest = sha256("picture " + std::to_string(seed));
  out->rows = rows, out->columns = columns, out->row_len = row_len;
  out->values = std::make_shared<const std::vector<float>>(std::move(values));
  return out;
}

class PicturesOfRequests : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<LoadedModel> load(Isa isa, int n_threads) {
    EXPECT_TRUE(select_isa(isa).ok());
    Result<ModelFile> file = ModelFile::open(source_dir() + "/tests/golden/" + GetParam());
    EXPECT_TRUE(file.ok()) << (file ? "" : file.error().message);
    return std::make_unique<LoadedModel>(std::make_shared<const ModelFile>(std::move(file).value()),
                                         ModelOptions{.context_len = 200,
                                                      .step_tokens = testing::kMaxTokens,
                                                      .max_rows = testing::kMaxTokens,
                                                      .max_sequences = testing::kMaxSequences},
                                         n_threads);
  }

  // Equal texts with pictures that differ, equal pictures after texts that differ, two at once, and none.
  static std::vector<Request> requests(const Model& model) {
    const ModelConfig& c = model.config();
    const auto row_len = static_cast<int32_t>(c.width * (1 + c.n_picture_layers));
    const auto one = picture(1, 3, 5, row_len), other = picture(2, 3, 5, row_len), small = picture(3, 2, 2, row_len);
    const auto text = testing::some_tokens(200, 60, 3);
    const auto begin = [&](size_t from, size_t n) {
      return std::vector<TokenId>(text.begin() + static_cast<std::ptrdiff_t>(from),
                                  text.begin() + static_cast<std::ptrdiff_t>(from + n));
    };
    struct Shown {
      size_t before, after;  // tokens
      std::vector<std::shared_ptr<const PictureRows>> pictures;
    };
    const std::vector<Shown> shown = {{21, 12, {one}}, {21, 12, {other}},       {21, 12, {one, small}}, {5, 40, {one}},
                                      {0, 9, {small}}, {30, 7, {small, other}}, {40, 30, {}},           {21, 0, {one}}};
    std::vector<Request> out;
    for (const Shown& s : shown) {
      Request& r = out.emplace_back();
      r.id = RequestId{out.size()};
      r.max_tokens = 8;
      r.sampling.seed = 100 * out.size();
      r.sampling.logprobs = 2;
      r.sampling.ignore_eos = true;
      r.sampling.temperature = out.size() % 3 == 0 ? 0.0f : 1.0f;
      r.n = out.size() == 4 ? 2 : 1;
      r.prompt = begin(0, s.before);
      std::vector<PlacedPicture> placed;
      for (const auto& p : s.pictures) {
        placed.push_back({.first = static_cast<int32_t>(r.prompt.size()), .rows = p});
        r.prompt.insert(r.prompt.end(), static_cast<size_t>(p->n_cells()), kCell);
        const auto after = begin(100, s.after + 1);
        r.prompt.insert(r.prompt.end(), after.begin(), after.end());
      }
      if (placed.empty()) {
        r.prompt = begin(0, s.before + s.after);
      } else {
        r.pictures = std::make_shared<const PromptPictures>(std::move(placed));
      }
    }
    return out;
  }
};

TEST_P(PicturesOfRequests, AnswerTheSameUnderThirtyTwoSchedules) {
  const std::vector<Isa> isas = supported_isas();
  testing::Totals totals;
  Digests expected;
  for (int n_threads = 1; n_threads <= 2; ++n_threads) {
    for (size_t i = 0; i < isas.size(); ++i) {
      const std::unique_ptr<LoadedModel> m = load(isas[isas.size() - 1 - i], n_threads);
      ASSERT_NE(m->model, nullptr);
      const std::vector<Request> all = requests(*m->model);
      if (expected.empty()) {
        expected = alone(*m->model, *m->stream, nullptr, DType::kF16, testing::kMaxTokens, all);
        for (const std::string& digest : expected) note_bits(digest);
        EXPECT_GE(std::set<std::string>(expected.begin(), expected.end()).size(), expected.size() - 1);
      }
      const uint64_t n_schedules = i == 0 ? 14 : 2;
      for (uint64_t k = 0; k < n_schedules; ++k) {
        const uint64_t seed = 81000 + 100 * static_cast<uint64_t>(n_threads) + 16 * i + k;
        Schedule schedule = testing::random_schedule(seed, testing::kMaxTokens, testing::kMaxSequences);
        if (k == 0) schedule.preempt_at = 4;
        if (m->model->config().sees_whole_pictures())  // a step has room for a picture beside decodes
          schedule.step_tokens = std::max(schedule.step_tokens, schedule.max_sequences + 15);
        schedule.is_recorded = k % 5 == 0;
        ScheduleRun run(*m->model, *m->stream, nullptr, DType::kF16, schedule, all);
        EXPECT_EQ(run.run(&totals), expected) << spelled(schedule);
        EXPECT_EQ(run.differences(), std::vector<std::string>()) << spelled(schedule);
        totals.n_replays += run.n_replays();
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(totals.n_schedules, 28);
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_replays, 2) << "of records";
}

TEST_P(PicturesOfRequests, BlocksAreSharedWithTheSamePicturesAlone) {
  const std::unique_ptr<LoadedModel> m = load(supported_isas().back(), 1);
  auto engine = Engine::create(*m->model, nullptr, *m->stream, {.step_tokens = 128, .max_sequences = 2}).value();
  const std::vector<Request> all = requests(*m->model);
  uint64_t id = 100;
  const auto cached = [&](const Request& request, bool again = false) {
    Request r = request;
    r.id = RequestId{++id};
    r.n = 1;
    if (again) {  // the same picture, decoded once more
      auto copy = std::make_shared<PictureRows>(*r.pictures->all().front().rows);
      r.pictures = std::make_shared<const PromptPictures>(
          std::vector<PlacedPicture>{{.first = r.pictures->all().front().first, .rows = copy}});
    }
    EXPECT_TRUE(engine->submit(std::move(r)).ok());
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    EXPECT_TRUE(out.back().finished);
    return out.back().usage.cached_tokens;
  };
  const bool has_states = m->model->state_layout().slot_bytes() > 0;  // which resume after snapshots alone
  const int32_t n_text = 21;
  EXPECT_EQ(cached(all[0]), 0);
  const int32_t of_text = cached(all[1]);
  EXPECT_LE(of_text, n_text) << "the text before another picture, and none of its cells";
  EXPECT_GE(of_text, has_states ? 0 : n_text);
  EXPECT_GE(cached(all[0], true), n_text + 15);
  EXPECT_GE(cached(all[7]), has_states ? 0 : n_text + 14) << "up to its last cell";
}

INSTANTIATE_TEST_SUITE_P(Models, PicturesOfRequests,
                         ::testing::Values("qwen3vl_vision", "qwen35_vision", "gemma3_vision", "gemma4_vision",
                                           "gemma4_large_vision"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace ibid
