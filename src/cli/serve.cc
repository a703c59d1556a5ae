// Serve a model over HTTP: hands the server an engine.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "base/quoted.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "engine/record/record_file.h"
#include "format/model_digest.h"
#include "format/registry.h"
#include "server/engine_backend.h"
#include "server/server.h"
#include "server/server_memory.h"

namespace ibid::cli {
namespace {

// What people call the model: the alias or hub name, the file's name otherwise.
constexpr size_t kMaxTemplate = 256 << 10;

std::string served_name(const std::string& typed, const std::string& path) {
  if (typed == "default") return std::string(kDefaultModel);
  if (!std::filesystem::exists(typed)) return typed;
  return std::filesystem::path(path).stem().string();
}

// The model's, or the operator's; the latter must be one.
Result<ChatTemplate> chat_template_from(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string source(kMaxTemplate + 1, '\0');
  file.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(file.gcount()));
  if (source.empty()) return not_found("There is no chat template in " + in_quotes(path) + ".", "--chat-template");
  Result<ChatTemplate> chat = ChatTemplate::for_model(source);
  if (!chat)
    return invalid("The chat template " + in_quotes(path) + " cannot be used: " + chat.error().message,
                   "--chat-template");
  return chat;
}

Result<std::unique_ptr<Backend>> load_backend(const ServeOptions& options) {
  const StepLimits limits = step_limits(options);
  MemoryPlan beside;
  add_server_parts(beside, options.server);
  add_tier_parts(beside, options.tiers);
  if (!options.record.empty()) beside.add("a record on its way to its file", record::FileWriter::kMaxBacklog);
  ASSIGN_OR_RETURN(Loaded loaded, load(options.model, limits, beside));
  const bool has_own = !options.chat_template.empty();
  Result<ChatTemplate> chat =
      has_own ? chat_template_from(options.chat_template) : load_template(*loaded.file, *loaded.tokenizer);
  if (has_own && !chat) return chat.error();
  if (!chat) log_warn("chat is switched off, completions are served: " + chat.error().message);
  std::string digest = model_digest(*loaded.file).hex();

  EngineOptions engine_options = loaded.engine_options(limits);
  engine_options.policy = options.policy;
  engine_options.max_itl = options.max_itl;
  engine_options.model_digest = digest;
  use_tiers(options.tiers, kv_bytes_of_block(*loaded.model, engine_options.kv_dtype, engine_options.block_len),
            engine_options);
  std::shared_ptr<Recorder> recorder;
  if (!options.record.empty()) {
    ASSIGN_OR_RETURN(recorder, Recorder::create({.path = options.record, .redact = options.redact}));
  }
  ASSIGN_OR_RETURN(auto engine, Engine::create(*loaded.model, loaded.tokenizer, *loaded.stream, engine_options,
                                               recorder ? recorder->clock() : steady_clock()));
  TRY(use_draft_model(*engine, loaded, limits));
  if (recorder) recorder->begin(*engine, served_name(options.model.model, loaded.path), loaded.team->n_threads());
  ModelInfo info{
      .name = served_name(options.model.model, loaded.path),
      .architecture = loaded.model->config().architecture,
      .digest = digest,
      .context_len = loaded.context_len,
      .created =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      .sampling = sampling_defaults(*loaded.file, options.sampling),
      .width = static_cast<int32_t>(loaded.model->config().width),
      .pooling = options.pooling.value_or(loaded.model->config().pooling.value_or(Pooling::kMean))};
  auto tokenizer = loaded.tokenizer;
  auto backend = make_engine_backend({.info = std::move(info),
                                      .tokenizer = std::move(tokenizer),
                                      .chat_template = std::move(chat),
                                      .engine = std::move(engine),
                                      .recorder = std::move(recorder),
                                      .keep = std::make_shared<Loaded>(std::move(loaded))});
  backend->limit_grammars(options.server.max_grammars_bytes);
  return backend;
}

}  // namespace

int serve(const ServeOptions& options) {
  if (!options.record.empty() && !options.tiers.disk_folder.empty()) {
    return fail(invalid("--record does not go with --cache-disk yet: what a disk gives, and when, would not be in the "
                        "record"),
                kUsage);
  }
  if (options.max_tokens_per_step < options.max_sequences) {
    return fail(invalid(fmt::format("--max-tokens-per-step {} cannot serve --max-sequences {}: each needs a token of "
                                    "every step",
                                    options.max_tokens_per_step, options.max_sequences)),
                kUsage);
  }
  ServeOptions fitted = options;
  fitted.server.api.max_drafts = options.spec.max_drafts();
  fitted.server.n_places = int64_t{options.max_sequences} + options.max_waiting;
  fit_server(fitted.server, options.model.memory_bytes);
  return run_server(fitted.server, [&options = fitted] { return load_backend(options); });
}

}  // namespace ibid::cli
