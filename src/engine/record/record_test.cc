// A record replays step by step, whatever happened.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "temp_folder.h"

#include "engine/engine.h"
#include "engine/record/record_file.h"
#include "engine/record/recorder.h"
#include "engine/record/redaction.h"
#include "engine/record/replay.h"
#include "fake_disk.h"
#include "fake_model.h"
#include "recorded_life.h"
#include "sample/grammar/grammars.h"
#include "spelled_tokens.h"
#include "timed_model.h"
#include "worker/disk_thread.h"

namespace ibid {
namespace {

using namespace testing;  // the fixture

// Another model: one token in a few thousand differs.
class OtherModel final : public ForwardPass {
 public:
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    model_.run(batch, kv, logits, hidden);
    if (batch.n_rows > 0 && ++n_ == 40) logits.row_as<float>(0)[9] = 100;
  }

 private:
  testing::FakeModel model_{kContext};
  int n_ = 0;
};

TEST(Record, RunsAgainStepForStepWithTheModelAndWithout) {
  int64_t n_preemptions = 0, n_cached = 0, n_refused = 0, n_accepted = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Recorded was(seed);
    n_preemptions += was.n_preemptions, n_cached += was.n_cached, n_refused += was.n_refused;
    n_accepted += was.n_accepted;
    for (const bool with_model : {true, false}) {
      const ReplayResult is = replay(was.path, with_model);
      EXPECT_EQ(is.difference, "") << seed << " " << with_model;
      EXPECT_EQ(is.end, "closed");
      EXPECT_EQ(is.n_tokens, was.n_tokens);
      EXPECT_EQ(is.n_requests, static_cast<int64_t>(was.prompts.size()));
    }
  }
  EXPECT_GT(n_preemptions, 10);
  EXPECT_GT(n_cached, 10);
  EXPECT_GT(n_refused, 0);
  EXPECT_GT(n_accepted, 100);
}

// Taps layers, as a head with attention does, and drafts nothing.
class Tapping final : public Proposer, public ProposerExtras {
 public:
  const HiddenStates* taps() const override { return &taps_; }
  ProposerExtras* extras() override { return this; }
  void propose(const ProposalInput&, Drafts&) override {}

 private:
  HiddenStates taps_;
};

// A replay recomputes, without the proposer, what the proposer had such a request compute of its prompt.
TEST(Record, APromptThatWasReadWholeForItsDraftsIsReadWholeAgain) {
  const TempFolder folder;
  const std::string path = folder.path() + "/record";
  int64_t n_cached = 0;
  {
    const RecordedEngine recorded({.path = path});
    Engine* engine = recorded.engine.get();
    engine->speculate(std::make_unique<Tapping>(), 5);
    std::vector<Output> outputs;
    for (uint64_t i = 0; i < 4; ++i) {
      Request r;
      r.id = RequestId{i + 1};
      for (int32_t t = 0; t < 30; ++t) r.prompt.push_back(TokenId{5 + t % 7});
      r.max_tokens = 5;
      r.speculation.verifier = i % 2 == 1 ? Verifier::kRejection : Verifier::kCoupled;
      const int64_t n_before = engine->stats().cached_tokens;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
      while (engine->step(outputs)) outputs.clear();
      EXPECT_EQ(engine->stats().cached_tokens > n_before, i == 2) << i;
    }
    n_cached = engine->stats().cached_tokens;
  }
  EXPECT_GT(n_cached, 0);
  EXPECT_EQ(replay(path, false).difference, "");
}

class TickingClock final : public Clock {  // a millisecond for each reading, so that computing is costly
 public:
  double now() const override { return now_ += 1e-3; }

 private:
  mutable double now_ = 0;
};

// A recorded process over blocks that outlive it, and further ones over the blocks that it leaves.
struct RecordedOnDisk {
  TempFolder folder;
  std::string path = folder.path() + "/record";
  DiskStats disk;
  int64_t n_tokens = 0;

  // `store` is made for the format that it is given.
  RecordedOnDisk(uint64_t seed, std::function<std::unique_ptr<DurableStore>(const BlockFormat&)> store) {
    const TickingClock clock;
    auto recorder = Recorder::create({.path = path}, clock).value();
    ThreadTeam team(1);
    Stream stream(team);
    EngineOptions options = small_engine();
    options.model_digest = "fake";
    const BlockFormat format = {.block_len = 8, .payload_bytes = options.kv_bytes / 16};
    options.disk_bytes = 60 * format.image_bytes();
    auto engine = Engine::create(std::make_unique<testing::FakeModel>(kContext), nullptr, stream, options,
                                 recorder->clock(), PrefixHash(128, 1), recorder->recording(store(format)))
                      .value();
    recorder->begin(*engine, "fake", 1);
    std::mt19937_64 random(seed);
    std::vector<Output> outputs;
    const auto step = [&] {
      outputs.clear();
      const bool is_busy = engine->step(outputs);
      for (const Output& o : outputs) n_tokens += static_cast<int64_t>(o.tokens.size());
      return is_busy;
    };
    for (uint64_t id = 1; id <= 60; ++id) {
      Request r = Recorded::request(RequestId{id}, random);
      // Few prefixes, of which more is evicted than the device can hold.
      const auto text = static_cast<int32_t>(random() % 6);
      for (size_t i = 0; i < 48; ++i)
        r.prompt.insert(r.prompt.begin(), TokenId{(text * 11 + static_cast<int32_t>(i)) % 64});
      r.prompt.resize(std::min<size_t>(r.prompt.size(), kContext - 24));
      static_cast<void>(engine->submit(std::move(r)));
      for (uint64_t n = random() % 12; n > 0; --n) step();
      if (random() % 10 == 0) engine->cancel(RequestId{id});
    }
    while (step()) {
    }
    disk = engine->stats().disk;
  }
};

TEST(Record, BlocksFromADiskReplayWithoutOne) {
  DiskStats all;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const auto medium = std::make_shared<testing::FakeMedium>();
    for (const bool is_warm : {false, true}) {
      const RecordedOnDisk was(seed, [&](const BlockFormat& format) {
        // Every fifth write or read goes wrong in some: the disk is full, a bit flips, a file is torn or gone.
        return std::make_unique<testing::FakeDisk>(
            medium, format, testing::FakeDiskScript{.seed = seed + is_warm, .fault_one_in = seed % 2 == 0 ? 5 : 0});
      });
      const ReplayResult is = replay(was.path, false);
      EXPECT_EQ(is.difference, "") << seed << is_warm;
      EXPECT_EQ(is.end, "closed");
      EXPECT_EQ(is.n_tokens, was.n_tokens);
      all.n_fetched += was.disk.n_fetched, all.n_corrupt += was.disk.n_corrupt, all.n_missing += was.disk.n_missing;
      all.n_no_space += was.disk.n_no_space, all.n_evicted += was.disk.n_evicted;
      if (is_warm && seed == 1) {
        EXPECT_GT(was.disk.n_fetched, 10) << "a warm restart";
      }
    }
  }
  EXPECT_GT(all.n_fetched, 100);
  EXPECT_GT(all.n_corrupt, 0);
  EXPECT_GT(all.n_missing, 0);
  EXPECT_GT(all.n_no_space, 0);
  EXPECT_GT(all.n_evicted, 0);
}

TEST(Record, AFolderOfBlocksIsNotNeededToRunAgain) {
  TempFolder blocks;
  for (const bool is_warm : {false, true}) {
    const RecordedOnDisk was(7, [&](const BlockFormat& format) {
      if (is_warm) {  // one of its files is broken meanwhile
        const auto any = std::filesystem::recursive_directory_iterator(blocks.path());
        for (const auto& file : any) {
          if (file.is_regular_file() && file.file_size() > 256) {
            std::filesystem::resize_file(file.path(), file.file_size() / 2);
            break;
          }
        }
      }
      return open_disk(blocks.path(), format).value();
    });
    const ReplayResult is = replay(was.path, false);
    EXPECT_EQ(is.difference, "") << is_warm;
    EXPECT_EQ(is.n_tokens, was.n_tokens);
  }
}

// Each recorded input of a replay is used: with one missing or duplicated, it takes another course and reports so.
TEST(Record, AnAnswerOfTheDiskThatIsMissingOrOneTooManyIsADifference) {
  const auto medium = std::make_shared<testing::FakeMedium>();
  const auto disk = [&](const BlockFormat& format) {
    return std::make_unique<testing::FakeDisk>(medium, format, testing::FakeDiskScript{});
  };
  static_cast<void>(RecordedOnDisk(1, disk));
  const RecordedOnDisk was(1, disk);
  using Kind = record::DiskInput::Kind;
  const std::string path = was.folder.path() + "/changed";
  std::set<Kind> kinds;
  for (const int change : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const auto kind = static_cast<Kind>(change % 4);
    const bool is_missing = change < 4;
    std::filesystem::remove(path);
    {
      auto file = record::FileWriter::create(path, nullptr).value();
      bool is_changed = false;
      for (record::Event& event : events_of(was.path)) {
        if (event.kind == record::EventKind::kEnd) break;
        const auto at = std::ranges::find_if(event.disk, [&](const record::DiskInput& input) {
          return input.kind == kind && (kind != Kind::kDone || input.is_read);
        });
        if (!is_changed && at != event.disk.end()) {
          is_missing ? event.disk.erase(at) : event.disk.insert(at, record::DiskInput(*at));
          is_changed = true, kinds.insert(kind);
        }
        file->add(std::move(event));
      }
    }
    EXPECT_NE(replay(path, false).difference, "") << change;
  }
  EXPECT_EQ(kinds.size(), 4u);
}

// A request's grammar is recorded as requested, or as rules if the server made it, and compiled for the replay.
void replay_grammars(bool is_made) {
  std::vector<std::string> words(64);
  for (size_t t = 1; t < words.size(); ++t) words[t] = std::string(1 + t / 40, static_cast<char>('a' + t % 20));
  const auto tokenizer = std::make_shared<const SpelledTokens>(words);
  grammar::Grammars grammars(*tokenizer);
  const grammar::Source asked{.language = grammar::Language::kGbnf, .text = "root ::= [a-d]{2,9} [e-j]{1,30} \"k\""};
  const auto compiled = is_made ? grammars
                                      .made<grammar::Source>(asked, {},
                                                             [](const grammar::Source& parts, const Tokenizer&,
                                                                const grammar::FindToken& find, grammar::Grammar& out) {
                                                               return grammar::read(parts, find, out);
                                                             })
                                      .value()
                                : grammars.get(asked).value();
  TempFolder folder;
  const std::string path = folder.path() + "/record";
  ThreadTeam team(1);
  Stream stream(team);
  std::vector<TokenId> drawn;
  {
    auto recorder = Recorder::create({.path = path}).value();
    auto engine = Engine::create(std::make_unique<testing::FakeModel>(kContext), nullptr, stream, small_engine(),
                                 recorder->clock(), PrefixHash(128, 1))
                      .value();
    recorder->begin(*engine, "fake", 1);
    for (uint64_t id = 1; id <= 6; ++id) {
      Request r;
      r.id = RequestId{id};
      r.prompt = {TokenId{static_cast<int32_t>(id)}, TokenId{9}};
      r.max_tokens = 20;
      r.sampling.seed = id;
      r.grammar = std::make_shared<grammar::Matcher>(compiled, std::vector<TokenId>{}, 1, true);
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
    }
    std::vector<Output> out;
    while (engine->step(out)) {
    }
    for (const Output& o : out)
      for (const TokenRecord& t : o.tokens) drawn.push_back(t.chosen.token);
  }
  for (const TokenId t : drawn) ASSERT_LE(words[static_cast<size_t>(raw(t))][0], 'k');
  auto replay = Replay::open(path).value();
  auto again = Engine::create(std::make_unique<testing::FakeModel>(kContext), nullptr, stream, replay->options(),
                              replay->clock())
                   .value();
  const ReplayResult is = replay->run(*again, tokenizer).value();
  EXPECT_EQ(is.difference, "");
  EXPECT_EQ(is.n_tokens, static_cast<int64_t>(drawn.size()));
  auto bare = Replay::open(path).value();
  auto without = bare->engine_without_model(stream).value();
  EXPECT_EQ(bare->run(*without, nullptr).value().difference, "");
}

// The first plans depend on it, so a replay needs it.
TEST(Record, HasWhatStepsCostBeforeAnyRequest) {
  TempFolder folder;
  const std::string path = folder.path() + "/record";
  ManualClock clock;
  ThreadTeam team(1);
  Stream stream(team);
  const auto timed = [&] { return std::make_unique<testing::TimedModel>(clock, testing::LinearCost{}, 1024); };
  EngineOptions options{.step_tokens = 512, .max_sequences = 8, .max_itl = 0.02};
  options.kv_bytes = 200 * KvStore::block_bytes(timed()->facts(), options.kv_dtype, 16);
  {
    auto recorder = Recorder::create({.path = path}, clock).value();
    auto engine = Engine::create(timed(), nullptr, stream, options, recorder->clock(), PrefixHash(128, 1)).value();
    engine->measure_steps(clock);
    EXPECT_GE(engine->options().measured_steps.size(), 4u);
    recorder->begin(*engine, "timed", 1);
    std::vector<Output> out;
    for (uint64_t id = 1; id <= 3; ++id) {
      Request r;
      r.id = RequestId{id};
      r.prompt.assign(id == 3 ? 400 : 2, TokenId{static_cast<int32_t>(id)});
      r.max_tokens = 20;
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
      engine->step(out);
    }
    while (engine->step(out)) {
    }
  }
  const auto difference = [&](bool measured) {
    auto replay = Replay::open(path).value();
    EngineOptions again = replay->options();
    if (!measured) again.measured_steps.clear();
    auto engine = Engine::create(timed(), nullptr, stream, again, replay->clock()).value();
    return replay->run(*engine, nullptr).value().difference;
  };
  EXPECT_EQ(difference(true), "");
  EXPECT_NE(difference(false).find("the batch is another"), std::string::npos) << difference(false);
}

std::shared_ptr<const Tokenizer> words_of_letters() {
  std::vector<std::string> words(64);
  for (size_t t = 1; t < words.size(); ++t) words[t] = std::string(1 + t / 40, static_cast<char>('a' + t % 20));
  return std::make_shared<const SpelledTokens>(words);
}

// Records the requests of `ask` to an engine with hidden states and a simple proposer, and replays them: "" if the
// replay is equal.
std::string difference_of(bool with_model, const std::function<void(Engine&, grammar::Grammars&)>& ask) {
  const auto tokenizer = words_of_letters();
  const auto model = [] { return std::make_unique<testing::FakeModel>(kContext, 0, 4); };
  grammar::Grammars grammars(*tokenizer);
  TempFolder folder;
  ThreadTeam team(1);
  Stream stream(team);
  {
    auto recorder = Recorder::create({.path = folder.path("record")}).value();
    auto engine = Engine::create(model(), tokenizer, stream, small_engine(), recorder->clock()).value();
    engine->speculate(std::make_unique<testing::Blunt>(1), 5);
    recorder->begin(*engine, "fake", 1);
    ask(*engine, grammars);
    std::vector<Output> out;
    while (engine->step(out)) {
    }
  }
  auto replay = Replay::open(folder.path("record")).value();
  auto engine = with_model ? Engine::create(model(), tokenizer, stream, replay->options(), replay->clock())
                           : replay->engine_without_model(stream);
  return replay->run(**engine, with_model ? tokenizer : nullptr).value().difference;
}

void ask_held(Engine& engine, grammar::Grammars& grammars, const char* text, std::vector<TokenId> banned) {
  const auto compiled = grammars.get({.language = grammar::Language::kGbnf, .text = text}).value();
  for (uint64_t id = 1; id <= 12; ++id) {
    Request r{.id = RequestId{id}, .max_tokens = 20};
    r.prompt = {TokenId{static_cast<int32_t>(id)}, TokenId{9}};
    r.sampling.seed = id;
    r.sampling.banned = banned;
    r.grammar = std::make_shared<grammar::Matcher>(compiled, std::vector<TokenId>{}, 1);
    ASSERT_TRUE(engine.submit(std::move(r)).ok());
  }
}

// A replay invents rejected drafts: the grammar that allowed the true ones does not check these.
TEST(Record, AsManyDraftsAsRanUnderAGrammarRunAgain) {
  for (const bool with_model : {true, false}) {
    EXPECT_EQ(difference_of(with_model,
                            [](Engine& engine, grammar::Grammars& grammars) {
                              ask_held(engine, grammars, "root ::= [a-d]{2,9} [e-j]{1,30} \"k\"", {});
                            }),
              "");
  }
}

// After "st" nothing is left to draw: the error comes at once, or after a draft that was taken over.
TEST(Record, AnErrorAfterDraftsRunsAgain) {
  for (const bool with_model : {true, false}) {
    EXPECT_EQ(difference_of(with_model,
                            [](Engine& engine, grammar::Grammars& grammars) {
                              ask_held(engine, grammars, "root ::= \"s\" \"t\" \"b\"",
                                       {TokenId{1}, TokenId{21}, TokenId{41}, TokenId{61}});
                            }),
              "");
  }
}

TEST(Record, AVectorRunsAgain) {
  for (const bool with_model : {true, false}) {
    EXPECT_EQ(difference_of(
                  with_model,
                  [](Engine& engine, grammar::Grammars&) {
                    for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst, Pooling::kEach}) {
                      Request r{.id = RequestId{static_cast<uint64_t>(pooling)}, .max_tokens = 0, .pooling = pooling};
                      r.prompt.assign(40, TokenId{static_cast<int32_t>(5 + static_cast<int32_t>(pooling))});
                      ASSERT_TRUE(engine.submit(std::move(r)).ok());
                    }
                    std::vector<Output> out;
                    engine.step(out);
                    for (uint64_t id = 1; id <= 5; ++id) engine.preempt(RequestId{id});
                  }),
              "");
  }
}

// One that searches, and those beside it.
TEST(Record, ASearchRunsAgain) {
  for (const bool with_model : {true, false}) {
    EXPECT_EQ(difference_of(with_model,
                            [](Engine& engine, grammar::Grammars&) {
                              for (uint64_t id = 1; id <= 3; ++id) {
                                Request r{.id = RequestId{id}, .max_tokens = 12};
                                r.prompt.assign(20, TokenId{static_cast<int32_t>(5 + id)});
                                r.sampling.temperature = 1;
                                if (id == 1) r.search = {.kind = SearchKind::kBeam, .width = 3};
                                if (id == 2) r.search = {.kind = SearchKind::kContrastive, .width = 3, .alpha = 0.5F};
                                r.n = id == 1 ? 2 : 1;
                                ASSERT_TRUE(engine.submit(std::move(r)).ok());
                              }
                            }),
              "");
  }
}

// Decisions of its drafts are recorded.
TEST(Record, ARequestWhoseTokensDependOnItsDraftsRunsAgain) {
  for (const bool with_model : {true, false}) {
    EXPECT_EQ(difference_of(with_model,
                            [](Engine& engine, grammar::Grammars&) {
                              for (uint64_t id = 1; id <= 4; ++id) {
                                Request r{.id = RequestId{id}, .max_tokens = 30};
                                r.prompt.assign(20, TokenId{static_cast<int32_t>(5 + id)});
                                r.sampling.seed = id;
                                r.speculation.verifier = id % 2 == 0 ? Verifier::kRejection : Verifier::kTypical;
                                ASSERT_TRUE(engine.submit(std::move(r)).ok());
                              }
                            }),
              "");
  }
}

// A record may contain any numbers of a search.
TEST(Record, TurnsOfASearchThatCannotBeAreADifference) {
  TempFolder folder;
  const std::string path = folder.path("record"), wrong = folder.path("wrong");
  {
    const RecordedEngine recorded({.path = path});
    Request r{.id = RequestId{1}, .max_tokens = 12};
    r.prompt.assign(20, TokenId{7});
    r.search = {.kind = SearchKind::kBeam, .width = 4, .n_groups = 2, .diversity_penalty = 0.5F};
    ASSERT_TRUE(recorded.engine->submit(std::move(r)).ok());
    std::vector<Output> out;
    while (recorded.engine->step(out)) {
    }
  }
  ASSERT_EQ(replay(path, false).difference, "");
  const std::vector<std::function<void(record::ShareOutcome&)>> changes = {
      [](auto& share) { share.turn->children.assign(1, {.parent = 70, .token = TokenId{3}}); },
      [](auto& share) { share.turn->children.assign(1, {.parent = -1, .token = TokenId{3}}); },
      [](auto& share) { share.turn->children.assign(9, {.parent = 0, .token = TokenId{3}}); },
      [](auto& share) { share.turn->children.assign(4, {.parent = 0, .token = TokenId{3}}); },
      [](auto& share) { share.turn->children.clear(); },
      [](auto& share) { share.turn->children.clear(), share.turn->ends.assign(4, FinishReason::kError); },
      [](auto& share) { share.turn->ends.assign(2, FinishReason::kEos), share.turn->children.clear(); },
      [](auto& share) { share.turn.reset(); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const int skip : {0, 1, 3}) {
      std::filesystem::remove(wrong);
      {
        auto file = record::FileWriter::create(wrong, nullptr).value();
        int n_left = skip;
        for (record::Event& event : events_of(path)) {
          if (event.kind == record::EventKind::kEnd) break;
          for (record::ShareOutcome& share : event.step.shares)
            if (share.turn && n_left-- == 0) changes[i](share);
          file->add(std::move(event));
        }
      }
      EXPECT_NE(replay(wrong, false).difference, "") << i << " " << skip;
    }
  }
}

TEST(Record, GrammarsAreCompiledAgain) { replay_grammars(false); }
TEST(Record, GrammarsThatAServerMadeAreCompiledAgain) { replay_grammars(true); }

TEST(Record, TheFirstDifferenceIsNamed) {
  const Recorded was(3);
  const auto differs = [&](EngineOptions options, std::unique_ptr<ForwardPass> model) {
    auto replay = Replay::open(was.path).value();
    ThreadTeam team(1);
    Stream stream(team);
    auto engine = Engine::create(std::move(model), nullptr, stream, options, replay->clock()).value();
    return replay->run(*engine, nullptr).value().difference;
  };
  const auto fake = [] { return std::make_unique<testing::FakeModel>(kContext); };
  EngineOptions options = small_engine();
  EXPECT_EQ(differs(options, fake()), "");
  EXPECT_NE(differs(options, std::make_unique<OtherModel>()).find("drew token"), std::string::npos);
  options.step_tokens = 20;
  EXPECT_NE(differs(options, fake()).find("the batch is another"), std::string::npos);
  options = small_engine();
  options.prefix_cache = false;
  EXPECT_NE(differs(options, fake()), "");
  EXPECT_NE(differs(small_engine(PolicyKind::kFirstCome), fake()), "");
}

// An engine with earlier requests has other blocks in front.
TEST(Record, OtherBlocksAreADifferenceOfTheirOwn) {
  const Recorded was(3);
  auto replay = Replay::open(was.path).value();
  ThreadTeam team(1);
  Stream stream(team);
  auto engine = Engine::create(std::make_unique<testing::FakeModel>(kContext), nullptr, stream, replay->options(),
                               replay->clock())
                    .value();
  Request before;
  before.id = RequestId{1 << 20};
  before.prompt.assign(30, TokenId{63});
  before.max_tokens = 0;
  ASSERT_TRUE(engine->submit(std::move(before)).ok());
  std::vector<Output> outputs;
  while (engine->step(outputs)) {
  }
  const std::string difference = replay->run(*engine, nullptr).value().difference;
  EXPECT_NE(difference.find("on other blocks"), std::string::npos) << difference;
}

// An attacker can write any number in place of a token.
TEST(Record, TokensOfNoVocabularyAreRefused) {
  const Recorded was(2);
  for (const int32_t wrong : {1 << 30, INT32_MAX, -1, INT32_MIN}) {
    std::string bytes(record::kMagic);
    int64_t written = 0;
    bool is_changed = false;
    for (record::Event& event : events_of(was.path)) {
      const auto drafted = [](const record::ShareOutcome& s) { return s.n_drafts > 0 && s.n_drawn > 1; };
      if (!is_changed && std::ranges::any_of(event.step.shares, drafted)) {
        event.step.tokens.assign(event.step.tokens.size(), TokenId{wrong});
        is_changed = true;
      }
      std::string body;
      record::encode(event, written, body);
      const auto n = static_cast<uint32_t>(body.size());
      const uint32_t sum = record::checksum(body);
      bytes.append(reinterpret_cast<const char*>(&n), 4).append(reinterpret_cast<const char*>(&sum), 4).append(body);
    }
    ASSERT_TRUE(is_changed);
    const std::string path = was.folder.path() + "/wrong";
    std::ofstream(path, std::ios::binary) << bytes;
    auto replay = Replay::open(path).value();
    ThreadTeam team(1);
    Stream stream(team);
    auto engine = Engine::create(std::make_unique<testing::FakeModel>(kContext), nullptr, stream, replay->options(),
                                 replay->clock(), PrefixHash(128, 1))
                      .value();
    const auto ran = replay->run(*engine, nullptr);
    ASSERT_FALSE(ran.ok()) << wrong;
    EXPECT_NE(ran.error().message.find("has token " + std::to_string(wrong)), std::string::npos);
  }
}

TEST(Record, ListsOfNextToNothingAreRefused) {
  const auto is_read = [](size_t n) {
    record::Event event;
    event.kind = record::EventKind::kCancelAll;
    event.disk.resize(n);  // each two bytes of the file
    std::string body;
    int64_t written = 0, read = 0;
    record::encode(event, written, body);
    return record::decode(body, read, nullptr).ok();
  };
  EXPECT_TRUE(is_read(1000));
  EXPECT_FALSE(is_read(1'000'000));
}

TEST(Record, AHeadOfAnImpossibleEngineIsRefused) {
  const Recorded was(1);
  const record::Event head = std::move(events_of(was.path).front());
  const auto is_read = [&](auto change) {
    record::Event wrong = head;
    wrong.readings.clear();
    change(wrong.head);
    std::string body;
    int64_t written = 0, read = 0;
    record::encode(wrong, written, body);
    return record::decode(body, read, nullptr).ok();
  };
  EXPECT_TRUE(is_read([](record::Head&) {}));
  EXPECT_FALSE(is_read([](record::Head& h) { h.options.block_len = 0; }));
  EXPECT_FALSE(is_read([](record::Head& h) { h.options.kv_dtype.key = static_cast<KvType>(20); }));
  EXPECT_FALSE(is_read([](record::Head& h) { h.options.policy = static_cast<PolicyKind>(77); }));
  EXPECT_FALSE(is_read([](record::Head& h) { h.n_blocks = 1 << 30; }));
  EXPECT_FALSE(is_read([](record::Head& h) { h.vocab_size = -1; }));
  EXPECT_FALSE(is_read([](record::Head& h) { h.options.disk_folder = "/tmp/of-another"; }));
}

TEST(Record, WithoutWhatUsersWroteSchedulingIsTheSame) {
  const Recorded open(5), redacted(5, true);
  const std::string bytes = bytes_of(redacted.path);
  for (const char* word : {"alice", "bob", "secret"}) EXPECT_EQ(bytes.find(word), std::string::npos) << word;
  EXPECT_NE(bytes_of(open.path).find("secret salt"), std::string::npos);
  for (uint64_t seed = 20; seed < 28; ++seed) {
    const Recorded one(seed, true);
    EXPECT_EQ(one.n_drafted > 100, seed % 2 == 0);
    const ReplayResult is = replay(one.path, false);
    EXPECT_EQ(is.difference, "") << seed;
    EXPECT_EQ(is.n_tokens, one.n_tokens);
  }

  std::vector<std::pair<const Request*, const Request*>> pairs;
  const std::vector<record::Event> a = events_of(open.path), b = events_of(redacted.path);
  for (const record::Event& x : a) {
    if (x.request == nullptr) continue;
    for (const record::Event& y : b) {
      if (y.request != nullptr && y.request->id == x.request->id) pairs.emplace_back(x.request.get(), y.request.get());
    }
  }
  ASSERT_GT(pairs.size(), 20u);
  const auto shared = [](const Request& x, const Request& y) {
    if (x.tenant != y.tenant || x.cache_salt != y.cache_salt) return ptrdiff_t{-1};
    return std::ranges::mismatch(x.prompt, y.prompt).in1 - x.prompt.begin();
  };
  size_t n_shared = 0, n_same = 0, n_all = 0;
  for (const auto& [x, x2] : pairs) {
    EXPECT_EQ(x->prompt.size(), x2->prompt.size());
    for (size_t i = 0; i < x->prompt.size(); ++i, ++n_all) n_same += x->prompt[i] == x2->prompt[i];
    for (const auto& [y, y2] : pairs) {
      EXPECT_EQ(shared(*x, *y), shared(*x2, *y2));
      n_shared += shared(*x, *y) > 8;
    }
  }
  EXPECT_GT(n_shared, pairs.size());
  EXPECT_LT(n_same, n_all / 16);
}

// Repetitions in a text must not repeat in its replacement, and the order is kept after each prefix.
TEST(Redaction, HidesHowOftenATokenOccursAndLosesNone) {
  for (const int32_t vocab_size : {1, 2, 3, 64, 1000, 49152}) {
    record::Redaction redaction;
    record::Event head{.kind = record::EventKind::kHead};
    head.head.vocab_size = vocab_size;
    redaction.redact(head);
    const auto replaced = [&](std::vector<TokenId> prompt) {
      Request r;
      r.prompt = std::move(prompt);
      record::Event event{.kind = record::EventKind::kSubmit, .request = std::make_shared<const Request>(r)};
      redaction.redact(event);
      return event.request->prompt;
    };
    int32_t last = -1;
    for (int32_t token = 0; token < std::min(vocab_size, 1000); ++token) {
      const std::vector<TokenId> out = replaced({TokenId{0}, TokenId{token}});
      EXPECT_TRUE(raw(out[1]) > last && raw(out[1]) < static_cast<int32_t>(record::Redaction::kNumbers)) << vocab_size;
      last = raw(out[1]);
    }
    size_t n_same = 0;
    for (int32_t i = 0; i < 100 && vocab_size > 100; ++i)
      n_same += replaced({TokenId{0}, TokenId{i}, TokenId{7}})[2] == replaced({TokenId{1}, TokenId{i}, TokenId{7}})[2];
    EXPECT_LT(n_same, 5u) << "what stands before a token is in its key";
    const std::vector<TokenId> same = replaced(std::vector<TokenId>(500, TokenId{0}));
    if (vocab_size < 64) continue;
    EXPECT_GT(std::set<TokenId>(same.begin(), same.end()).size(), 490u);
  }
}

}  // namespace
}  // namespace ibid
