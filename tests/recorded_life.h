// What tests of records share: an engine that is recorded, a life in it that has everything, and what is read again.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "temp_folder.h"

#include "engine/engine.h"
#include "engine/record/record_file.h"
#include "engine/record/recorder.h"
#include "engine/record/replay.h"
#include "fake_model.h"
#include "sample/grammar/matcher.h"
#include "spec/model/window_proposer.h"
#include "spec/proposer_chain.h"
#include "text/output/stop_matcher.h"

namespace ibid::testing {

constexpr int32_t kContext = 96;

inline EngineOptions small_engine(PolicyKind policy = PolicyKind::kPriority) {
  EngineOptions options{.step_tokens = 24, .max_sequences = 5, .max_waiting = 12, .policy = policy};
  options.block_len = 8;
  options.kv_dtype = DType::kF32;
  options.kv_bytes = 16 * KvStore::block_bytes(FakeModel(kContext).facts(), options.kv_dtype, 8);
  return options;
}

// A small engine of the fake model that writes a record.
struct RecordedEngine {
  std::unique_ptr<Recorder> recorder;
  ThreadTeam team{1};
  Stream stream{team};
  std::unique_ptr<Engine> engine;

  explicit RecordedEngine(const RecorderOptions& options)
      : recorder(Recorder::create(options).value()),
        engine(Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream, small_engine(), recorder->clock(),
                              PrefixHash(128, 1))
                   .value()) {
    recorder->begin(*engine, "fake", 1);
  }
};

// Proposes the expected answer with occasional errors, in chains and trees.
class Knowing final : public Proposer {
 public:
  explicit Knowing(uint64_t seed) : random_(seed) {}
  void meet(const Request& r) {
    for (int32_t i = 0; i < r.n; ++i) known_.emplace(r.prompt, expected_answer(r, i, kContext).tokens);
  }
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const auto [from, to] = known_.equal_range({input.prompt.begin(), input.prompt.end()});
    for (auto it = from; it != to; ++it) {
      const std::vector<TokenId>& answer = it->second;
      const size_t n = input.answer.size();
      if (answer.size() <= n || !std::equal(input.answer.begin(), input.answer.end(), answer.begin())) continue;
      int32_t parent = -1;
      for (size_t i = n; i < answer.size(); ++i) {
        if (random_() % 3 == 0) drafts.add(TokenId{9}, parent);
        drafts.add(random_() % 6 == 0 ? TokenId{11} : answer[i], parent);
        parent = drafts.size() - 1;
      }
      return;
    }
  }

 private:
  std::mt19937_64 random_;
  std::multimap<std::vector<TokenId>, std::vector<TokenId>> known_;
};

// Proposes possible and impossible tokens, in chains and trees, some of them drawn from no distribution.
class Blunt final : public Proposer {
 public:
  explicit Blunt(uint64_t seed) : random_(seed) {}
  void propose(const ProposalInput& input, Drafts& drafts) override {
    const bool is_tree = random_() % 3 == 0;
    for (auto n = static_cast<int32_t>(random_() % 6); n > 0; --n) {
      const int32_t parent =
          is_tree ? static_cast<int32_t>(random_() % (1 + drafts.tokens.size())) - 1 : drafts.size() - 1;
      drafts.add(token(input, drafts), parent, random_() % 4 == 0 ? 0.9F : 1);
    }
  }

 private:
  // Often one that the grammar allows: so some are taken over, and errors come after them.
  TokenId token(const ProposalInput& input, const Drafts& drafts) {
    const TokenId any{static_cast<int32_t>(1 + random_() % (kFakeVocabSize - 1))};
    if (input.grammar == nullptr || !drafts.empty() || random_() % 4 == 0) return any;
    std::vector<uint32_t> mask(input.grammar->mask_words());
    input.grammar->fill(input.state.grammar, -1, mask);
    std::vector<TokenId> allowed;
    for (int32_t t = 1; t < kFakeVocabSize; ++t)
      if ((mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) != 0) allowed.push_back(TokenId{t});
    return allowed.empty() ? any : allowed[random_() % allowed.size()];
  }
  std::mt19937_64 random_;
};

struct Recorded {
  TempFolder folder;
  std::string path = folder.path() + "/record";
  std::map<RequestId, std::vector<TokenId>> prompts;
  int64_t n_tokens = 0, n_preemptions = 0, n_cached = 0, n_refused = 0, n_drafted = 0, n_accepted = 0;

  // A life with prompts that share beginnings, choices, cancels, refusals and too little memory; those of even seeds
  // have drafts; of half of them the model drafts for itself too, on blocks that are lent: a record does not contain
  // that.
  explicit Recorded(uint64_t seed, bool redact = false, size_t max_backlog = record::FileWriter::kMaxBacklog) {
    const RecordedEngine recorded({.path = path, .redact = redact, .max_backlog = max_backlog});
    Engine* engine = recorded.engine.get();
    auto proposer = std::make_unique<Knowing>(seed);
    Knowing& knowing = *proposer;
    std::vector<std::unique_ptr<Proposer>> proposers;
    proposers.push_back(std::move(proposer));
    if (seed % 4 == 0) {
      proposers.push_back(
          WindowProposer::create(engine->seat(), {.n_sink = 8, .n_window = 16, .max_sequences = 3, .always = true})
              .value());
    }
    if (seed % 2 == 0) engine->speculate(std::make_unique<ProposerChain>(std::move(proposers)), 5);
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<int32_t>(random() % n); };
    std::vector<Output> outputs;
    uint64_t next_id = 1;
    for (int turn = 0; turn < 300; ++turn) {
      for (int32_t n = below(8) == 0 ? below(4) : 0; n > 0; --n) {
        Request r = request(RequestId{next_id++}, random);
        const auto [id, prompt] = std::pair(r.id, r.prompt);
        if (seed % 2 == 0) knowing.meet(r);
        if (engine->submit(std::move(r)).ok()) prompts[id] = prompt;
        n_refused += !prompts.contains(id);
      }
      if (below(9) == 0) engine->cancel(RequestId{1 + random() % next_id});
      if (below(15) == 0) engine->preempt(RequestId{1 + random() % next_id});
      engine->step(outputs);
      for (const Output& o : outputs) n_tokens += static_cast<int64_t>(o.tokens.size());
      outputs.clear();
    }
    engine->cancel_all();
    while (engine->step(outputs)) outputs.clear();
    n_preemptions = engine->stats().n_preemptions;
    n_cached = engine->stats().cached_tokens;
    n_drafted = engine->stats().drafted_tokens;
    n_accepted = engine->stats().accepted_tokens;
  }

  static Request request(RequestId id, std::mt19937_64& random) {
    Request r;
    r.id = id;
    const uint64_t common = random() % 40, own = 1 + random() % 20;
    for (uint64_t i = 0; i < common; ++i) r.prompt.push_back(TokenId{static_cast<int32_t>(5 + i % 7)});
    for (uint64_t i = 0; i < own; ++i) r.prompt.push_back(TokenId{static_cast<int32_t>(random() % 64)});
    r.n = 1 + static_cast<int32_t>(random() % 3);
    r.max_tokens = static_cast<int32_t>(random() % 20) - 1;
    r.prompt_logprobs = random() % 6 == 0 ? 1 : -1;
    r.priority = static_cast<int32_t>(random() % 3);
    r.tenant = random() % 2 == 0 ? "alice" : "bob";
    r.cache_salt = random() % 5 == 0 ? "secret salt" : "";
    r.sampling.seed = random();
    r.sampling.temperature = 0.9f;
    r.sampling.logprobs = static_cast<int32_t>(random() % 3) - 1;
    if (random() % 3 == 0) r.stops = StopSet::compile({}, {TokenId{static_cast<int32_t>(random() % 64)}}).value();
    return r;
  }
};

inline ReplayResult replay(const std::string& path, bool with_model) {
  auto replay = Replay::open(path).value();
  ThreadTeam team(1);
  Stream stream(team);
  auto engine = with_model ? Engine::create(std::make_unique<FakeModel>(kContext), nullptr, stream, replay->options(),
                                            replay->clock())
                           : replay->engine_without_model(stream);
  return replay->run(**engine, nullptr).value();
}

inline std::string bytes_of(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline std::vector<record::Event> events_of(const std::string& path) {
  auto file = record::FileReader::open(path).value();
  std::vector<record::Event> out;
  while (auto event = file.next().value()) out.push_back(std::move(*event));
  return out;
}

}  // namespace ibid::testing
