#include "cli/options/sampling_flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/options/command_line.h"
#include "format/model_file.h"
#include "sample/sampling_digest.h"

namespace ibid::cli {
namespace {

struct Parsed {
  SamplingFlags flags;
  std::string error;
};

Parsed parse(const std::string& text, SamplingScope scope = SamplingScope::kAll) {
  Parsed out;
  CLI::App app;
  add_sampling_options(&app, out.flags, scope);
  try {
    app.parse(text);
  } catch (const CLI::ParseError& e) {
    out.error = e.what();
  }
  return out;
}

std::string json(SamplingFlags flags) { return Json(std::move(flags)).text(); }

TEST(SamplingFlags, AreFieldsOfTheApi) {
  const Parsed p = parse(
      "--temp 0.5 --top-k -1 --min-p 0.05 --repeat-penalty 1.1 --mirostat 2 --mirostat-tau 3 --dry-multiplier 0.8 "
      "--stop a --stop 'b c' --stop-token-ids [3,4] --logit-bias '{\"5\":-1}' --ignore-eos --min-tokens 2");
  ASSERT_EQ(p.error, "");
  Json::Object body = p.flags;
  body.emplace_back("prompt", Json(std::string("x")));
  const Result<ApiRequest> r = parse_api_request(Endpoint::kCompletions, Json(std::move(body)), {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->sampling.temperature, 0.5f);
  EXPECT_EQ(r->sampling.top_k, 0);
  EXPECT_EQ(r->sampling.min_p, 0.05f);
  EXPECT_EQ(r->sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(r->sampling.mirostat, 2);
  EXPECT_EQ(r->sampling.dry_multiplier, 0.8f);
  EXPECT_EQ(r->stop, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(r->stop_ids.size(), 2u);
  EXPECT_EQ(r->sampling.logit_bias.size(), 1u);
  EXPECT_TRUE(r->sampling.ignore_eos);
  EXPECT_EQ(r->sampling.min_tokens, 2);
}

// A sampler that the API learns is a flag of both commands at once.
TEST(SamplingFlags, EveryFieldThatControlsSamplingHasAFlag) {
  SamplingFlags flags;
  CLI::App run, serve;
  add_sampling_options(&run, flags, SamplingScope::kAll);
  add_sampling_options(&serve, flags, SamplingScope::kDefaults);
  const std::set<std::string> others = {"seed", "logprobs", "top_logprobs", "n_probs", "processed_logprobs"};
  int n_run = 0, n_serve = 0;
  for (const Parameter& p : parameters()) {
    if (!samples(p) || others.contains(p.name)) continue;
    std::string flag = "--" + std::string(p.name);
    std::ranges::replace(flag, '_', '-');
    EXPECT_NE(run.get_option_no_throw(flag), nullptr) << flag;
    ++n_run;
    const bool is_number = p.type == FieldType::kNumber || p.type == FieldType::kInteger;
    n_serve += is_number;
    const bool expected = is_number && std::string(p.name) != "min_tokens";
    EXPECT_EQ(serve.get_option_no_throw(flag) != nullptr, expected) << flag;
  }
  EXPECT_GT(n_run, 25);
  EXPECT_GT(n_serve, 20);
  EXPECT_NE(run.get_option_no_throw("--temp"), nullptr);
}

TEST(SamplingFlags, WrongValueHasTheApisError) {
  EXPECT_EQ(parse("--temp hot").error, "--temp: temperature must be a number from 0 to 100, not \"hot\".");
  EXPECT_EQ(parse("--top-p 1.5").error, "--top-p: top_p must be a number from 0 to 1, not 1.5.");
  EXPECT_EQ(parse("--top-k 2.5").error, "--top-k: top_k must be a whole number from -1 to 2147483647, not 2.5.");
  for (const char* wrong : {"nan", "inf", "1e999", "0x1", "0,5", "true", "[1]", "null "})
    EXPECT_NE(parse(std::string("--temp ") + wrong).error, "") << wrong;
  EXPECT_NE(parse("--logit-bias 5").error, "");
  EXPECT_NE(parse("--stop ''").error, "");
}

TEST(SamplingFlags, ALaterValueTakesThePlaceOfAnEarlierOne) {
  SamplingFlags flags;
  const Parameter& temperature = *find_parameter("temperature");
  ASSERT_TRUE(set_sampling(flags, temperature, "0.5").ok());
  ASSERT_TRUE(set_sampling(flags, temperature, "0.25").ok());
  EXPECT_FALSE(set_sampling(flags, temperature, "much").ok());
  EXPECT_EQ(json(flags), R"({"temperature":0.25})");
}

TEST(SamplingFlags, OverrideTheModelsFile) {
  ModelFile::Parts parts;
  parts.metadata = {{"general.sampling.temp", 0.6}, {"general.sampling.top_k", int64_t{20}}};
  const ModelFile file(std::move(parts));
  const SamplingDefaults defaults =
      sampling_defaults(file, parse("--temp 1 --top-p 1", SamplingScope::kDefaults).flags);
  EXPECT_EQ(defaults.params.temperature, 1.0f);
  EXPECT_EQ(defaults.params.top_k, 20);
  EXPECT_EQ(defaults.sources.of("temperature"), SamplingSource::kFlag);
  EXPECT_EQ(defaults.sources.of("top_k"), SamplingSource::kModel);
  const SamplingDefaults bare = sampling_defaults(ModelFile(ModelFile::Parts()), {});
  EXPECT_EQ(spell_sampling(bare.params), spell_sampling(SamplingDefaults().params));
}

}  // namespace
}  // namespace ibid::cli
