// Tokens per second of prefill and of decode through the engine itself, so that what is measured is what users get:
// scheduling, sampling (greedy) and detokenising included. Flags and JSON keys as llama-bench has them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/json.h"
#include "base/quoted.h"
#include "cli/bench_case.h"
#include "cli/bench_spec.h"
#include "cli/drafters.h"
#include "cli/guess_prompts.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/step_profile.h"
#include "engine/engine.h"

namespace ibid::cli {
namespace {

struct Measured {
  BenchCase test;
  std::vector<double> seconds;
};

double mean(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

double deviation(const std::vector<double>& v) {
  if (v.size() < 2) return 0;
  double m = mean(v), sum = 0;
  for (double x : v) sum += (x - m) * (x - m);
  return std::sqrt(sum / static_cast<double>(v.size() - 1));
}

std::vector<BenchCase> cases(const BenchOptions& o) {
  std::vector<BenchCase> out;
  for (int32_t depth : o.depths) {
    for (int32_t n : o.n_prompt) {
      if (n > 0) out.push_back({.n_prompt = n, .depth = depth});
    }
  }
  std::vector<int32_t> streams = o.streams.empty() ? std::vector<int32_t>{1} : o.streams;
  std::vector<int32_t> n_gen = o.n_gen;
  // Streams that are asked for run alone where all else is switched off.
  const auto is_off = [](int32_t n) { return n <= 0; };
  if (!o.streams.empty() && std::ranges::all_of(n_gen, is_off)) n_gen = BenchOptions().n_gen;
  for (int32_t depth : o.depths) {
    for (int32_t n : n_gen) {
      for (int32_t s : streams) {
        if (n > 0) out.push_back({.n_gen = n, .n_streams = s, .depth = depth});
      }
    }
  }
  return out;
}

void print_json(const Loaded& loaded, const std::vector<Measured>& all) {
  std::printf("[\n");
  for (size_t i = 0; i < all.size(); ++i) {
    const Measured& m = all[i];
    std::vector<double> ts, ns;
    for (double s : m.seconds) ts.push_back(m.test.tokens() / s), ns.push_back(s * 1e9);
    auto list = [](const std::vector<double>& v, int digits) {
      std::string s;
      for (double x : v) s += fmt::format("{}{:.{}f}", s.empty() ? "" : ", ", x, digits);
      return s;
    };
    std::printf(
        "%s",
        fmt::format(
            "  {{\"build_number\": 0, \"build_commit\": \"ibid {}\", \"backends\": \"CPU\", \"cpu_isa\": \"{}\", "
            "\"model_filename\": {}, \"model_type\": \"{}\", \"model_size\": {}, \"model_n_params\": {}, "
            "\"n_threads\": {}, \"type_k\": \"{}\", \"type_v\": \"{}\", \"n_prompt\": {}, \"n_gen\": {}, "
            "\"n_depth\": {}, \"n_streams\": {}, \"avg_ns\": {:.0f}, \"stddev_ns\": {:.0f}, \"avg_ts\": {:.4f}, "
            "\"stddev_ts\": {:.4f}, \"samples_ns\": [{}], \"samples_ts\": [{}]}}{}\n",
            IBID_VERSION, isa_name(selected_isa()), Json(loaded.path).text(), loaded.description(),
            loaded.file->tensor_bytes(), loaded.model->config().n_parameters(), loaded.team->n_threads(),
            loaded.kv_name(), loaded.kv_name(), m.test.n_prompt, m.test.n_gen, m.test.depth, m.test.n_streams, mean(ns),
            deviation(ns), mean(ts), deviation(ts), list(ns, 0), list(ts, 3), i + 1 < all.size() ? "," : "")
            .c_str());
  }
  std::printf("]\n");
}

void print_rows(const Loaded& loaded, const std::vector<Measured>& all, bool csv) {
  if (csv) std::printf("model,threads,kv,test,avg_ts,stddev_ts\n");
  if (!csv) std::printf("| model | threads | kv | test | tokens/s |\n|---|--:|---|---|--:|\n");
  for (const Measured& m : all) {
    std::vector<double> ts;
    for (double s : m.seconds) ts.push_back(m.test.tokens() / s);
    const char* form = csv ? "{},{},{},{},{:.2f},{:.2f}\n" : "| {} | {} | {} | {} | {:.2f} \u00b1 {:.2f} |\n";
    std::printf("%s", fmt::format(fmt::runtime(form), loaded.description(), loaded.team->n_threads(), loaded.kv_name(),
                                  m.test.name(), mean(ts), deviation(ts))
                          .c_str());
  }
}

// One more run of each test, told op by op; steps are slower by the telling, some 50 ns an op.
Status run_profiled(Engine& engine, const std::vector<BenchCase>& tests, int32_t vocab_size, StepProfile& profile) {
  for (const BenchCase& test : tests) {
    double begin = 0;
    profile_ops(&profile);
    const auto done = run_once(engine, test, vocab_size, [&] {
      profile.begin(test.name());
      begin = steady_clock().now();
    });
    profile.end(steady_clock().now() - begin);
    profile_ops(nullptr);
    if (!done) return done.error();
  }
  return {};
}

int tell_profile(const Loaded& loaded, const StepProfile& profile, const std::string& trace) {
  std::printf("\n%s", profile.text(measure_limits(*loaded.team)).c_str());
  if (trace.empty()) return kOk;
  std::ofstream file(trace, std::ios::binary);
  file << profile.trace();
  file.close();
  return file ? kOk : fail(unavailable("the trace cannot be written to " + in_quotes(trace), "--trace"));
}

// Guesses are measured on texts that somebody could write: what bench computes otherwise is noise.
Status bench_guesses(const BenchOptions& options) {
  if (!options.streams.empty() || std::ranges::any_of(options.depths, [](int32_t n) { return n > 0; }) ||
      options.profile || !options.trace.empty()) {
    return invalid(
        "With --spec prompts are answered one after the other; leave --streams, --n-depth, --profile and "
        "--trace out.",
        "--spec");
  }
  const auto longest = std::ranges::max_element(options.n_gen);
  if (longest == options.n_gen.end() || *longest < 2) return invalid("-n must be 2 at least.", "-n");
  std::vector<GuessPrompt> texts = own_guess_prompts();
  if (!options.prompts.empty()) {
    ASSIGN_OR_RETURN(const std::string file, text_of_file(options.prompts));
    texts = guess_prompts(file);
    if (texts.empty()) return invalid("There is no prompt in " + in_quotes(options.prompts) + ".", "--prompts");
  }
  const StepLimits limits = with_drafters({.step_tokens = 512, .max_sequences = 1}, options.spec);
  ASSIGN_OR_RETURN(const Loaded loaded, load(options.model, limits));
  ASSIGN_OR_RETURN(const ChatTemplate chat, load_template(*loaded.file, *loaded.tokenizer));
  std::vector<std::pair<std::string, std::vector<TokenId>>> prompts;
  for (const GuessPrompt& text : texts) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, prompt_tokens(chat, *loaded.tokenizer, text.text));
    prompts.emplace_back(text.kind, std::move(ids));
  }
  EngineOptions engine_options = loaded.engine_options(limits);
  engine_options.prefix_cache = false;
  engine_options.max_itl = 1e6;
  engine_options.kv_bytes = loaded.kv_bytes_for(1, loaded.context_len, engine_options.block_len);
  ASSIGN_OR_RETURN(auto engine, Engine::create(*loaded.model, loaded.tokenizer, *loaded.stream, engine_options));
  engine->measure_steps();  // as a server does
  TRY(use_drafters(*engine, loaded, limits));
  Progress progress("answering");
  uint64_t done = 0;
  const uint64_t total = 2 * prompts.size() * static_cast<uint64_t>(options.repeats);
  const SpecBenchRun run{.n_tokens = *longest, .temperature = options.temperature, .repeats = options.repeats};
  ASSIGN_OR_RETURN(const SpecBenchResult result,
                   bench_spec(*engine, prompts, run, [&] { progress.update(++done, total); }));
  if (options.output == "md") {
    std::printf("%s", fmt::format("{}, {} threads, --spec {} --spec-k {}, T = {:g}, {} tokens an answer\n\n",
                                  loaded.description(), loaded.team->n_threads(), options.spec.name, options.spec.k,
                                  options.temperature, *longest)
                          .c_str());
  }
  std::printf("%s", spec_bench_text(result, options.output).c_str());
  return {};
}

}  // namespace

int bench(const BenchOptions& options) {
  if (options.spec.by_lookup) {
    const Status done = bench_guesses(options);
    return done.ok() ? kOk : fail(done.error());
  }
  if (!options.prompts.empty())
    return fail(invalid("--prompts are answered with --spec NAME alone, and it is off", "--prompts"), kUsage);
  std::vector<BenchCase> tests = cases(options);
  if (tests.empty()) return fail(invalid("nothing to measure: both -p and -n are 0"), kUsage);
  int32_t longest = 0, n_streams = 1, budget = 512;
  for (const BenchCase& c : tests) {
    longest = std::max(longest, c.longest());
    n_streams = std::max(n_streams, c.n_streams);
  }
  ModelArgs args = options.model;
  args.context_len = std::max(args.context_len, longest);
  const StepLimits limits = {.step_tokens = std::max(budget, n_streams), .max_sequences = n_streams};
  auto loaded = load(args, limits);
  if (!loaded) return fail(loaded.error());
  EngineOptions engine_options = loaded->engine_options(limits);
  engine_options.prefix_cache = false;
  engine_options.policy = PolicyKind::kFirstCome;  // prompts in whole steps
  engine_options.max_itl = 1e6;                    // and first: streams are measured once all of them decode
  // Room for all streams, and at least for the one full context that any engine has.
  engine_options.kv_bytes = std::max(loaded->kv_bytes_for(n_streams, longest, engine_options.block_len),
                                     loaded->kv_bytes_for(1, loaded->context_len, engine_options.block_len));
  auto engine = Engine::create(*loaded->model, loaded->tokenizer, *loaded->stream, engine_options);
  if (!engine) return fail(engine.error());

  std::vector<Measured> all;
  Progress progress("measuring");
  uint64_t done = 0, total = tests.size() * static_cast<uint64_t>(options.repeats + 1);
  for (const BenchCase& test : tests) {
    Measured m{test, {}};
    for (int32_t r = -1; r < options.repeats; ++r) {  // one run to warm up
      auto seconds = run_once(**engine, test, loaded->tokenizer->vocab_size());
      if (!seconds) return fail(seconds.error());
      if (r >= 0) m.seconds.push_back(*seconds);
      progress.update(++done, total);
    }
    all.push_back(std::move(m));
  }
  if (options.output == "json")
    print_json(*loaded, all);
  else
    print_rows(*loaded, all, options.output == "csv");
  if (!options.profile && options.trace.empty()) return kOk;
  StepProfile profile;
  if (Status ran = run_profiled(**engine, tests, loaded->tokenizer->vocab_size(), profile); !ran)
    return fail(ran.error());
  return tell_profile(*loaded, profile, options.trace);
}

}  // namespace ibid::cli
