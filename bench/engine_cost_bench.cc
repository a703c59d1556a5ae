// The cost of a step besides the model: planning, blocks, the batch, settling and reporting, for 10 to 10,000 running
// sequences beside 100,000 cached blocks, and the cost of looking up a prefix of 32k tokens. Over a model that computes
// nothing, in the thread's own CPU time, so that other processes do not count.
//
//   engine_cost_bench [--cached 100000] [--len 512] [--sequences 10,100,1000,10000]
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/idle_model.h"

namespace ibid {
namespace {

class ThreadCpuClock final : public Clock {
 public:
  double now() const override {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
};

using testing::IdleModel;

struct Costs {  // seconds, one entry a step
  std::vector<double> all, plan, batch, settle;
};

double quantile(std::vector<double> v, double q) {
  std::ranges::sort(v);
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
}
double mean(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

class Bench {
 public:
  Bench(int32_t n_sequences, int32_t n_cached, int32_t len) : n_sequences_(n_sequences), len_(len) {
    auto model = std::make_unique<IdleModel>(kContextLen, clock_);
    model_ = model.get();
    EngineOptions options;
    options.block_len = 16;
    options.step_tokens = std::max(8192, 4 * n_sequences);
    options.max_sequences = n_sequences;
    options.max_waiting = 1 << 20;
    options.max_itl = 1e6;  // all prompts first, then nothing but decodes
    const int64_t n_blocks = n_cached + (len_ / 16 + 2) * static_cast<int64_t>(n_sequences) + kContextLen / 16 + 1;
    options.kv_bytes = n_blocks * KvStore::block_bytes(model->facts(), options.kv_dtype, options.block_len);
    engine_ = Engine::create(std::move(model), nullptr, stream_, options, clock_).value();
    // Old sequences, whose blocks stay: 2,048 each.
    for (int32_t i = 0; i < n_cached / 2048 + 2; ++i) submit(kPrefixLen + 1, 0, 1000 + static_cast<uint32_t>(i));
    drain();
  }

  // Microseconds of the step that looks the prefix up, and computes one token.
  double look_up() {
    submit(kPrefixLen + 2, 0, 1001);
    const double begin = clock_.now();
    step();
    const double seconds = clock_.now() - begin;
    drain();
    return 1e6 * seconds;
  }

  Costs decode(int n_steps) {
    for (int32_t i = 0; i < n_sequences_; ++i) submit(len_, 1 << 20, 100000 + static_cast<uint32_t>(i));
    while (engine_->stats().n_running < n_sequences_ || engine_->stats().step_prefill_tokens > 0) step();
    Costs out;
    for (int i = 0; i < n_steps; ++i) {
      const double begin = clock_.now();
      step();
      const double all = clock_.now() - begin;
      const EngineStats s = engine_->stats();
      out.plan.push_back(s.step_plan);
      out.batch.push_back(s.step_forward - model_->seconds());
      out.settle.push_back(s.step_settle);
      out.all.push_back(all - s.step_sample - model_->seconds());
    }
    engine_->cancel_all();
    drain();
    return out;
  }
  const EngineStats stats() const { return engine_->stats(); }

 private:
  static constexpr int32_t kPrefixLen = 32768, kContextLen = 40960;

  void submit(int32_t len, int32_t max_tokens, uint32_t salt) {
    Request r;
    r.id = RequestId{next_id_++};
    uint32_t x = salt * 2654435761u;
    for (int32_t i = 0; i < len; ++i) {
      x = x * 1664525u + 1013904223u;
      r.prompt.push_back(TokenId{static_cast<int32_t>(x >> 24) % IdleModel::kVocabSize});
    }
    r.sampling.temperature = 0;
    r.max_tokens = max_tokens;
    if (const Status taken = engine_->submit(std::move(r)); !taken) std::printf("%s\n", taken.error().message.c_str());
  }
  bool step() {
    outputs_.clear();
    return engine_->step(outputs_);
  }
  void drain() {
    while (step()) {
    }
  }

  int32_t n_sequences_, len_;
  ThreadTeam team_{1};
  Stream stream_{team_};
  ThreadCpuClock clock_;
  IdleModel* model_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::vector<Output> outputs_;
  uint64_t next_id_ = 1;
};

}  // namespace
}  // namespace ibid

int main(int argc, char** argv) {
  using namespace ibid;
  CLI::App app("what a step costs besides the model");
  int32_t n_cached = 100000, len = 512, n_steps = 320;
  std::vector<int32_t> sequences = {10, 30, 100, 300, 1000, 3000, 10000};
  app.add_option("--cached", n_cached);
  app.add_option("--len", len);
  app.add_option("--steps", n_steps);
  app.add_option("--sequences", sequences)->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  std::printf(
      "| sequences | cached blocks | a step, us: mean | p50 | p99 | plan | batch | settle | ns a sequence | look-up of "
      "32k, us |\n");
  std::printf("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const int32_t n : sequences) {
    Bench bench(n, n_cached, len);
    std::vector<double> look_ups;
    for (int i = 0; i < 9; ++i) look_ups.push_back(bench.look_up());
    const int32_t cached = bench.stats().blocks_cached;
    const Costs c = bench.decode(n_steps);
    std::printf("| %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", n, cached, 1e6 * mean(c.all),
                1e6 * quantile(c.all, 0.5), 1e6 * quantile(c.all, 0.99), 1e6 * mean(c.plan), 1e6 * mean(c.batch),
                1e6 * mean(c.settle), 1e9 * mean(c.all) / n, quantile(look_ups, 0.5));
    std::fflush(stdout);
  }
  return 0;
}
