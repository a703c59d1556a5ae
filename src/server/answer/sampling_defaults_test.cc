#include "server/fields/sampling_defaults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "format/model_file.h"
#include "sample/sampling_digest.h"
#include "server/answer/trace_json.h"
#include "server/fields/openapi.h"
#include "server/fields/parameters.h"

namespace ibid {
namespace {

using enum SamplingSource;

ModelFile file_with(Container container, std::map<std::string, MetaValue, std::less<>> metadata) {
  ModelFile::Parts parts;
  parts.container = container;
  parts.metadata = std::move(metadata);
  return ModelFile(std::move(parts));
}

Result<ApiRequest> parse(const std::string& fields, const SamplingDefaults& defaults = {}) {
  return parse_api_request(Endpoint::kCompletions, *parse_json("{\"prompt\":\"x\"," + fields + "}"), {}, defaults);
}

TEST(SamplingDefaults, AreThoseOfTheTableAndOfTheDescription) {
  const Result<Json> api = parse_json(openapi_json(ApiLimits()));
  const Json* fields = api->find("components")->find("schemas")->find("ChatRequest")->find("properties");
  int n = 0;
  for (const Parameter& p : parameters()) {
    if (!is_sampler_number(p)) continue;
    ++n;
    EXPECT_EQ(fields->find(p.name)->find("default")->text(), p.default_text) << p.name;
    SamplingDefaults defaults;  // naming the default changes nothing
    ASSERT_TRUE(set_default(defaults, p, *parse_json(p.default_text), kFlag).ok()) << p.name;
    EXPECT_EQ(spell_sampling(defaults.params), spell_sampling(SamplingDefaults().params)) << p.name;
  }
  EXPECT_GT(n, 20);
  EXPECT_EQ(parse("\"n\":1")->sampling.temperature, 0.7f);
  EXPECT_EQ(parse("\"n\":1")->sampling.top_p, 0.95f);
  // The model's own distribution, for who names it.
  EXPECT_EQ(spell_sampling(parse(R"("temperature":1,"top_p":1)")->sampling), spell_sampling(SamplingParams()));
}

TEST(SamplingDefaults, ComeFromAGgufsSamplingKeys) {
  SamplingDefaults defaults;
  EXPECT_TRUE(take_model_defaults(file_with(Container::kGguf, {{"general.sampling.temp", 0.6},
                                                               {"general.sampling.top_k", int64_t{20}},
                                                               {"general.sampling.top_p", int64_t{1}},
                                                               {"general.sampling.min_p", 0.05},
                                                               {"general.sampling.penalty_repeat", 1.1},
                                                               {"general.sampling.penalty_last_n", int64_t{64}},
                                                               {"general.sampling.sequence", std::string("top_k")},
                                                               {"generation_config.typical_p", 0.5}}),
                                  defaults)
                  .empty());
  EXPECT_EQ(defaults.params.temperature, 0.6f);
  EXPECT_EQ(defaults.params.top_k, 20);
  EXPECT_EQ(defaults.params.top_p, 1.0f);
  EXPECT_EQ(defaults.params.min_p, 0.05f);
  EXPECT_EQ(defaults.params.repetition_penalty, 1.1f);
  EXPECT_EQ(defaults.params.penalty_last_n, 64);
  EXPECT_EQ(defaults.params.typical_p, 1.0f);
  EXPECT_EQ(defaults.sources.of("repetition_penalty"), kModel);
  EXPECT_EQ(defaults.sources.of("typical_p"), kDefault);
}

TEST(SamplingDefaults, ComeFromAFoldersGenerationConfig) {
  SamplingDefaults defaults;
  const std::map<std::string, MetaValue, std::less<>> config = {{"generation_config.temperature", 0.2},
                                                                {"generation_config.do_sample", true},
                                                                {"generation_config.top_k", int64_t{50}},
                                                                {"generation_config.repetition_penalty", 1.05},
                                                                {"generation_config.no_repeat_ngram_size", int64_t{3}},
                                                                {"generation_config.max_new_tokens", int64_t{9}}};
  EXPECT_TRUE(take_model_defaults(file_with(Container::kSafetensors, config), defaults).empty());
  EXPECT_EQ(defaults.params.temperature, 0.2f);
  EXPECT_EQ(defaults.params.top_k, 50);
  EXPECT_EQ(defaults.params.top_p, 0.95f);
  EXPECT_EQ(defaults.params.repetition_penalty, 1.05f);
  EXPECT_EQ(defaults.params.no_repeat_ngram, 3);
}

TEST(SamplingDefaults, ValuesOutOfRangeInAFileAreReportedAndNotUsed) {
  const std::string huge(1 << 16, 'x');
  const std::pair<const char*, MetaValue> wrong[] = {
      {"temp", std::nan("")},
      {"temp", std::numeric_limits<double>::infinity()},
      {"temp", -std::numeric_limits<double>::infinity()},
      {"temp", 1e300},
      {"temp", -0.5},
      {"temp", huge},
      {"temp", true},
      {"temp", std::vector<int64_t>{1}},
      {"temp", std::vector<std::string>{"1"}},
      {"top_k", int64_t{-2}},
      {"top_k", 2.5},
      {"top_k", int64_t{1} << 40},
      {"top_k", ~uint64_t{0}},
      {"top_p", 1.5},
      {"min_p", -1e-9},
      {"mirostat", int64_t{7}},
      {"mirostat_tau", 0.0},
      {"penalty_repeat", 0.0},
  };
  for (const auto& [key, value] : wrong) {
    SamplingDefaults defaults;
    const std::string name = std::string("general.sampling.") + key;
    const std::vector<std::string> unused = take_model_defaults(file_with(Container::kGguf, {{name, value}}), defaults);
    ASSERT_EQ(unused.size(), 1u) << key;
    EXPECT_TRUE(unused[0].starts_with("The model's " + name + " is not used: ")) << unused[0];
    EXPECT_LT(unused[0].size(), 250u);
    EXPECT_EQ(spell_sampling(defaults.params), spell_sampling(SamplingDefaults().params)) << key;
    EXPECT_EQ(defaults.sources.of("temperature"), kDefault);
  }
  SamplingDefaults defaults;
  EXPECT_EQ(
      take_model_defaults(file_with(Container::kGguf, {{"general.sampling.temp", 1e300}}), defaults),
      (std::vector<std::string>{
          "The model's general.sampling.temp is not used: temperature must be a number from 0 to 100, not 1e+300."}));
}

TEST(SamplingDefaults, ARequestGoesBeforeAFlagBeforeTheModelBeforeIbid) {
  SamplingDefaults defaults;
  take_model_defaults(file_with(Container::kGguf, {{"general.sampling.temp", 0.6},
                                                   {"general.sampling.min_p", 0.1},
                                                   {"general.sampling.penalty_repeat", 1.2},
                                                   {"general.sampling.top_k", int64_t{20}}}),
                      defaults);
  ASSERT_TRUE(set_default(defaults, *find_parameter("min_p"), Json(0.2), kFlag).ok());
  ASSERT_TRUE(set_default(defaults, *find_parameter("top_k"), Json(int64_t{30}), kFlag).ok());
  const Result<ApiRequest> r = parse(R"("top_k":40,"repeat_penalty":1.3,"stop":"a")", defaults);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->sampling.temperature, 0.6f);
  EXPECT_EQ(r->sampling.min_p, 0.2f);
  EXPECT_EQ(r->sampling.top_k, 40);
  EXPECT_EQ(r->sampling.repetition_penalty, 1.3f);
  const Result<Json> header = parse_json(trace_facts(r->sampling, r->sources, ModelInfo())->header);
  const Json& sources = *header->find("sources");
  EXPECT_EQ(*sources.find("temperature")->string(), "model");
  EXPECT_EQ(*sources.find("min_p")->string(), "flag");
  EXPECT_EQ(*sources.find("top_k")->string(), "request");
  EXPECT_EQ(*sources.find("repetition_penalty")->string(), "request");  // by its second name
  EXPECT_EQ(*sources.find("top_p")->string(), "default");
  // Every parameter that is reported has a source.
  for (const Json::Member& parameter : *header->find("parameters")->object())
    EXPECT_NE(sources.find(parameter.first), nullptr) << parameter.first;
  // The digest is of the values, wherever they come from.
  const Result<ApiRequest> named =
      parse(R"("temperature":0.6,"top_p":0.95,"min_p":0.2,"top_k":40,"repeat_penalty":1.3)");
  EXPECT_EQ(trace_facts(named->sampling, named->sources, ModelInfo())->sampling_digest,
            *header->find("sampling_digest")->string());
}

TEST(SamplingDefaults, DefaultTopPIsOffWithMirostat) {
  EXPECT_EQ(parse("\"mirostat\":2")->sampling.top_p, 1.0f);
  EXPECT_EQ(parse("\"mirostat\":0")->sampling.top_p, 0.95f);
  EXPECT_EQ(parse(R"("mirostat":2,"top_p":0.95)")->sampling.top_p, 0.95f);
  SamplingDefaults defaults;
  ASSERT_TRUE(set_default(defaults, *find_parameter("top_p"), Json(0.8), kFlag).ok());
  EXPECT_EQ(parse("\"mirostat\":1", defaults)->sampling.top_p, 0.8f);
}

}  // namespace
}  // namespace ibid
