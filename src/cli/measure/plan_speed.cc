#include "cli/measure/plan_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/measure/bench_case.h"
#include "cli/terminal/progress.h"
#include "host/host.h"
#include "spec/gain.h"

namespace ibid::cli {
namespace {

// So many bytes of layers do not fit a cache that the whole model would not fit.
constexpr int64_t kMeasuredBytes = int64_t{512} << 20;
constexpr int32_t kPrompt = 512, kTokens = 24, kShort = 64, kLong = 1088, kRuns = 3;

struct StepSeconds {
  double prefill = 0;                   // of kPrompt tokens
  double one = 0;                       // of a step of one stream, at its beginning
  double deep = 0;                      // the same with kLong tokens before
  double many = 0;                      // of a step of all streams, with kShort tokens before
  double two = 0, three = 0, five = 0;  // the same of so many
};

Result<double> median_of(Engine& engine, const BenchCase& test, int32_t vocab_size) {
  std::vector<double> seconds;
  TRY(run_once(engine, test, vocab_size));
  for (int i = 0; i < kRuns; ++i) {
    ASSIGN_OR_RETURN(const double s, run_once(engine, test, vocab_size));
    seconds.push_back(s);
  }
  std::ranges::sort(seconds);
  return seconds[kRuns / 2] / (test.n_gen > 0 ? test.n_gen : 1);
}

Result<StepSeconds> measure(const host::Loaded& sized, int64_t n_layers, int32_t n_wanted) {
  const int32_t n_streams = std::max(n_wanted, kRowCounts.back());
  const int32_t context = std::min(sized.context_len, kLong + kTokens + 8);
  const host::StepLimits limits{
      .step_tokens = std::max(512, n_streams), .max_sequences = n_streams, .max_waiting = n_streams};
  ASSIGN_OR_RETURN(const host::Loaded layers, host::load_layers(sized, n_layers, context, limits));
  EngineOptions options = layers.engine_options(limits);
  options.prefix_cache = false;
  options.max_itl = 1e6;  // prompts first: streams are measured once all of them decode
  const int64_t block = kv_bytes_of_block(*layers.model, layers.kv_dtype, options.block_len);
  const int64_t n_tokens = std::max<int64_t>(context, int64_t{n_streams} * (kShort + kTokens + 2 * options.block_len));
  options.kv_bytes = (n_tokens / options.block_len + n_streams + 2) * block;
  ASSIGN_OR_RETURN(auto engine, host::start_engine(layers, options));
  const int32_t vocab_size = sized.tokenizer->vocab_size();
  const auto fits = [&](int32_t n) { return std::min(n, context - kTokens - 2); };
  StepSeconds out;
  ASSIGN_OR_RETURN(out.prefill, median_of(*engine, {.n_prompt = fits(kPrompt)}, vocab_size));
  ASSIGN_OR_RETURN(out.one, median_of(*engine, {.n_gen = kTokens, .depth = fits(kShort)}, vocab_size));
  ASSIGN_OR_RETURN(out.deep, median_of(*engine, {.n_gen = kTokens, .depth = fits(kLong)}, vocab_size));
  ASSIGN_OR_RETURN(out.many,
                   median_of(*engine, {.n_gen = kTokens, .n_streams = n_wanted, .depth = fits(kShort)}, vocab_size));
  double* const rows[] = {&out.two, &out.three, &out.five};
  for (size_t i = 0; i < kRowCounts.size(); ++i) {
    ASSIGN_OR_RETURN(*rows[i], median_of(*engine, {.n_gen = kTokens, .n_streams = kRowCounts[i], .depth = fits(kShort)},
                                         vocab_size));
  }
  return out;
}

}  // namespace

Result<PredictedSpeed> predict_speed(const host::Loaded& sized, int32_t n_streams, int32_t depth, int64_t n_layers) {
  const int64_t n_all = sized.model->config().n_layers, L = n_layers > 0 ? n_layers : n_all;
  const int64_t of_layer = std::max<int64_t>(1, static_cast<int64_t>(sized.file->tensor_bytes()) / (n_all + 1));
  // Whole runs of recurrent layers and the one that attends after them.
  const std::vector<LayerConfig>& layers = sized.model->config().layers;
  const auto attends = std::ranges::find_if(
      layers, [](const LayerConfig& l) { return l.mixer == Mixer::kAttention || l.mixer == Mixer::kLatent; });
  const int64_t run = attends - layers.begin() + 1;
  const int64_t at_most = std::min(L, std::max<int64_t>(4, kMeasuredBytes / of_layer));
  const int64_t n_few = (std::max<int64_t>(1, at_most / 2) + run - 1) / run * run,
                n_many = std::min(L, std::max(at_most, 2 * n_few));
  Progress progress("measuring");
  ASSIGN_OR_RETURN(const StepSeconds many, measure(sized, n_many == n_all ? 0 : n_many, n_streams));
  progress.update(1, 2);
  StepSeconds few = many;
  if (n_many < L) {
    ASSIGN_OR_RETURN(few, measure(sized, n_few, n_streams));
  }
  progress.update(2, 2);
  const auto whole = [&](double StepSeconds::*of) {
    return n_many == L ? many.*of
                       : many.*of + (many.*of - few.*of) * static_cast<double>(L - n_many) /
                                        static_cast<double>(n_many - n_few);
  };
  const double one = whole(&StepSeconds::one), of_position = (whole(&StepSeconds::deep) - one) / (kLong - kShort);
  const double streams = whole(&StepSeconds::many) + n_streams * std::max(0.0, of_position) * (depth - kShort);
  return PredictedSpeed{
      .prefill = kPrompt / whole(&StepSeconds::prefill),
      .one = 1 / one,
      .position = std::max(0.0, of_position),
      .streams = n_streams / streams,
      .rows = {whole(&StepSeconds::two) / one, whole(&StepSeconds::three) / one, whole(&StepSeconds::five) / one}};
}

std::string speculation_advice(const PredictedSpeed& target, double c, int32_t max_drafts) {
  // Between the counts that were measured, and beyond them, a straight line; a row more never takes less.
  const auto v = [&](int32_t n_rows) {
    double last_rows = 1, last = 1, slope = 0;
    for (size_t i = 0; i < kRowCounts.size(); ++i) {
      const double now = std::max(last, target.rows[i]);
      slope = (now - last) / (kRowCounts[i] - last_rows);
      if (n_rows <= kRowCounts[i]) break;
      last_rows = kRowCounts[i], last = now;
    }
    return last + slope * (n_rows - last_rows);
  };
  const auto best = [&](double a) {
    std::pair<int32_t, double> out{0, 1};
    for (int32_t k = 1; k <= max_drafts; ++k) {
      if (const double gain = speedup(a, k, c, v(1 + k)); gain > out.second) out = {k, gain};
    }
    return out;
  };
  std::string out = fmt::format("speculation, 1 stream: a step of 2, 3, 5 rows takes {:.2f}, {:.2f}, {:.2f} of one",
                                v(2), v(3), v(5));
  out += c > 0 ? fmt::format("; a draft {:.3f}\n", c) : "; drafts that cost nothing:\n";
  for (const double a : {0.4, 0.5, 0.6, 0.7, 0.8, 0.9}) {
    const auto [k, gain] = best(a);
    out += k == 0 ? fmt::format("  {:.1f} of the drafts right: does not pay\n", a)
                  : fmt::format("  {:.1f} of the drafts right: {:.2f} times as fast, {} drafts a step\n", a, gain, k);
  }
  int32_t percent = 1;
  while (percent < 100 && best(percent / 100.0).first == 0) ++percent;
  out += percent < 100 ? fmt::format("  it pays from {:.2f} on\n", percent / 100.0) : std::string("  it never pays\n");
  return out;
}

}  // namespace ibid::cli
