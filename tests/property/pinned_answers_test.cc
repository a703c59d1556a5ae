// Forty requests to each architecture that there is, under eight schedules, small enough for an emulated machine:
// tests/house/arm64.sh holds 64-bit ARM to the digests of x86 (tests/pinned_bits.txt).
#include "engine/engine.h"
#include "property/tiny_models.h"

namespace ibid {
namespace {

using testing::kMaxTokens;
using testing::kVocabSize;
using testing::LoadedModel;
using testing::TinyModels;

constexpr size_t kRequests = 40;
#if defined(__aarch64__)  // emulated (tests/house/arm64.sh): one for each table; the digests are of the answers alone
constexpr uint64_t kSchedules = 3;
#else
constexpr uint64_t kSchedules = 8;
#endif

class PinnedAnswers : public ::testing::TestWithParam<std::string_view> {};

// Short ones but for the last, whose answer crosses into the second piece of attention.
std::vector<Request> forty_requests(uint64_t seed) {
  auto out =
      testing::many_requests(kVocabSize, kRequests, seed, {.prompt = 16, .long_prompt = 48, .own = 8, .answer = 6});
  Request& last = out.back();
  last.prompt = testing::some_tokens(253, kVocabSize, 40);
  last.max_tokens = 6;
  last.n = 1;
  last.prompt_logprobs = -1;
  last.sampling.ignore_eos = true;
  return out;
}

TEST_P(PinnedAnswers, ToFortyRequestsUnderEightSchedules) {
  // One family of weights for each: quantised, of floats, of superblocks, of a table of codes.
  const std::map<std::string_view, std::pair<DType, DType>> dtypes = {
      {"llama", {DType::kQ4_0, DType::kF16}},          {"mistral", {DType::kQ8_0, DType::kBF16}},
      {"qwen2", {DType::kBF16, DType::kF16}},          {"qwen3", {DType::kQ4_K, DType::kF32}},
      {"smollm3", {DType::kF16, DType::kF16}},         {"phi3", {DType::kMXFP4, DType::kBF16}},
      {"gemma3", {DType::kQ4_1, DType::kF16}},         {"qwen3moe", {DType::kQ4_K, DType::kF16}},
      {"qwen2moe", {DType::kBF16, DType::kF32}},       {"glm4moe", {DType::kQ8_0, DType::kBF16}},
      {"lfm2", {DType::kQ8_0, DType::kF16}},           {"qwen35", {DType::kQ4_0, DType::kF16}},
      {"qwen3next", {DType::kBF16, DType::kF32}},      {"ministral3", {DType::kQ8_0, DType::kF32}},
      {"olmo3", {DType::kF16, DType::kBF16}},          {"gemma4", {DType::kQ4_K, DType::kF16}},
      {"glm4", {DType::kQ4_0, DType::kBF16}},          {"cohere2", {DType::kBF16, DType::kF16}},
      {"nemotron", {DType::kQ5_K, DType::kF16}},       {"gpt2", {DType::kQ8_0, DType::kBF16}},
      {"bloom", {DType::kQ5_0, DType::kF16}},          {"mpt", {DType::kIQ4_NL, DType::kF32}},
      {"gpt_oss", {DType::kMXFP4, DType::kF16}},       {"deepseek2", {DType::kQ8_0, DType::kF16}},
      {"granitehybrid", {DType::kQ8_0, DType::kF16}},  {"nemotron_h", {DType::kQ4_0, DType::kBF16}},
      {"nemotron_h_moe", {DType::kQ4_K, DType::kF16}}, {"falcon_h1", {DType::kBF16, DType::kF32}},
      {"muse_glimmer", {DType::kQ4_1, DType::kBF16}},
  };
  const auto architectures = testing::tiny_architectures();
  const auto index = static_cast<uint64_t>(std::ranges::find(architectures, GetParam()) - architectures.begin());
  const uint64_t seed = 46001 + 100 * index;
  const auto& [dtype, kv_dtype] = dtypes.at(GetParam());
  testing::Totals totals;
  testing::hold_to_schedules(GetParam(), dtype, kv_dtype, seed, kSchedules, 1000, totals, forty_requests(seed));
  EXPECT_EQ(totals.n_schedules, static_cast<int64_t>(kSchedules));
  if (kSchedules > 3) {
    EXPECT_GT(totals.cached_tokens, 0);
  }
}
const auto kArchitecture = [](const auto& param_info) { return std::string(param_info.param); };
INSTANTIATE_TEST_SUITE_P(Architectures, PinnedAnswers, ::testing::ValuesIn(testing::each_kind()), kArchitecture);
INSTANTIATE_TEST_SUITE_P(MoreArchitectures, PinnedAnswers, ::testing::ValuesIn(testing::all_but_each_kind()),
                         kArchitecture);

// An encoder has no answers: the vectors and scores of its sequences must be the same for steps of any size, in any
// order.
class Encoder {
 public:
  Encoder(LoadedModel& m, int32_t step_tokens)
      : core_(Engine::create(*m.model, nullptr, *m.stream, {.step_tokens = step_tokens, .max_sequences = 8},
                             steady_clock())
                  .value()) {}
  // The bits of each sequence's result; each is submitted up to steps_between steps after the one before.
  std::map<RequestId, std::vector<float>> run(const std::vector<Request>& texts, std::mt19937_64& random,
                                              uint64_t steps_between) {
    std::map<RequestId, std::vector<float>> said;
    std::vector<Output> out;
    const auto turn = [&] {
      out.clear();
      const bool busy = core_->step(out);
      for (Output& o : out) {
        EXPECT_EQ(o.reason, FinishReason::kStop);
        said[o.request] = std::move(o.ending->embedding);
      }
      return busy;
    };
    for (const Request& text : texts) {
      EXPECT_TRUE(core_->submit(text).ok());
      for (uint64_t i = random() % (steps_between + 1); i > 0; --i) turn();
    }
    while (turn()) {
    }
    return said;
  }

 private:
  std::unique_ptr<Engine> core_;
};

TEST(PinnedVectors, OfFortyTextsUnderEightSchedules) {
  constexpr Pooling kPoolings[] = {Pooling::kMean, Pooling::kLast, Pooling::kFirst, Pooling::kRank, Pooling::kEach};
  constexpr int32_t kLongest = 300;
  TinyModels models("bert_rank", DType::kQ8_0, kLongest);
  std::mt19937_64 random(1);
  std::vector<Request> texts(kRequests);
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].id = RequestId{i + 1};
    const int64_t len = i == 0 ? kLongest : 2 + static_cast<int64_t>(random() % (i % 6 == 0 ? 70 : 20));
    texts[i].prompt = testing::some_tokens(len, kVocabSize, i);
    texts[i].max_tokens = 0;
    texts[i].pooling = kPoolings[i % std::size(kPoolings)];
    if (texts[i].pooling == Pooling::kRank) texts[i].second_text = static_cast<int32_t>(len / 2);
  }
  std::map<RequestId, std::vector<float>> expected;
  Encoder lonely(models.load(TinyModels::best(), 1), kMaxTokens);
  for (const Request& text : texts) expected.merge(lonely.run({text}, random, 0));
  ASSERT_EQ(expected.size(), kRequests);
  for (const auto& [id, vector] : expected) {
    note_bits(vector);
  }
  const std::vector<Isa> isas = supported_isas();
  for (uint64_t i = 0; i < kSchedules; ++i) {
    const Isa isa = isas.size() == 1 ? isas.front() : isas[1 + i % (isas.size() - 1)];
    const int n_threads = 1 + static_cast<int>(i / 2 % 2);
    Encoder encoder(models.load(isa, n_threads), kLongest + static_cast<int32_t>(random() % 20));
    std::ranges::shuffle(texts, random);
    EXPECT_EQ(encoder.run(texts, random, i % 4), expected)
        << "schedule " << i << ", " << isa_name(isa) << ", threads " << n_threads;
  }
}

}  // namespace
}  // namespace ibid
