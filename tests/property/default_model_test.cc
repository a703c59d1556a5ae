// The promise on a real model: 8 requests under random schedules, with text, stop strings and every KV dtype.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/cache_folder.h"
#include "format/gguf_vocabulary.h"
#include "kernels/isa.h"
#include "property/budget.h"
#include "schedules.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

using testing::Digests;
using testing::Schedule;
using testing::ScheduleRun;

constexpr int32_t kContext = 512;
constexpr int32_t kMaxTokens = 256;
constexpr int32_t kMaxSequences = 8;
constexpr const char* kSystem =
    "<|im_start|>system\nYou are a careful assistant who answers in one short paragraph, in plain words.<|im_end|>\n";

std::string default_model_path() {
  if (const char* given = std::getenv("IBID_MODEL")) return given;
  return cache_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct Default {
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;
  struct Loaded {
    std::unique_ptr<ThreadTeam> team;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Model> model;
  };
  std::map<std::pair<Isa, int>, Loaded> loaded;

  Loaded& load(Isa isa, int n_threads) {
    EXPECT_TRUE(select_isa(isa).ok());
    Loaded& l = loaded[{isa, n_threads}];
    if (l.model) return l;
    l.team = std::make_unique<ThreadTeam>(n_threads);
    l.stream = std::make_unique<Stream>(*l.team);
    const ModelOptions options = {
        .context_len = kContext, .step_tokens = kMaxTokens, .max_rows = kMaxSequences, .max_sequences = kMaxSequences};
    l.model = load_model(file, options, *l.stream).value();
    return l;
  }
};

std::vector<Request> requests_for(const Tokenizer& tokenizer) {
  const char* questions[] = {"Why is the sky blue?",
                             "Write three sentences about a lighthouse keeper.",
                             "What is the capital of France?",
                             "Explain photosynthesis to a child.",
                             "List five fruits.",
                             "Why is the sea salty?",
                             "Tell me a joke about cats.",
                             "How does a bicycle stay upright?"};
  std::vector<Request> out;
  for (const char* question : questions) {
    Request r;
    r.id = RequestId{out.size() + 1};
    const std::string text =
        std::string(kSystem) + "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n";
    r.prompt = tokenizer.encode(text, {.parse_special = true});
    r.max_tokens = 24;
    r.sampling.seed = 40 + out.size();
    r.sampling.logprobs = 3;
    out.push_back(std::move(r));
  }
  out[0].sampling.temperature = 0;
  out[1].n = 2;
  out[2].sampling.temperature = 0;
  out[2].stops = StopSet::compile({".", "\n"}).value();
  out[3].sampling.top_p = 0.9f;
  out[3].sampling.temperature = 0.7f;
  out[4].sampling.repetition_penalty = 1.1f;
  out[4].stops = StopSet::compile({"3."}).value();
  out[5].prompt_logprobs = 1;
  out[6].sampling.min_p = 0.05f;
  out[7].sampling.top_k = 40;
  return out;
}

class SlowDefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = default_model_path();
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "no model at " << path << "; ./quickstart fetches it, or IBID_MODEL names another";
    }
    file_.file = std::make_shared<const ModelFile>(ModelFile::open(path).value());
    file_.tokenizer = Tokenizer::from_vocabulary(vocabulary_from_gguf(*file_.file).value()).value();
  }
  void TearDown() override { EXPECT_TRUE(select_isa(supported_isas().back()).ok()); }
  Default file_;
};

TEST_F(SlowDefaultModel, AnswersTheSameUnderAnySchedule) {
  const std::vector<Request> requests = requests_for(*file_.tokenizer);
  const std::vector<Isa> isas = supported_isas();
  const KvTypes kKvDtypes[] = {KvType::kF16, KvType::kF32, KvType::kBF16, {KvType::kI8, KvType::kI4}, KvType::kI4};
  std::map<std::string, Digests> expected;
  testing::Totals totals;
  const auto n_schedules = static_cast<uint64_t>(testing::n_cases(64));
  for (uint64_t seed = 1; seed <= n_schedules; ++seed) {
    const KvTypes kv_dtype = kKvDtypes[seed % std::size(kKvDtypes)];
    if (!expected.contains(kv_dtype.name())) {
      Default::Loaded& l = file_.load(isas.back(), 2);
      expected[kv_dtype.name()] = testing::alone(*l.model, *l.stream, file_.tokenizer, kv_dtype, kMaxTokens, requests);
    }
    // The best table mostly, each other one now and then.
    const Isa isa = seed % 16 == 15 ? isas.front() : seed % 4 == 2 ? isas[isas.size() / 2] : isas.back();
    const int n_threads = seed % 4 == 1 ? 1 : 2;
    Default::Loaded& l = file_.load(isa, n_threads);
    const Schedule schedule = testing::random_schedule(seed, kMaxTokens, kMaxSequences);
    const Digests actual = ScheduleRun(*l.model, *l.stream, file_.tokenizer, kv_dtype, schedule, requests).run(&totals);
    ASSERT_EQ(actual, expected[kv_dtype.name()])
        << spelled(schedule) << ", " << isa_name(isa) << ", threads " << n_threads;
  }
  printf("%llu schedules of %zu requests: %lld steps, %lld preemptions, %lld prompt tokens from the cache\n",
         static_cast<unsigned long long>(n_schedules), requests.size(), static_cast<long long>(totals.n_steps),
         static_cast<long long>(totals.n_preemptions), static_cast<long long>(totals.cached_tokens));
  EXPECT_GT(totals.n_preemptions, 0);
  EXPECT_GT(totals.cached_tokens, 0);
  EXPECT_GT(totals.n_accepted, 0);
}

// Answers that repeat the prompt or themselves take fewer steps; others take no more, with few rejected drafts. Counts
// do not depend on the machine: time stands still, and rows are priced by estimate. bench/speculation_bench.cc measures
// the times.
TEST_F(SlowDefaultModel, RepeatedTextTakesFewerSteps) {
  constexpr const char* kMeeting =
      "Meeting of the garden club, 4 May. Present: Ruth Okafor (chair), Emil Brandt (treasurer), Sofia Pereira. The "
      "treasurer reported that the club has 1,240 pounds. Sofia proposed to plant a hedge along the north fence.\n";
  struct Case {
    std::string text;
    double least, most_refused;  // tokens per step; rejected drafts, over all steps
  };
  const Case cases[] = {
      {std::string(kMeeting) + "Repeat this text and write every number in words.", 2.0, 1.0},
      {std::string(kMeeting) + "List the persons as a JSON array of objects with the keys name and role.", 1.2, 0.6},
      {"Write a Python class Stack with the methods push, pop, peek, is_empty and size.", 1.2, 0.5},
      {"Explain to a child why the sky is blue.", 1.0, 0.4}};
  Default::Loaded& l = file_.load(supported_isas().back(), 2);
  for (const Case& c : cases) {
    int64_t n_steps[2] = {};
    std::vector<TokenId> said[2];
    for (const bool drafts : {false, true}) {
      const ManualClock clock;
      EngineOptions options;
      options.max_sequences = 1;
      options.step_tokens = kMaxTokens;
      options.max_drafts = drafts ? kMaxSequences - 1 : 0;
      auto engine = Engine::create(*l.model, file_.tokenizer, *l.stream, options, clock).value();
      Request r;
      r.id = RequestId{1};
      r.prompt = file_.tokenizer->encode(
          std::string(kSystem) + "<|im_start|>user\n" + c.text + "<|im_end|>\n<|im_start|>assistant\n",
          {.parse_special = true});
      r.max_tokens = 128;
      r.sampling.temperature = 0;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
      std::vector<Output> out;
      while (engine->step(out)) {
      }
      for (const Output& o : out)
        for (const TokenRecord& t : o.tokens) said[drafts].push_back(t.chosen.token);
      const EngineStats stats = engine->stats();
      n_steps[drafts] = stats.n_steps;
      if (!drafts) continue;
      const auto steps = static_cast<double>(stats.n_steps);
      const double refused = static_cast<double>(stats.drafted_tokens - stats.accepted_tokens) / steps;
      EXPECT_GE(static_cast<double>(n_steps[0]) / steps, c.least) << c.text;
      EXPECT_LE(refused, c.most_refused) << c.text;
      printf("%.2f tokens a step, %.2f drafts in vain: %s\n", static_cast<double>(n_steps[0]) / steps, refused,
             c.text.c_str());
    }
    EXPECT_EQ(said[0], said[1]) << c.text;
  }
}

}  // namespace
}  // namespace ibid
