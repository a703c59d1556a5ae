// What a server served runs again from its record, whatever it was: each kind of request alone, with the model and
// without, and all of them together.
#include <filesystem>
#include <set>

#include "conformance/crosstalk.h"
#include "engine/record/record_file.h"
#include "engine/record/recorder.h"
#include "engine/record/replay.h"
#include "temp_folder.h"

namespace ibid {
namespace {

EngineOptions drafting_engine() {
  EngineOptions options;
  options.max_drafts = 4;
  options.max_sequences = 8;
  options.step_tokens = 24;
  options.max_rows = 16;
  return options;
}

struct ReplayedBothWays {
  std::string with_model, without;
  int64_t n_tokens = 0, n_recorded = 0;
};

ReplayedBothWays replay_both_ways(const std::string& path) {
  ReplayedBothWays out;
  ThreadTeam team(1);
  Stream stream(team);
  const auto tokenizer = std::make_shared<const MarkupTokenizer>();
  {
    auto replay = Replay::open(path).value();
    auto engine = Engine::create(crosstalk_model(), tokenizer, stream, replay->options(), replay->clock()).value();
    const Result<ReplayResult> ran = replay->run(*engine, tokenizer);
    out.with_model = ran ? ran->difference : ran.error().message;
    if (ran) out.n_tokens = ran->n_tokens, out.n_recorded = ran->n_recorded;
  }
  auto replay = Replay::open(path).value();
  auto engine = replay->engine_without_model(stream).value();
  const Result<ReplayResult> ran = replay->run(*engine, nullptr);
  out.without = ran ? ran->difference : ran.error().message;
  return out;
}

// Returns what the first client heard last.
std::string record_and_replay(const std::vector<AskedOfServer>& asked, bool redact, size_t n_clients,
                              ReplayedBothWays& ran) {
  const TempFolder folder;
  const std::string path = folder.path("record");
  std::string said;
  {
    std::shared_ptr<Recorder> recorder = Recorder::create({.path = path, .redact = redact}).value();
    const auto server = crosstalk_server(drafting_engine(), 200, "", std::move(recorder));
    std::vector<std::thread> clients;
    for (size_t c = 0; c < n_clients; ++c) {
      clients.emplace_back([&, c] {
        RawClient client(server->port());
        for (size_t i = c; i < asked.size(); i += n_clients) {
          const std::string answer = text_message(client, asked[i]);
          if (c == 0) said = answer;
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  if (redact) {
    ThreadTeam team(1);
    Stream stream(team);
    auto replay = Replay::open(path).value();
    auto engine = replay->engine_without_model(stream).value();
    const Result<ReplayResult> is = replay->run(*engine, nullptr);
    ran.without = is ? is->difference : is.error().message;
  } else {
    ran = replay_both_ways(path);
  }
  return said;
}

std::vector<AskedOfServer> all_kinds_of_requests() {
  std::vector<AskedOfServer> out = other_requests();
  for (AskedOfServer& kind : kinds_of_requests()) out.push_back(std::move(kind));
  return out;
}

void each_alone(size_t one_in) {
  const std::vector<AskedOfServer> kinds = all_kinds_of_requests();
  const size_t n_others = other_requests().size();
  int64_t n_recorded = 0, n_answered = 0;
  for (size_t i = 0; i < kinds.size() && !::testing::Test::HasFailure(); ++i) {
    if (i >= n_others && i % one_in != 0) continue;
    for (const bool redact : {false, true}) {
      ReplayedBothWays ran;
      const std::string said = record_and_replay({kinds[i]}, redact, 1, ran);
      EXPECT_EQ(ran.with_model, "") << kinds[i].path << " " << kinds[i].body << "\n" << said;
      EXPECT_EQ(ran.without, "") << redact << kinds[i].path << " " << kinds[i].body << "\n" << said;
      n_recorded += ran.n_recorded;
      n_answered += said[0] == '2';
    }
  }
  EXPECT_GT(n_recorded, 20) << "of rejection and typical acceptance";
  EXPECT_GT(n_answered, 60);
}

TEST(ServerRecord, ARequestOfAnyKindAloneRunsAgainWithTheModelAndWithout) { each_alone(13); }
TEST(SlowServerRecord, ARequestOfAnyKindAloneRunsAgainWithTheModelAndWithout) { each_alone(1); }

TEST(ServerRecord, AllKindsTogetherRunAgainWithTheModelAndWithout) {
  for (const bool redact : {false, true}) {
    ReplayedBothWays ran;
    record_and_replay(all_kinds_of_requests(), redact, 4, ran);
    EXPECT_EQ(ran.with_model, "");
    EXPECT_EQ(ran.without, "");
    EXPECT_TRUE(redact || ran.n_tokens > 1000) << ran.n_tokens;
  }
}

}  // namespace
}  // namespace ibid
