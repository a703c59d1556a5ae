// --memory is a promise: whatever clients ask for, the process holds no more.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "bench/load/measure.h"
#include "serve_process.h"
#include "varied_requests.h"

namespace ibid::load {
namespace {

class SlowMemory : public DefaultModelTest {};

constexpr int32_t kContext = 2048;
constexpr size_t kAtOnce = 40;  // more than may run and wait, where some have many choices
constexpr size_t kNewAtOnce = 4;

struct Asked {
  size_t number = 0;
  int64_t n_tokens = 0;  // of all choices together
  bool stream = false;
};

// Anything that is allowed, the costly ones above all: long prompts and answers, many choices, all log-probabilities,
// grammars of their own.
LoadRequest hostile_request(std::mt19937_64& random, Asked& asked) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const int n_words = below(4) == 0 ? 1200 : 1 + below(300);
  const int64_t max_tokens = below(6) == 0 ? 700 : 1 + below(60);
  const int64_t n = below(5) == 0 ? 16 : 1 + below(3);
  asked.stream = below(2) == 0;
  asked.n_tokens = n * max_tokens;
  std::string body;
  JsonWriter json(body);
  json.begin_object().field("prompt", prompts_of(1, n_words, random())[0]).field("max_tokens", max_tokens);
  json.field("n", n).key("ignore_eos").boolean(true).key("stream").boolean(asked.stream);
  if (asked.stream) json.key("stream_options").raw(R"({"include_usage":true})");
  if (below(2) == 0) json.field("logprobs", int64_t{below(2) == 0 ? 20 : 3});
  if (below(6) == 0) {  // not shared, and without an end
    const std::string regex =
        "([A-Za-z ,.]{1," + std::to_string(1 + below(1000)) + "}[0-9]{1," + std::to_string(1 + below(100)) + "})*";
    json.key("structured_outputs").begin_object().field("regex", regex).end_object();
  }
  json.end_object();
  return {"/v1/completions", body};
}

// The generated tokens by the answer's usage; -1: none.
int64_t generated(const LoadAnswer& answer, bool stream) {
  const std::string& last =
      stream && answer.events.size() > 1 ? answer.events[answer.events.size() - 2].data : answer.body;
  const size_t at = last.rfind("\"completion_tokens\":");
  return at == std::string::npos ? -1 : std::atoll(last.c_str() + at + 20);
}

TEST_F(SlowMemory, HostileLoadStaysBelowTheLimitAndIsRefusedByQueueAlone) {
  const char* given = std::getenv("IBID_MEMORY_SECONDS");
  const double seconds = given != nullptr ? std::atof(given) : 180;
  constexpr int64_t kLimit = int64_t{640} << 20;
  ServeProcess server(
      {"--memory", "640M", "--ctx", std::to_string(kContext), "--max-sequences", "32", "--max-waiting", "24"});
  const int64_t at_start = server.peak_bytes();
  std::mt19937_64 random(11);
  LoadClient client(server.target());
  std::vector<std::unique_ptr<RawClient>> deaf;
  std::vector<Asked> asked;
  std::vector<size_t> left;
  while (client.now() < seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    size_t n_ended = 0;
    client.wait(0, [&](const std::vector<LoadAnswer>& answers) {
      n_ended = static_cast<size_t>(std::ranges::count_if(answers, &LoadAnswer::ended));
      return true;
    });
    const size_t n_new = std::min(kAtOnce - (asked.size() - n_ended), kNewAtOnce);
    for (size_t i = 0; i < n_new; ++i) {
      Asked more;
      const LoadRequest request = hostile_request(random, more);
      more.number = client.start(request);
      asked.push_back(more);
      if (random() % 8 == 0) {
        left.push_back(asked[asked.size() - 1 - random() % std::min(asked.size(), kAtOnce)].number);
        client.leave(left.back());
      }
      if (random() % 32 != 0) continue;
      deaf.push_back(std::make_unique<RawClient>(server.port(), 2048));  // sends requests and reads nothing
      deaf.back()->send(RawClient::post_text(request.path, request.body));
      if (deaf.size() > 16) deaf.erase(deaf.begin());
    }
  }
  deaf.clear();
  if (!client.wait_for_all(20)) {
    const std::vector<LoadAnswer> so_far = client.answers();
    for (const Asked& a : asked) {
      if (so_far[a.number].ended) continue;
      left.push_back(a.number);
      client.leave(a.number);
    }
  }
  int64_t n_whole = 0, n_refused = 0;
  const std::vector<LoadAnswer> answers = client.answers();
  for (const Asked& a : asked) {
    const LoadAnswer& answer = answers[a.number];
    if (std::ranges::find(left, a.number) != left.end()) continue;
    ASSERT_TRUE(answer.status == 200 || answer.status == 429) << answer.status << answer.body << answer.error;
    n_refused += answer.status == 429;
    if (answer.status != 200) continue;
    ++n_whole;
    EXPECT_EQ(generated(answer, a.stream), a.n_tokens) << "nothing is cut short";
  }
  const int64_t peak = server.peak_bytes();
  std::printf("%zu requests in %.0f s: %ld whole, %ld refused, %zu left; %.1f MiB at start, at most %.1f of %.1f\n",
              asked.size(), client.now(), static_cast<long>(n_whole), static_cast<long>(n_refused), left.size(),
              static_cast<double>(at_start) / (1 << 20), static_cast<double>(peak) / (1 << 20),
              static_cast<double>(kLimit) / (1 << 20));
  EXPECT_GT(n_whole, 20);
  EXPECT_GT(n_refused, 0);
  EXPECT_LT(peak, kLimit);
  EXPECT_TRUE(soon([&] {
    const EngineView view = server.engine();
    return view.running + view.waiting + view.in_use == 0;
  }));
}

}  // namespace
}  // namespace ibid::load
