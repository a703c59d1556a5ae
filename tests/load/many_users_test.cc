// Two hundred users of the real binary with the default model, and two thousand idle connections.
#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "bench/load/measure.h"
#include "serve_process.h"
#include "varied_requests.h"

namespace ibid::load {
namespace {

constexpr size_t kStreams = 200, kIdle = 2000;
constexpr int64_t kKvBytes = int64_t{512} << 20;

class SlowManyUsers : public DefaultModelTest {};

int64_t n_different(const std::vector<StreamContent>& alone, const std::vector<LoadAnswer>& answers) {
  int64_t n = 0;
  for (size_t i = 0; i < answers.size(); ++i) n += !same_bytes(alone[i], read_stream(answers[i]));
  return n;
}

TEST_F(SlowManyUsers, TwoHundredStreamsEqualEachAlone) {
  ServeProcess server({"--ctx", "1024", "--max-sequences", "256", "--kv-memory", "512M", "--max-waiting", "1000"});
  server.engine();
  const int n_descriptors = server.n_descriptors();
  std::vector<StreamContent> alone;
  for (const LoadRequest& request : varied_requests(kStreams, "alone")) {
    alone.push_back(read_stream(run_load(server.target(), {request}, 1)[0]));
    ASSERT_TRUE(alone.back().done && alone.back().error.empty()) << request.body << ": " << alone.back().error;
    ASSERT_GT(alone.back().completion_tokens, 0);
  }
  {
    IdleConnections idle(server.port(), kIdle);
    ASSERT_EQ(idle.n_ready(), kIdle);
    const int64_t cached_before = server.engine().cached_tokens;
    const std::vector<LoadAnswer> cold = run_load(server.target(), varied_requests(kStreams, "together"), 0);
    const int64_t cached_between = server.engine().cached_tokens;
    const std::vector<LoadAnswer> warm = run_load(server.target(), varied_requests(kStreams, "together"), 0);
    const int64_t cached_after = server.engine().cached_tokens;
    EXPECT_EQ(n_different(alone, cold), 0);
    EXPECT_EQ(n_different(alone, warm), 0);
    EXPECT_GT(cached_after - cached_between, 2 * (cached_between - cached_before)) << "the second pass finds prompts";
    EXPECT_EQ(idle.n_alive(50), kIdle / 50);
    const LoadFigures f = figures_of(cold);
    std::printf(
        "200 streams beside 2000 idle connections: %.0f tokens/s, first token p50 %.0f ms, between tokens p50 %.0f ms "
        "p99 %.0f ms\n",
        static_cast<double>(f.completion_tokens) / f.seconds, f.ttft.p50 * 1e3, f.itl.p50 * 1e3, f.itl.p99 * 1e3);
  }
  EXPECT_TRUE(soon([&] {
    const EngineView view = server.engine();
    return view.running + view.waiting + view.in_use == 0;
  }));
  EXPECT_TRUE(soon([&] { return server.n_descriptors() <= n_descriptors; }));
}

// A stream that lasts while memory is measured.
LoadRequest long_stream(const std::string& prompt) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().field("prompt", prompt).field("max_tokens", int64_t{600}).key("ignore_eos").boolean(true);
  json.field("seed", int64_t{1}).key("stream").boolean(true).end_object();
  return {"/v1/completions", body};
}

bool begin(LoadClient& client, const std::vector<std::string>& prompts) {
  for (const std::string& prompt : prompts) client.start(long_stream(prompt));
  return client.wait(kPatience, [&](const auto& answers) {
    return std::all_of(answers.begin(), answers.end(), [](const LoadAnswer& a) { return a.events.size() > 2; });
  });
}

// What a server makes once, when it first has so long a step and so many threads at work.
void warm_up(const ServeProcess& server) {
  for (int i = 0; i < 2; ++i) {
    LoadClient client(server.target());
    ASSERT_TRUE(begin(client, prompts_of(1, 350, 8)));
    ASSERT_TRUE(begin(client, prompts_of(20, 25, 9)));
  }
  ASSERT_TRUE(soon([&] { return server.engine().running == 0; }));
}

TEST_F(SlowManyUsers, AStreamCostsAtMost24KibibytesBeyondItsBlocks) {
  // No step is cut to keep latency, or on a busy machine the first streams would be over before the last begin.
  ServeProcess server({"--ctx", "1024", "--max-sequences", "256", "--kv-memory", "512M", "--max-itl", "60s"});
  warm_up(server);
  const auto bytes = [&] { return server.private_bytes(kKvBytes); };
  // What the largest step writes, 50 MiB of logits, comes in while the server is idle.
  ASSERT_TRUE(soon([&, before = int64_t{0}]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int64_t last = std::exchange(before, bytes());
    return before == last;
  }));
  const int64_t at_rest = bytes();
  IdleConnections idle(server.port(), kIdle);
  ASSERT_EQ(idle.n_ready(), kIdle);
  const int64_t with_idle = bytes();
  LoadClient client(server.target());
  ASSERT_TRUE(begin(client, prompts_of(100, 25, 10)));
  const int64_t with_100 = bytes();
  ASSERT_TRUE(begin(client, prompts_of(100, 25, 11)));
  const int64_t with_200 = bytes();
  ASSERT_EQ(server.engine().running, 200);
  const auto each = [](int64_t more, int64_t n) { return static_cast<double>(more) / static_cast<double>(n) / 1024; };
  std::printf("KiB: %.1f an idle connection, %.1f each of the first 100 streams, %.1f each of the next 100\n",
              each(with_idle - at_rest, kIdle), each(with_100 - with_idle, 100), each(with_200 - with_100, 100));
  EXPECT_LE(each(with_idle - at_rest, kIdle), 8);
  EXPECT_LE(each(with_200 - with_idle, 200), 24);
}

}  // namespace
}  // namespace ibid::load
