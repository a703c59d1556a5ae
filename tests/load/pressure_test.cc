// The real binary with the default model, pressed: more requests than it may hold, readers that do not read, clients
// that go away.
#include <cstdio>

#include "bench/load/measure.h"
#include "measured.h"
#include "serve_process.h"
#include "varied_requests.h"

namespace ibid::load {
namespace {

class SlowPressure : public DefaultModelTest {};

LoadRequest stream_of(const std::string& prompt, int64_t max_tokens, const std::string& more = "") {
  std::string body;
  JsonWriter json(body);
  json.begin_object().field("prompt", prompt).field("max_tokens", max_tokens).key("ignore_eos").boolean(true);
  json.field("seed", int64_t{1}).key("stream").boolean(true).end_object();
  body.insert(body.size() - 1, more);
  return {"/v1/completions", body};
}

std::vector<LoadRequest> streams_of(size_t n, int64_t max_tokens, uint64_t seed) {
  std::vector<LoadRequest> out;
  for (const std::string& prompt : prompts_of(n, 20, seed)) out.push_back(stream_of(prompt, max_tokens));
  return out;
}

bool all_begun(const std::vector<LoadAnswer>& answers) {
  return std::all_of(answers.begin(), answers.end(), [](const LoadAnswer& a) { return a.events.size() > 2; });
}

bool is_empty(const ServeProcess& server) {
  const EngineView view = server.engine();
  return view.running + view.waiting + view.in_use == 0;
}

TEST_F(SlowPressure, ABurstBeyondTheQueueGets429AtOnceAndWhatRunsGoesOn) {
  ServeProcess server({"--ctx", "1024", "--max-sequences", "16", "--max-waiting", "24"});
  const std::vector<LoadRequest> honest = streams_of(16, 80, 1);
  std::vector<StreamContent> alone;
  for (const LoadRequest& request : honest) alone.push_back(read_stream(run_load(server.target(), {request}, 1)[0]));
  server.engine();
  const int n_descriptors = server.n_descriptors();

  LoadClient client(server.target());
  for (const LoadRequest& request : honest) client.start(request);
  ASSERT_TRUE(client.wait(kPatience, all_begun));
  LoadClient crowd(server.target());
  for (const LoadRequest& request : streams_of(300, 4, 2)) crowd.start(request);
  ASSERT_TRUE(client.wait_for_all(kPatience));
  ASSERT_TRUE(crowd.wait_for_all(kPatience));

  std::vector<double> seconds;
  int64_t n_served = 0;
  for (const LoadAnswer& a : crowd.answers()) {
    n_served += a.status == 200 && read_stream(a).done;
    if (a.status != 429) continue;
    seconds.push_back(a.head - a.sent);
    EXPECT_FALSE(a.retry_after.empty());
    EXPECT_NE(a.body.find("queue is full"), std::string::npos) << a.body;
  }
  const Percentiles p = percentiles_of(seconds);
  std::printf("%zu refusals: p50 %.1f ms, p99 %.1f ms, at most %.1f ms\n", p.n, p.p50 * 1e3, p.p99 * 1e3, p.max * 1e3);
  EXPECT_EQ(n_served, 24) << "as many as may wait";
  EXPECT_EQ(p.n, 300u - 24);
  if (wall_clock_counts()) {
    EXPECT_LE(p.max, 0.1);
  }
  const std::vector<LoadAnswer> answers = client.answers();
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_TRUE(same_bytes(alone[i], read_stream(answers[i]))) << i;
  EXPECT_TRUE(soon([&] { return is_empty(server); }));
  EXPECT_TRUE(soon([&] { return server.n_descriptors() <= n_descriptors; }));
}

constexpr int64_t kKvBytes = int64_t{256} << 20;

struct Beside {
  double p99 = 0;
  int64_t bytes = 0;  // the most, but for the KV cache
};

// Eight streams and eight more with long events, which are read or not: what the first eight see between tokens.
Beside eight_beside_eight(const ServeProcess& server, bool others_read, uint64_t seed) {
  Beside out;
  LoadClient client(server.target()), others(server.target());
  const auto n_ended = [&] { return server.metric("ibid_aborts_total{cause=\"slow_reader\"}"); };
  const double n_before = n_ended();
  std::vector<std::unique_ptr<RawClient>> slow;
  for (const std::string& prompt : prompts_of(8, 20, seed)) {
    const LoadRequest verbose = stream_of(prompt, 900, ",\"logprobs\":20");
    if (others_read) {
      others.start(verbose);
    } else {
      slow.push_back(std::make_unique<RawClient>(server.port(), 2048));
      slow.back()->send(RawClient::post_text(verbose.path, verbose.body));
    }
  }
  for (const LoadRequest& request : streams_of(8, 80, seed + 1)) client.start(request);
  while (!client.wait_for_all(0.2) && client.now() < kPatience)
    out.bytes = std::max(out.bytes, server.private_bytes(kKvBytes));
  std::vector<double> gaps;
  for (const LoadAnswer& a : client.answers()) {
    const StreamContent content = read_stream(a);
    EXPECT_TRUE(content.done) << content.error;
    gaps.insert(gaps.end(), content.gaps.begin(), content.gaps.end());
  }
  out.p99 = percentiles_of(gaps).p99;
  // Their answers are ten times as long, and on a busy machine one of them may not be so far behind yet.
  if (!others_read) {
    EXPECT_TRUE(soon([&] { return n_ended() == n_before + 8; }));
  }
  return out;
}

TEST_F(SlowPressure, StalledReadersSlowNoOtherAndAreEnded) {
  ServeProcess server({"--ctx", "1024", "--max-sequences", "16", "--kv-memory", "256M", "--send-buffer", "8K",
                       "--max-stream-backlog", "16K"});
  eight_beside_eight(server, true, 1);  // what a server makes once
  std::vector<double> with, without, bytes_with, bytes_without;
  for (uint64_t i = 0; i < 3; ++i) {
    const Beside a = eight_beside_eight(server, true, 10 + 10 * i), b = eight_beside_eight(server, false, 15 + 10 * i);
    without.push_back(a.p99);
    bytes_without.push_back(static_cast<double>(a.bytes));
    with.push_back(b.p99);
    bytes_with.push_back(static_cast<double>(b.bytes));
  }
  const double a = percentiles_of(without).p50, b = percentiles_of(with).p50;
  const double growth = (percentiles_of(bytes_with).max - percentiles_of(bytes_without).max) / 8 / 1024;
  const double n_ended = server.metric("ibid_aborts_total{cause=\"slow_reader\"}");
  std::printf(
      "between tokens p99 %.1f ms beside readers, %.1f ms beside those that do not read; %.0f ended; %.1f KiB each\n",
      a * 1e3, b * 1e3, n_ended, growth);
  if (wall_clock_counts()) {
    EXPECT_LE(b, 1.5 * a + 0.01);
  }
  EXPECT_EQ(n_ended, 24) << "each by the rule of --max-stream-backlog, while the others went on";
  EXPECT_LE(growth, 256) << "16 KiB are gathered, and what they become as JSON";
  EXPECT_TRUE(soon([&] { return is_empty(server); }));
}

// Steps from a client's going until `is_free` holds. Between the two looks at the engine a machine may do other things;
// the middle of five tries is what the server does.
template <typename Begin, typename IsFree>
int64_t steps_until_free(const ServeProcess& server, Begin begin, IsFree is_free) {
  std::vector<double> steps;
  for (int i = 0; i < 5; ++i) {
    LoadClient client(server.target());
    const size_t leaver = begin(client, i);
    const EngineView before = server.engine();
    EXPECT_FALSE(is_free(before));
    client.leave(leaver);
    EngineView after;
    EXPECT_TRUE(soon([&] {
      after = server.engine();
      return is_free(after);
    }));
    steps.push_back(static_cast<double>(after.steps - before.steps));
    for (size_t k = 0; k < client.answers().size(); ++k) client.leave(k);
    EXPECT_TRUE(soon([&] { return is_empty(server); }));
  }
  return static_cast<int64_t>(percentiles_of(steps).p50);
}

TEST_F(SlowPressure, AClientThatGoesFreesItsBlocksWithinTwoSteps) {
  ServeProcess server({"--ctx", "2048", "--max-sequences", "8", "--max-tokens-per-step", "256"});
  server.engine();
  const int n_descriptors = server.n_descriptors();
  const std::string long_prompt = prompts_of(1, 1500, 5)[0];

  const int64_t decode = steps_until_free(
      server,
      [](LoadClient& client, int) {
        const size_t leaver = client.start(stream_of("Once upon a time", 900));
        EXPECT_TRUE(client.wait(kPatience, all_begun));
        return leaver;
      },
      [](const EngineView& view) { return view.in_use == 0; });
  const int64_t prefill = steps_until_free(
      server,
      [&](LoadClient& client, int i) {
        const size_t leaver = client.start(stream_of(std::to_string(i) + long_prompt, 5));
        EXPECT_TRUE(soon([&] { return server.engine().in_use > 0; }));
        EXPECT_TRUE(client.answers()[leaver].events.empty());
        return leaver;
      },
      [](const EngineView& view) { return view.in_use == 0; });
  const int64_t queue = steps_until_free(
      server,
      [&](LoadClient& client, int i) {
        for (const LoadRequest& request : streams_of(8, 900, static_cast<uint64_t>(i))) client.start(request);
        EXPECT_TRUE(client.wait(kPatience, all_begun));
        const size_t leaver = client.start(stream_of("Once upon a time", 900));
        EXPECT_TRUE(soon([&] { return server.engine().waiting == 1; }));
        return leaver;
      },
      [](const EngineView& view) { return view.waiting == 0; });
  std::printf("steps until a client that went is forgotten: %lld in decode, %lld in prefill, %lld in the queue\n",
              static_cast<long long>(decode), static_cast<long long>(prefill), static_cast<long long>(queue));
  if (wall_clock_counts()) {  // a busy machine runs more steps between two looks
    EXPECT_LE(decode, 2);
    EXPECT_LE(prefill, 2);
    EXPECT_LE(queue, 2);
  }
  EXPECT_TRUE(soon([&] { return server.n_descriptors() <= n_descriptors; }));
}

}  // namespace
}  // namespace ibid::load
