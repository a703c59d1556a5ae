// Statistics of steps for operators, against a model that counts them itself.
#include <map>

#include "conformance/engine_server.h"

namespace ibid {
namespace {

// Knows from positions alone what is prompt and what is answer, and how long it took.
class CountingModel final : public ForwardPass {
 public:
  CountingModel(ManualClock& clock, int32_t prompt_len) : clock_(clock), prompt_len_(prompt_len) {}
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    const double seconds = 0.002 * static_cast<double>(1 + n_steps % 5);
    clock_.advance(seconds);
    model_.run(batch, kv, logits, hidden);
    for (int32_t i = 0; i < batch.n_tokens; ++i) ++(batch.positions[i] < prompt_len_ ? n_prefill : n_decode);
    total_seconds = total_seconds + seconds;
    ++n_steps;
  }
  std::atomic<int64_t> n_steps = 0, n_prefill = 0, n_decode = 0;
  std::atomic<double> total_seconds = 0;

 private:
  ManualClock& clock_;
  int32_t prompt_len_;
  testing::FakeModel model_{EngineServer::kContext};
};

// One step is long: it gets on with its loops, or one task of them never ends until it is let go.
class LongStepModel final : public ForwardPass {
 public:
  const ModelFacts& facts() const override { return model_.facts(); }
  void run(const ForwardBatch& batch, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    is_inside = true;
    for (const double end = steady_clock().now() + seconds; steady_clock().now() < end;) {
      team->parallel_for(1, [](int64_t, int) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    }
    team->parallel_for(1, [this](int64_t, int) { hangs.wait(true); });
    model_.run(batch, kv, logits, hidden);
    is_inside = false;
  }
  ThreadTeam* team = nullptr;
  std::atomic<double> seconds = 0;
  std::atomic<bool> hangs = false, is_inside = false;

 private:
  testing::FakeModel model_{EngineServer::kContext};
};

double sample_of(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::strtod(metrics.c_str() + at + name.size() + 2, nullptr);
}

TEST(ServerSteps, EveryStepIsInTheMetricsAndInTheViewAlsoThoseWithoutOutput) {
  constexpr int32_t kPromptLen = 150, kStepTokens = 16, kAnswerLen = 7, kRequests = 6;
  EngineOptions options;
  options.max_sequences = 3;
  options.step_tokens = kStepTokens;
  options.prefix_cache = false;
  ManualClock clock;
  auto owned = std::make_unique<CountingModel>(clock, kPromptLen);
  CountingModel& model = *owned;
  EngineServer server(options, std::move(owned), 2000, {}, clock);
  std::vector<std::thread> clients;
  for (int c = 0; c < kRequests; ++c) {
    clients.emplace_back([&server, c] {
      const std::string prompt(kPromptLen, static_cast<char>('A' + c));
      const HttpAnswer a =
          RawClient(server.port())
              .post("/v1/completions", "{\"prompt\":\"" + prompt + "\",\"max_tokens\":" + std::to_string(kAnswerLen) +
                                           ",\"ignore_eos\":true}");
      EXPECT_EQ(a.status, 200) << a.body;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(model.n_prefill, kRequests * kPromptLen);
  EXPECT_EQ(model.n_decode, kRequests * (kAnswerLen - 1));
  ASSERT_GT(model.n_steps, kRequests * kPromptLen / kStepTokens);

  // An answer may be there a moment before its last step is.
  const auto n_steps = static_cast<double>(model.n_steps);
  std::string metrics;
  EXPECT_TRUE(eventually([&] {
    metrics = RawClient(server.port()).get("/metrics").body;
    return sample_of(metrics, "ibid_step_seconds_count") == n_steps;
  })) << sample_of(metrics, "ibid_step_seconds_count")
      << " of " << n_steps << " steps";
  EXPECT_EQ(sample_of(metrics, "ibid_steps_total"), n_steps);
  EXPECT_NEAR(sample_of(metrics, "ibid_step_seconds_sum"), model.total_seconds, 1e-6);
  EXPECT_NEAR(sample_of(metrics, "ibid_step_part_seconds_total{part=\"forward\"}"), model.total_seconds, 1e-6);
  EXPECT_EQ(sample_of(metrics, "ibid_step_tokens_total{kind=\"prefill\"}"), kRequests * kPromptLen);
  EXPECT_EQ(sample_of(metrics, "ibid_step_tokens_total{kind=\"decode\"}"), kRequests * (kAnswerLen - 1));

  const Result<Json> view = parse_json(RawClient(server.port()).get("/engine").body);
  int64_t n_shown = 0, n_prefill = 0, n_decode = 0;
  double forward_ms = 0;
  for (const Json& step : *view->find("steps")->array()) {
    EXPECT_EQ(*step.find("n")->integer(), ++n_shown) << "no step is left out";
    n_prefill += *step.find("prefill")->integer();
    n_decode += *step.find("decode")->integer();
    forward_ms += step.find("forward_ms")->number();
  }
  EXPECT_EQ(n_shown, model.n_steps);
  EXPECT_EQ(n_prefill, model.n_prefill);
  EXPECT_EQ(n_decode, model.n_decode);
  EXPECT_NEAR(forward_ms / 1e3, model.total_seconds, 1e-6);
}

struct LongSteps {
  static constexpr double kStall = 0.4;
  static ServerOptions options() {
    ServerOptions out;
    out.stall_timeout = kStall;
    return out;
  }
  std::unique_ptr<LongStepModel> owned = std::make_unique<LongStepModel>();
  LongStepModel& model = *owned;
  EngineServer server{{}, std::move(owned), 2000, options()};

  LongSteps() { model.team = &server.team(); }
  HttpAnswer health() const { return RawClient(server.port()).get("/health"); }
  std::thread ask() const {
    return std::thread([this] {
      const HttpAnswer a = RawClient(server.port()).post("/v1/completions", R"({"prompt":"ABC","max_tokens":1})");
      EXPECT_EQ(a.status, 200) << a.body;
    });
  }
};

// By hand: a machine that stops this process for the stall's time gives it a stall.
TEST(ByHandServerSteps, ALongStepIsNoStall) {
  LongSteps s;
  LongStepModel& model = s.model;
  model.seconds = 2.5 * LongSteps::kStall;
  std::thread first = s.ask();
  EXPECT_TRUE(eventually([&] { return model.is_inside.load(); }));
  int n_ready = 0;
  for (HttpAnswer a = s.health(); model.is_inside; a = s.health()) {
    EXPECT_EQ(a.status, 200) << a.body;
    ++n_ready;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GT(n_ready, 5);
  first.join();
}

TEST(ServerSteps, AStepThatHangsIsAStall) {
  LongSteps s;
  LongStepModel& model = s.model;
  model.hangs = true;
  std::thread second = s.ask();
  EXPECT_TRUE(eventually([&] { return s.health().body.find("\"stalled\"") != std::string::npos; }));
  model.hangs = false;
  model.hangs.notify_all();
  second.join();
  EXPECT_TRUE(eventually([&] { return s.health().status == 200; }));
}

}  // namespace
}  // namespace ibid
