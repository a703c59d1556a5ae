// Tokens per second of prefill and of decode through the engine itself, so that what is measured is what users get:
// scheduling, sampling (greedy) and detokenising included. Flags and JSON keys as llama-bench has them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>

#include "base/quoted.h"
#include "cli/measure/bench_case.h"
#include "cli/measure/bench_rows.h"
#include "cli/measure/bench_spec.h"
#include "cli/measure/draft_prompts.h"
#include "cli/measure/step_profile.h"
#include "cli/options/options.h"
#include "cli/options/text_file.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "engine/engine.h"
#include "host/host.h"

namespace ibid::cli {
namespace {

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
    for (const auto& [n_prompt, n] : o.prompt_gen) out.push_back({.n_prompt = n_prompt, .n_gen = n, .depth = depth});
  }
  for (int32_t depth : o.depths) {
    for (int32_t n : n_gen) {
      for (int32_t s : streams) {
        if (n > 0) out.push_back({.n_gen = n, .n_streams = s, .depth = depth});
      }
    }
  }
  return out;
}

// One more run of each test, timed op by op; this makes steps slower, by some 50 ns an op.
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

// FixedProposer are measured on texts that somebody could write: what bench computes otherwise is noise.
Status bench_drafts(const BenchOptions& options) {
  if (!options.streams.empty() || std::ranges::any_of(options.depths, [](int32_t n) { return n > 0; }) ||
      options.profile || !options.trace.empty()) {
    return invalid(
        "With --spec prompts are answered one after the other; leave --streams, --n-depth, --profile and "
        "--trace out.",
        "--spec");
  }
  const auto longest = std::ranges::max_element(options.n_gen);
  if (longest == options.n_gen.end() || *longest < 2) return invalid("-n must be 2 at least.", "-n");
  std::vector<DraftPrompt> texts = own_draft_prompts();
  if (!options.prompts.empty()) {
    ASSIGN_OR_RETURN(const std::string file, text_of_file(options.prompts));
    texts = draft_prompts(file);
    if (texts.empty()) return invalid("There is no prompt in " + in_quotes(options.prompts) + ".", "--prompts");
  }
  const host::StepLimits limits = {.step_tokens = 512, .max_sequences = 1, .spec = options.spec};
  ASSIGN_OR_RETURN(const host::Loaded loaded, host::load(options.model, limits, {}, terminal_progress()));
  ASSIGN_OR_RETURN(const ChatTemplate chat, host::load_template(*loaded.file, *loaded.tokenizer));
  std::vector<std::pair<std::string, std::vector<TokenId>>> prompts;
  for (const DraftPrompt& text : texts) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids, prompt_tokens(chat, *loaded.tokenizer, text.text));
    prompts.emplace_back(text.kind, std::move(ids));
  }
  EngineOptions engine_options = loaded.engine_options(limits);
  engine_options.prefix_cache = false;
  engine_options.max_itl = 1e6;
  engine_options.kv_bytes = loaded.kv_bytes_for(1, loaded.context_len, engine_options.block_len);
  // Measured as a server's is.
  ASSIGN_OR_RETURN(auto engine, host::start_engine(loaded, engine_options, {.limits = limits, .measures = true}));
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

// What of the lists one run of all tests has.
struct Combination {
  ModelArgs model;
  int32_t n_batch = 0, n_ubatch = 0;
};

std::vector<Combination> combinations(const BenchOptions& o) {
  std::vector<Combination> out;
  const auto models = o.models.empty() ? std::vector<std::string>{o.model.model} : o.models;
  const auto threads = o.threads.empty() ? std::vector<int32_t>{o.model.threads} : o.threads;
  const auto dtypes = o.kv_dtypes.empty() ? std::vector<KvTypes>{o.model.kv_dtype} : o.kv_dtypes;
  for (const std::string& model : models) {
    for (int32_t n_batch : o.n_batch) {
      for (int32_t n_ubatch : o.n_ubatch) {
        for (const KvTypes& dtype : dtypes) {
          for (int32_t n_threads : threads) {
            Combination& c = out.emplace_back(Combination{.model = o.model, .n_batch = n_batch, .n_ubatch = n_ubatch});
            c.model.model = model;
            c.model.kv_dtype = dtype;
            c.model.own_kv_dtype &= o.kv_dtypes.empty();
            c.model.threads = n_threads;
          }
        }
      }
    }
  }
  return out;
}

// All tests of one combination; their rows are added.
Status bench_one(const BenchOptions& options, const Combination& one, const std::vector<BenchCase>& tests,
                 const std::function<void()>& on_run, std::vector<BenchRow>& rows, std::string& profiled) {
  int32_t longest = 0, n_streams = 1;
  for (const BenchCase& c : tests) {
    longest = std::max(longest, c.longest());
    n_streams = std::max(n_streams, c.n_streams);
  }
  ModelArgs args = one.model;
  args.context_len = std::max(args.context_len, longest);
  const int32_t budget = std::min(one.n_batch, one.n_ubatch);
  const host::StepLimits limits = {.step_tokens = std::max(budget, n_streams), .max_sequences = n_streams};
  ASSIGN_OR_RETURN(const host::Loaded loaded, host::load(args, limits, {}, terminal_progress()));
  EngineOptions engine_options = loaded.engine_options(limits);
  engine_options.prefix_cache = false;
  engine_options.policy = PolicyKind::kFirstCome;  // prompts in whole steps
  engine_options.max_itl = 1e6;                    // and first: streams are measured once all of them decode
  // Room for all streams, and at least for the one full context that any engine has.
  engine_options.kv_bytes = std::max(loaded.kv_bytes_for(n_streams, longest, engine_options.block_len),
                                     loaded.kv_bytes_for(1, loaded.context_len, engine_options.block_len));
  ASSIGN_OR_RETURN(auto engine, host::start_engine(loaded, engine_options));
  std::vector<BenchCase> cases = tests;
  for (BenchCase& test : cases) {
    if (loaded.adapters == nullptr) break;
    for (const AdapterShelf::Entry& entry : loaded.adapters->list()) test.adapters.push_back(entry.placed);
  }
  for (const BenchCase& test : cases) {
    BenchRow row = bench_row(loaded, test, one.n_batch, one.n_ubatch);
    for (int32_t r = options.warms_up ? -1 : 0; r < options.repeats; ++r) {
      ASSIGN_OR_RETURN(const double seconds, run_once(*engine, test, loaded.tokenizer->vocab_size()));
      if (r >= 0) row.seconds.push_back(seconds);
      on_run();
    }
    rows.push_back(std::move(row));
  }
  if (!options.profile && options.trace.empty()) return {};
  StepProfile profile;
  TRY(run_profiled(*engine, cases, loaded.tokenizer->vocab_size(), profile));
  profiled = "\n" + profile.text(measure_limits(*loaded.team));
  if (options.trace.empty()) return {};
  std::ofstream file(options.trace, std::ios::binary);
  file << profile.trace();
  file.close();
  return file ? Status() : unavailable("the trace cannot be written to " + in_quotes(options.trace), "--trace");
}

// With --spec one combination is measured.
Status check_spec(const std::vector<Combination>& all, const BenchOptions& options) {
  if (all.size() > 1 || !options.prompt_gen.empty())
    return invalid("With --spec one model is measured, with one number of threads; leave lists and -pg out.", "--spec");
  return {};
}

}  // namespace

int bench(const BenchOptions& given) {
  BenchOptions options = given;
  const std::vector<Combination> all = combinations(options);
  if (options.spec.by_lookup) {
    if (const Status fine = check_spec(all, options); !fine) return fail(fine.error(), kUsage);
    options.model = all.front().model;
    const Status done = bench_drafts(options);
    return done.ok() ? kOk : fail(done.error());
  }
  if (!options.prompts.empty())
    return fail(invalid("--prompts are answered with --spec NAME alone, and it is off", "--prompts"), kUsage);
  const std::vector<BenchCase> tests = cases(options);
  if (tests.empty()) return fail(invalid("nothing to measure: both -p and -n are 0"), kUsage);
  if (all.size() > 1 && !options.trace.empty())
    return fail(invalid("--trace is of one combination; leave lists of models, threads, types and batches out"),
                kUsage);
  std::vector<BenchRow> rows;
  std::string profiled;
  std::unique_ptr<Progress> progress;
  uint64_t done = 0;
  const uint64_t total =
      all.size() * tests.size() * static_cast<uint64_t>(options.repeats + (options.warms_up ? 1 : 0));
  for (const Combination& one : all) {
    std::string more;
    const Status measured = bench_one(
        options, one, tests,
        [&] {
          if (!progress) progress = std::make_unique<Progress>("measuring");
          progress->update(++done, total);
        },
        rows, more);
    progress.reset();  // loading has one of its own
    if (!measured) return fail(measured.error());
    profiled += more;
  }
  std::fputs((bench_text(rows, options.output) + profiled).c_str(), stdout);
  return kOk;
}

}  // namespace ibid::cli
