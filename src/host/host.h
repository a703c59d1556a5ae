// Host: the one place where an engine is put together. Users are the command line, programs that embed ibid, and tests.
// The order is always this:
//
//   recorder's file -> load -> engine (tiers, store of the disk tier) -> proposers -> measure_steps -> recorder begins
//
// open() takes all of these steps. A command that needs what lies between, as a chat template that is read before an
// engine is made, takes them apart: prepare() and start(), or load() (host/loading.h) and start_engine().
//
// Ownership. A Hosted owns all that its engine refers to: file, tokenizer, thread team, stream, model, proposers'
// files, recorder. It may be moved. An engine that is taken out of it is destroyed before the rest.
//
// Threads. One thread at a time in the process calls these functions: load() and size() set the instruction set of all
// kernels (kernels/isa.h) and the choice of reference kernels, which are state of the whole process, and the placement
// of memory of the calling thread and of the team that it starts. The last call decides for every model of the process,
// so hosts that run beside each other name the same. They share nothing else: each engine belongs to the thread that
// calls its step(), and several step at once.
//
// A program that embeds ibid sets two more things for its process: the level of the log (base/log.h), and what happens
// when a model's file is cut short while it is mapped (base/mapped_file.h: end_where_files_are_cut; by default SIGBUS).
//
// Errors are sentences for a person; Error::where names the option at fault, as the command line spells it. What does
// not fit into memory is kExhausted, and nothing of it is held afterwards. Nothing throws.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/record/recorder.h"
#include "host/loading.h"

namespace ibid::host {

struct Hosted {
  // In this order: what comes later refers to what comes before.
  std::shared_ptr<Recorder> recorder;  // null: nothing is recorded
  Loaded loaded;
  std::unique_ptr<Engine> engine;  // null until start()

  Hosted() = default;
  Hosted(Hosted&&) = default;
  Hosted& operator=(Hosted&&) = delete;  // would let go in the wrong order
};

// prepare() and start(). Fetches and reads files; takes as long as that.
Result<Hosted> open(const HostOptions& options, const OnProgress& progress = {});

// The recorder's file is made, and the model loaded. A record's file that is there already is refused before that, and
// an encoder with a record after it.
Result<Hosted> prepare(const HostOptions& options, const OnProgress& progress = {});
// The model alone, sized and not loaded: fails wherever prepare() would fail for lack of memory.
Result<Loaded> size(const HostOptions& options, const OnProgress& progress = {});
// The engine of what prepare() returned, by the same options. After an error `hosted` has none and may be destroyed
// only.
Status start(Hosted& hosted, const HostOptions& options);

// What the process holds besides the model and its engine: options.beside, tiers, a record.
MemoryPlan memory_beside(const HostOptions& options);
// Of the engine that start() makes.
EngineOptions engine_options(const Loaded& loaded, const HostOptions& options);

// What start_engine() adds to an engine.
struct StartOptions {
  StepLimits limits = {};               // whose proposers draft, as they were loaded; by default none do
  bool measures = false;                // HostOptions::measures
  Recorder* recorder = nullptr;         // that has not begun, and outlives the engine; null: none
  std::string name = {};                // of the model, in the record
  const Clock& clock = steady_clock();  // outlives the engine; a recorder's own goes before it
};
// The engine of a loaded model, by options that a command has changed. `loaded` outlives it.
Result<std::unique_ptr<Engine>> start_engine(const Loaded& loaded, const EngineOptions& options,
                                             const StartOptions& start = {});

}  // namespace ibid::host
