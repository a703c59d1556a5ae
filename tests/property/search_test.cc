// Beam and contrastive search on the engine: what transformers finds (tools/make_search_goldens.py), what looking at all
// texts finds, and the same bytes alone, in company, preempted, and on any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/json.h"
#include "engine/engine.h"
#include "fake_model.h"
#include "kernels/math.h"
#include "model/testing/loaded_model.h"
#include "sample/grammar/languages.h"
#include "sample/grammar/matcher.h"
#include "source_paths.h"

namespace ibid {
namespace {

using testing::FakeModel;
using testing::kFakeEnd;
using testing::LoadedModel;

struct Text {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  double score = 0;
  FinishReason reason = FinishReason::kNone;
  std::string error;
  bool operator==(const Text&) const = default;
};
using Answers = std::map<std::pair<RequestId, int32_t>, Text>;

void gather(const std::vector<Output>& out, Answers& answers) {
  for (const Output& o : out) {
    Text& text = answers[{o.request, o.choice}];
    EXPECT_EQ(text.reason, FinishReason::kNone) << "an output behind the last one";
    for (const TokenRecord& t : o.tokens) text.tokens.push_back(t.chosen.token), text.logprobs.push_back(t.chosen.raw);
    if (!o.finished) continue;
    text.score = o.score;
    text.reason = o.reason;
    text.error = o.error.message;
  }
}

std::vector<TokenId> ids_of(const Json& list) {
  std::vector<TokenId> out;
  for (const Json& id : *list.array()) out.push_back(TokenId{static_cast<int32_t>(*id.integer())});
  return out;
}

Request request_of(const Json& given, uint64_t id) {
  Request r;
  r.id = RequestId{id};
  r.prompt = ids_of(*given.find("prompt"));
  r.max_tokens = static_cast<int32_t>(*given.find("max_tokens")->integer());
  r.sampling.logprobs = 0;
  const auto whole = [&](const char* key) { return static_cast<int32_t>(*given.find(key)->integer()); };
  const auto number = [&](const char* key) { return static_cast<float>(given.find(key)->number()); };
  if (given.find("top_k") != nullptr) {
    r.search = {.kind = SearchKind::kContrastive, .width = whole("top_k"), .alpha = number("penalty_alpha")};
    return r;
  }
  r.n = whole("n");
  r.search = {.kind = SearchKind::kBeam, .width = whole("num_beams"), .length_penalty = number("length_penalty")};
  const Json& early = *given.find("early_stopping");
  if (early.string() != nullptr) r.search.early_stopping = EarlyStopping::kNever;
  if (early.boolean() != nullptr && *early.boolean()) r.search.early_stopping = EarlyStopping::kYes;
  if (given.find("num_beam_groups") != nullptr) {
    r.search.n_groups = whole("num_beam_groups");
    r.search.diversity_penalty = number("diversity_penalty");
  }
  return r;
}

// Tokens equal, and scores within 1e-4; returns how many cases there were.
int compare_with_transformers(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(source_dir() + "/tests/golden/" + name).rdbuf();
  const Json cases = parse_json(text.str()).value();
  LoadedModel m(std::make_shared<const ModelFile>(ModelFile::open(source_dir() + "/tests/golden/llama").value()));
  int n = 0;
  for (const Json& given : *cases.array()) {
    SCOPED_TRACE(given.text().substr(0, 200));
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = 64, .max_sequences = 8};
    options.end_of_generation = ids_of(*given.find("ends"));
    std::unique_ptr<Engine> engine = Engine::create(*m.model, nullptr, *m.stream, options).value();
    const Request request = request_of(given, 1);
    const Status taken = engine->submit(request);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    Answers answers;
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    gather(out, answers);
    const Json::Array& results = *given.find("results")->array();
    EXPECT_EQ(answers.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Text& found = answers[{request.id, static_cast<int32_t>(i)}];
      EXPECT_EQ(found.tokens, ids_of(*results[i].find("tokens"))) << "text " << i;
      if (results[i].find("score") != nullptr) {
        EXPECT_NEAR(found.score, results[i].find("score")->number(), 1e-4 * std::max(1.0, std::abs(found.score)));
      }
    }
    ++n;
  }
  return n;
}

TEST(Search, BeamsAreThoseOfTransformers) { EXPECT_EQ(compare_with_transformers("search_beam.json"), 60); }
TEST(Search, GroupsOfBeamsAndContrastiveSearchAreThoseOfTransformers) {
  EXPECT_EQ(compare_with_transformers("search_old.json"), 60);
}

}  // namespace
}  // namespace ibid
