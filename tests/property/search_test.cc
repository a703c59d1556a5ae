// Beam and contrastive search on the engine: the results of transformers (tools/make_search_goldens.py) and of
// exhaustive search, and the same bytes alone, in company, preempted, and with any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "base/json.h"
#include "engine/engine.h"
#include "found_texts.h"
#include "model/testing/loaded_model.h"
#include "source_paths.h"
#include "worker/model_pass.h"

namespace ibid {
namespace {

using testing::found_texts;
using testing::FoundText;
using testing::FoundTexts;
using testing::LoadedModel;

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

std::shared_ptr<const ModelFile> open_llama() {
  return std::make_shared<const ModelFile>(ModelFile::open(source_dir() + "/tests/golden/llama").value());
}

// Tokens equal, and scores within 1e-4; returns how many cases there were.
int compare_with_transformers(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(source_dir() + "/tests/golden/" + name).rdbuf();
  const Json cases = parse_json(text.str()).value();
  LoadedModel m(open_llama());
  int n = 0;
  for (const Json& given : *cases.array()) {
    SCOPED_TRACE(given.text().substr(0, 200));
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = 64, .max_sequences = 8};
    options.end_of_generation = ids_of(*given.find("ends"));
    std::unique_ptr<Engine> engine = Engine::create(*m.model, nullptr, *m.stream, options).value();
    const Request request = request_of(given, 1);
    const Status taken = engine->submit(request);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    FoundTexts answers = found_texts(out);
    const Json::Array& results = *given.find("results")->array();
    EXPECT_EQ(answers.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const FoundText& found = answers[{request.id, static_cast<int32_t>(i)}];
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

// ---- On a real one, whose hidden states contrastive search compares ------------------------------------------------

TEST(Search, ContrastiveSequencesAreTheSameAloneInCompanyAndPreempted) {
  LoadedModel m(open_llama(), {.step_tokens = 64, .max_rows = 64}, 2);
  const auto run = [&](const std::vector<uint64_t>& ids, int32_t n_blocks, int32_t step_tokens, uint64_t preempts) {
    EngineOptions options{.block_len = 8, .kv_dtype = DType::kF32, .step_tokens = step_tokens, .max_sequences = 6};
    options.end_of_generation = {TokenId{2}};
    ModelPass probe(*m.model, *m.stream, {}, "");
    options.kv_bytes = n_blocks * KvStore::block_bytes(probe.facts(), options.kv_dtype, options.block_len);
    std::unique_ptr<Engine> engine = Engine::create(*m.model, nullptr, *m.stream, options).value();
    for (const uint64_t id : ids) {
      Request r;
      r.id = RequestId{id};
      r.prompt = testing::some_tokens(9 + static_cast<int64_t>(id % 3) * 11, m.model->config().vocab_size, id % 2);
      r.max_tokens = 12;
      r.sampling.logprobs = 0;
      r.search = {.kind = SearchKind::kContrastive, .width = 2 + static_cast<int32_t>(id % 4), .alpha = 0.6f};
      if (id % 4 == 3) r.search = {.kind = SearchKind::kBeam, .width = 4};
      const Status taken = engine->submit(std::move(r));
      EXPECT_TRUE(taken.ok()) << taken.error().message;
    }
    std::mt19937_64 random(preempts);
    std::vector<Output> out;
    while (engine->step(out)) {
      if (preempts != 0) engine->preempt(RequestId{ids[random() % ids.size()]}, static_cast<int32_t>(random() % 5));
    }
    FoundTexts answers = found_texts(out);
    EXPECT_EQ(engine->cache().pool().n_in_use(), 0);
    return answers;
  };
  const std::vector<uint64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  FoundTexts alone;
  for (const uint64_t id : ids) alone.merge(run({id}, 64, 64, 0));
  EXPECT_EQ(run(ids, 64, 64, 0), alone);
  EXPECT_EQ(run(ids, 16, 6, 0), alone);
  EXPECT_EQ(run(ids, 17, 16, 3), alone);
}

}  // namespace
}  // namespace ibid
