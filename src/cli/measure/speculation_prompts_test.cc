// What docs/measurements/speculation.md states of the 40 prompts of bench/prompts/speculation.txt, as counts: the
// default model's answers are the same bytes everywhere, so what drafts bring of them is a number and no clock's.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/cache_folder.h"
#include "cli/measure/draft_measures.h"
#include "cli/measure/draft_prompts.h"
#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "host/host.h"
#include "source_paths.h"
#include "spec/lookup/free_proposers.h"

namespace ibid::cli {
namespace {

constexpr int32_t kTokens = 128, kMostDrafts = 8, kAtOnce = 20;
// What steps of 1 to 9 rows take there, on two quiet threads (docs/measurements/speculation.md, "Lookup"): 2, 4 and 8
// rows were measured at 1.12, 1.48 and 2.14, and between and beyond them lies a straight line.
const std::vector<double> kRows = {1, 1.12, 1.30, 1.48, 1.645, 1.81, 1.975, 2.14, 2.305};

struct Asked {
  std::string kind;
  std::vector<TokenId> prompt, answer;
};

// The model that is there already, or none: a test fetches nothing.
std::string default_model() {
  const char* given = std::getenv("IBID_MODEL");
  const std::string path = given != nullptr ? given : cache_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : "";
}

std::vector<Asked> asked(const host::Loaded& loaded) {
  const ChatTemplate chat = host::load_template(*loaded.file, *loaded.tokenizer).value();
  std::vector<Asked> out;
  for (const DraftPrompt& p : draft_prompts(text_of_file(source_dir() + "/bench/prompts/speculation.txt").value()))
    out.push_back({p.kind, prompt_tokens(chat, *loaded.tokenizer, p.text).value(), {}});
  return out;
}

// Prompt i has seed i + 1, as in bench/speculation_bench.
void answer_all(const host::Loaded& loaded, const host::StepLimits& limits, float temperature,
                std::vector<Asked>& all) {
  EngineOptions options = loaded.engine_options(limits);
  options.prefix_cache = false;
  options.max_itl = 1e6;
  options.kv_bytes = loaded.kv_bytes_for(kAtOnce, 640, options.block_len);
  const auto engine = host::start_engine(loaded, options).value();
  for (size_t i = 0; i < all.size(); ++i) {
    Request r;
    r.id = RequestId{i + 1};
    r.prompt = all[i].prompt;
    r.max_tokens = kTokens;
    r.sampling.temperature = temperature;
    r.sampling.seed = i + 1;
    ASSERT_TRUE(engine->submit(std::move(r)).ok());
  }
  std::vector<Output> outputs;
  while (engine->step(outputs)) {
    for (const Output& o : outputs) {
      for (const TokenRecord& t : o.tokens) all[static_cast<size_t>(o.request) - 1].answer.push_back(t.chosen.token);
    }
    outputs.clear();
  }
}

// What the look-up drafts after each token of it.
DraftedText drafted(const ModelFacts& facts, const Asked& text, float temperature) {
  const auto lookup = free_proposers(facts, 1);
  DraftedText out{.answer = text.answer, .drafts = {{}}};
  for (size_t at = 1; at < text.answer.size(); ++at) {
    Drafts drafts;
    const int32_t most = std::min(kMostDrafts, kTokens - static_cast<int32_t>(at) - 1);
    if (most > 0) {
      lookup->begin_step({});
      lookup->propose({.sequence = 1,
                       .prompt = text.prompt,
                       .answer = std::span(text.answer).first(at),
                       .max_drafts = most,
                       .temperature = temperature},
                      drafts);
    }
    out.drafts[0].push_back({drafts.tokens, drafts.likely});
  }
  return out;
}

class SlowSpeculationPrompts : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = default_model();
    if (model_.empty()) GTEST_SKIP() << "the default model is not in the cache (`ibid pull default` fetches it)";
  }
  std::string model_;
};

struct Floors {  // of tokens a step
  double code, edit, summary, json, chat, all, times, worst;
};

TEST_F(SlowSpeculationPrompts, GiveAsManyTokensPerStepAsThePageStates) {
  const host::StepLimits limits{.step_tokens = 512, .max_sequences = kAtOnce, .max_waiting = 64};
  const host::Loaded loaded = host::load({.model = model_, .context_len = 1024}, limits).value();
  const ModelFacts facts = {.vocab_size = static_cast<int32_t>(loaded.model->config().vocab_size),
                            .context_len = loaded.context_len,
                            .end_of_generation = loaded.engine_options(limits).end_of_generation};
  for (const auto& [temperature, floors] : {std::pair{0.0F, Floors{1.45, 2.45, 1.42, 2.15, 1.16, 1.62, 1.35, 0.97}},
                                            std::pair{0.8F, Floors{1.25, 1.22, 1.13, 1.27, 1.03, 1.18, 1.10, 0.97}}}) {
    std::vector<Asked> all = asked(loaded);
    ASSERT_EQ(all.size(), 40u);
    answer_all(loaded, limits, temperature, all);
    std::map<std::string, DraftMeasures> kinds;
    double worst = 1e9;
    for (const Asked& text : all) {
      ASSERT_FALSE(text.answer.empty());
      const DraftedText with = drafted(facts, text, temperature);
      for (const std::string& kind : {text.kind, std::string("all")}) {
        DraftMeasures& sum = kinds[kind];
        sum.names = {"ngram"}, sum.costs = {0}, sum.rows = kRows;
        sum.texts.push_back(with);
      }
      const DraftGain one = gain_of({.names = {"ngram"}, .costs = {0}, .rows = kRows, .texts = {with}}, 0, kMostDrafts);
      EXPECT_GE(one.times, floors.worst) << text.kind << ", T = " << temperature;
      worst = std::min(worst, one.times);
    }
    for (const auto& [kind, least] : {std::pair{"code", floors.code},
                                      {"edit", floors.edit},
                                      {"summary", floors.summary},
                                      {"json", floors.json},
                                      {"chat", floors.chat},
                                      {"all", floors.all}}) {
      const DraftGain gain = gain_of(kinds[kind], 0, kMostDrafts);
      std::printf("T = %.1f, %s: %.3f tokens a step, %.2f drafts, %.3f times as fast by steps\n",
                  static_cast<double>(temperature), kind, gain.tokens, gain.verified, gain.times);
      EXPECT_GE(gain.tokens, least) << kind << ", T = " << temperature;
    }
    std::printf("T = %.1f: the worst answer %.3f times as fast by steps\n", static_cast<double>(temperature), worst);
    EXPECT_GE(gain_of(kinds["all"], 0, kMostDrafts).times, floors.times) << "T = " << temperature;
  }
}

// The least of what is enough, found by halving what lies between none and twice `draft`.
template <typename IsEnough>
int64_t least_memory(const IsEnough& is_enough, int64_t draft) {
  int64_t below = 0, enough = 2 * draft;
  while (enough - below > 1) {
    const int64_t between = below + (enough - below) / 2;
    (is_enough(between) ? enough : below) = between;
  }
  return enough;
}

// Without a word of the flag, and counted; by the look-up alone where that is asked.
TEST_F(SlowSpeculationPrompts, OwnHeadIsOnByDefault) {
  const auto limits = [](const SpecArgs& spec) {
    return host::StepLimits{.step_tokens = 512, .max_sequences = 1, .spec = spec};
  };
  ModelArgs args{.model = model_, .context_len = 1024, .process_bytes = int64_t{64} << 20};
  const host::Loaded by_default = size(args, limits({})).value();
  ASSERT_TRUE(by_default.eagle);
  const host::Loaded alone = size(args, limits({.finds_own = false})).value();
  EXPECT_FALSE(alone.eagle);
  EXPECT_FALSE(size(args, limits({.by_lookup = false})).value().eagle);
  EXPECT_EQ(by_default.memory.parts.size(), alone.memory.parts.size() + 2);  // itself, and its keys and values
  // Memory that has room for it, and a little less.
  const auto fits = [&](int64_t bytes) {
    args.memory_bytes = bytes;
    return size(args, limits({}));
  };
  const int64_t least = least_memory([&](int64_t bytes) { return fits(bytes).ok(); }, by_default.memory.total());
  EXPECT_FALSE(fits(least)->eagle);
  EXPECT_FALSE(fits(least - 1));
  EXPECT_TRUE(fits(least + by_default.memory.total() - alone.memory.total())->eagle);
}

// Of ibid's own head, on prompts that share nothing with what it was trained on: a tap of another layer, a norm that is
// left out or a table of ids that is off would leave next to nothing of this.
TEST_F(SlowSpeculationPrompts, OwnHeadIsRightAsOftenAsItWas) {
  host::StepLimits limits{
      .step_tokens = 512, .max_sequences = 1, .spec = {.finds_own = false, .eagle = std::string(kOwnEagle), .k = 2}};
  limits.draft_chains = true;
  const host::Loaded loaded = host::load({.model = model_, .context_len = 1024}, limits).value();
  for (const auto& [temperature, least] : {std::pair{0.0F, 0.38}, std::pair{0.8F, 0.33}}) {
    DraftRun run{.n_tokens = 48, .temperature = temperature};
    std::vector<std::string> kinds;
    const std::vector<Asked> all = asked(loaded);
    for (size_t i = 0; i < all.size(); i += 2) run.prompts.push_back(all[i].prompt), kinds.push_back(all[i].kind);
    const DraftMeasures measured = measure_drafts(loaded, limits, "eagle", run).value();
    for (const char* kind : {"code", "edit", "summary", "json", "chat"}) {
      DraftMeasures of_kind{.names = measured.names, .costs = measured.costs, .rows = measured.rows};
      for (size_t i = 0; i < kinds.size(); ++i) {
        if (kinds[i] == kind) of_kind.texts.push_back(measured.texts[i]);
      }
      std::printf("T = %.1f, %s: first drafts right: look-up %.3f, head %.3f\n", static_cast<double>(temperature), kind,
                  right_by_place(of_kind, 0)[0], right_by_place(of_kind, 1)[0]);
    }
    const std::vector<double> right = right_by_place(measured, 1);
    ASSERT_GE(right.size(), 2u);
    std::printf("T = %.1f: of the head's drafts .%03.0f, then .%03.0f are right\n", static_cast<double>(temperature),
                1e3 * right[0], 1e3 * right[1]);
    EXPECT_GE(right[0], least) << "T = " << temperature;
    EXPECT_GT(right[1], 0.2) << "T = " << temperature;
  }
}

}  // namespace
}  // namespace ibid::cli
