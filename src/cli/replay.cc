// Run a record of `ibid serve --record` again, and show the life of one of its requests.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "base/caught.h"
#include "base/clock.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "engine/record/life.h"
#include "engine/record/replay.h"
#include "format/model_digest.h"
#include "host/host.h"
#include "kernels/arithmetic_version.h"

namespace ibid::cli {
namespace {

struct Parts {
  std::unique_ptr<ThreadTeam> team;  // without a model
  std::unique_ptr<Stream> stream;
  host::Loaded loaded;
  std::unique_ptr<Engine> engine;
};

// The engine as it was, with the model; refuses another one.
Status make_with_model(const ReplayOptions& options, Replay& replay, Parts& parts) {
  const record::Head& head = replay.head();
  if (head.is_redacted) {
    return invalid(
        "The record is redacted: its tokens are not those that the model computes. Without --model its "
        "scheduling runs again.");
  }
  if (head.disk.image_bytes > 0) {
    return invalid(
        "The record is of an engine with a disk tier: it has which blocks came from there, but not their keys and "
        "values, which tokens would be computed from. Without --model its scheduling runs again.");
  }
  if (head.arithmetic != arithmetic_id()) {
    return unsupported(
        fmt::format("The record is of arithmetic {}, this ibid computes by {}; without --model its "
                    "scheduling runs again.",
                    head.arithmetic, arithmetic_id()));
  }
  ModelArgs args = options.model;
  args.context_len = head.context_len;
  args.kv_dtype = head.options.kv_dtype;
  const host::StepLimits limits = {.step_tokens = head.options.step_tokens,
                                   .max_sequences = head.options.max_sequences,
                                   .max_waiting = head.options.max_waiting,
                                   .max_rows = head.options.max_rows,
                                   .kv_bytes = head.options.kv_bytes};
  ASSIGN_OR_RETURN(parts.loaded, host::load(args, limits, {}, terminal_progress()));
  const std::string digest = model_digest(*parts.loaded.file).hex();
  if (digest != head.options.model_digest) {
    return invalid(fmt::format("The record is of another model ({}, digest {:.12}); this one has the digest {:.12}.",
                               head.model, head.options.model_digest, digest));
  }
  if (AdapterShelf* shelf = parts.loaded.adapters.get(); shelf != nullptr)
    replay.use_adapters([shelf](const std::string& of) { return shelf->find_digest(of); });
  ASSIGN_OR_RETURN(parts.engine, host::start_engine(parts.loaded, replay.options(), {.clock = replay.clock()}));
  return {};
}

Result<int> run(const ReplayOptions& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Replay> replay, Replay::open(options.file));
  const record::Head& head = replay->head();
  Parts parts;
  if (options.with_model) {
    TRY(make_with_model(options, *replay, parts));
  } else {
    parts.team = std::make_unique<ThreadTeam>(1);
    parts.stream = std::make_unique<Stream>(*parts.team);
    ASSIGN_OR_RETURN(parts.engine, replay->engine_without_model(*parts.stream));
  }
  Life life(*replay, RequestId{options.request});
  const double begin = steady_clock().now();
  ASSIGN_OR_RETURN(const ReplayResult result,
                   replay->run(*parts.engine, parts.loaded.tokenizer, options.request > 0 ? &life : nullptr));
  const double seconds = steady_clock().now() - begin;
  if (options.request > 0) {
    std::fputs(life.text().c_str(), stdout);
    if (!life.is_known()) return int{kFailed};
    if (!options.svg.empty() && !(std::ofstream(options.svg) << life.svg()).flush())
      return unavailable("The picture " + options.svg + " cannot be written.");
  }
  std::fprintf(stderr, "%s\n",
               fmt::format("{}: ibid {}, {}{}, {} kernels, {} threads; {} requests, {} steps, {} tokens in {:.3f} s{}",
                           options.file, head.version, head.model, head.is_redacted ? " (redacted)" : "", head.isa,
                           head.n_threads, result.n_requests, result.n_steps, result.n_tokens, result.seconds,
                           result.end.empty() ? "" : "; " + result.end)
                   .c_str());
  if (!result.difference.empty()) {
    std::fprintf(stderr, "different from the record, first at %s\n", result.difference.c_str());
    return int{kTestFailed};
  }
  std::fprintf(
      stderr, "%s\n",
      fmt::format("replayed {} in {:.3f} s: every step is the same ({})",
                  options.with_model ? "with the model" : "without a model", seconds,
                  !options.with_model      ? "batches and blocks; tokens came from the record"
                  : result.n_recorded == 0 ? "batches, blocks, tokens"
                                           : fmt::format("batches, blocks, tokens; {} of these depend on their "
                                                         "drafts (speculation.verifier) and came from the record",
                                                         result.n_recorded))
          .c_str());
  return int{kOk};
}

}  // namespace

int replay(const ReplayOptions& options) {
  const Result<int> code = caught([&] { return run(options); });
  return code ? *code : fail(code.error());
}

}  // namespace ibid::cli
