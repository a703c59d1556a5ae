#include "host/host.h"

#include <utility>

#include "base/caught.h"
#include "format/model_digest.h"
#include "host/proposers.h"

namespace ibid::host {
namespace {

Result<Hosted> prepare_whole(const HostOptions& options, const OnProgress& progress) {
  Hosted out;
  if (!options.record.file.empty()) {
    ASSIGN_OR_RETURN(out.recorder, Recorder::create({.path = options.record.file, .redact = options.record.redact}));
  }
  ASSIGN_OR_RETURN(out.loaded, load(options.model, options.limits, memory_beside(options), progress));
  if (out.recorder && out.loaded.model->config().is_encoder())
    return unsupported("--record keeps the tokens of answers; an encoder makes none", "--record");
  return out;
}

Result<std::unique_ptr<Engine>> engine_of(const Loaded& loaded, const EngineOptions& options,
                                          const StartOptions& start) {
  std::unique_ptr<DurableStore> store;
  if (start.recorder != nullptr && !options.disk_folder.empty()) {
    ASSIGN_OR_RETURN(store, Engine::open_store(*loaded.model, options));
    store = start.recorder->recording(std::move(store));
  }
  ASSIGN_OR_RETURN(auto engine,
                   Engine::create(*loaded.model, loaded.tokenizer, *loaded.stream, options,
                                  start.recorder != nullptr ? start.recorder->clock() : start.clock, std::move(store)));
  TRY(use_proposers(*engine, loaded, start.limits));
  if (start.measures) engine->measure_steps();
  if (start.recorder != nullptr) start.recorder->begin(*engine, start.name, loaded.team->n_threads());
  return engine;
}

}  // namespace

MemoryPlan memory_beside(const HostOptions& options) {
  MemoryPlan out = options.beside;
  add_tier_parts(out, options.tiers);
  if (!options.record.file.empty()) out.add("a record on its way to its file", record::FileWriter::kMaxBacklog);
  return out;
}

Result<Loaded> size(const HostOptions& options, const OnProgress& progress) {
  return size(options.model, options.limits, memory_beside(options), progress);
}

EngineOptions engine_options(const Loaded& loaded, const HostOptions& options) {
  EngineOptions out = loaded.engine_options(options.limits);
  out.policy = options.policy;
  out.max_itl = options.max_itl;
  use_tiers(options.tiers, kv_bytes_of_block(*loaded.model, out.kv_dtype, out.block_len), out);
  if (options.has_digest || !options.tiers.disk_folder.empty() || !options.record.file.empty())
    out.model_digest = model_digest(*loaded.file).hex();
  return out;
}

Result<Hosted> prepare(const HostOptions& options, const OnProgress& progress) {
  return caught([&] { return prepare_whole(options, progress); });
}

Status start(Hosted& hosted, const HostOptions& options) {
  const StartOptions start = {.limits = options.limits,
                              .measures = options.measures,
                              .recorder = hosted.recorder.get(),
                              .name = options.name.empty() ? options.model.model : options.name};
  return caught([&]() -> Status {
    ASSIGN_OR_RETURN(hosted.engine, engine_of(hosted.loaded, engine_options(hosted.loaded, options), start));
    return {};
  });
}

Result<Hosted> open(const HostOptions& options, const OnProgress& progress) {
  ASSIGN_OR_RETURN(Hosted out, prepare(options, progress));
  TRY(start(out, options));
  return out;
}

Result<std::unique_ptr<Engine>> start_engine(const Loaded& loaded, const EngineOptions& options,
                                             const StartOptions& start) {
  return caught([&] { return engine_of(loaded, options, start); });
}

}  // namespace ibid::host
