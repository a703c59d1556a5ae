#include "cli/measure/bench_case.h"

namespace ibid::cli {
namespace {

// Tokens without a pattern, the same in every run.
std::vector<TokenId> some_tokens(int32_t n, int32_t vocab_size, uint32_t salt) {
  std::vector<TokenId> out;
  uint32_t x = 12345 + salt * 7919;
  for (int32_t i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    out.push_back(TokenId{static_cast<int32_t>((x >> 8) % static_cast<uint32_t>(vocab_size))});
  }
  return out;
}

}  // namespace

Result<double> run_once(Engine& engine, const BenchCase& test, int32_t vocab_size,
                        const std::function<void()>& on_start) {
  int32_t prompt_len = test.depth + (test.n_prompt > 0 ? test.n_prompt : (test.depth == 0 ? 1 : 0));
  double started = 0;
  const auto start = [&] {
    on_start();
    started = steady_clock().now();
  };
  start();
  for (int32_t i = 0; i < test.n_streams; ++i) {
    Request r;
    r.id = RequestId{static_cast<uint64_t>(i + 1)};
    r.prompt = some_tokens(prompt_len, vocab_size, static_cast<uint32_t>(i));
    r.sampling.temperature = 0;
    r.sampling.ignore_eos = true;
    r.max_tokens = test.n_gen + 1;
    if (!test.adapters.empty()) r.adapter = test.adapters[static_cast<size_t>(i) % test.adapters.size()];
    TRY(engine.submit(std::move(r)));
  }
  int32_t n_started = 0, n_finished = 0;
  int64_t n_computed = 0, n_before = 0;  // tokens of prompts: so far, and when the clock was started
  std::vector<uint8_t> has_token(static_cast<size_t>(test.n_streams) + 1, 0);
  std::vector<Output> outputs;
  while (n_finished < test.n_streams) {
    outputs.clear();
    if (test.n_prompt > 0 && n_before < test.depth && n_computed >= test.depth) {
      n_before = n_computed;
      start();
    }
    if (!engine.step(outputs))
      return exhausted("The engine stopped before the benchmark was over: there was not enough memory.");
    n_computed += engine.stats().step_prefill_tokens;
    for (const Output& o : outputs) {
      auto& seen = has_token[static_cast<size_t>(o.request)];
      if (!o.tokens.empty() && !seen) seen = 1, ++n_started;
      if (o.finished) ++n_finished;
      if (o.finished && o.reason == FinishReason::kError) return o.error();
    }
    if (test.n_prompt == 0 && n_started == test.n_streams && n_finished == 0 && has_token[0] == 0) {
      has_token[0] = 1;
      start();
    }
  }
  const double seconds = steady_clock().now() - started;
  if (test.n_prompt == 0) return seconds;
  // A step that went beyond the depth left fewer to measure.
  const double n_measured = static_cast<double>(n_computed - n_before) + test.n_gen;
  return seconds * (test.n_prompt + test.n_gen) / n_measured;
}

}  // namespace ibid::cli
