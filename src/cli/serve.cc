// Serve a model over HTTP: fills the server's options and hands it an engine.
#include <chrono>
#include <filesystem>

#include "cli/loading.h"
#include "cli/options.h"
#include "format/model_digest.h"
#include "server/engine_backend.h"
#include "server/server.h"

namespace ibid::cli {
namespace {

// What people call the model: the alias or hub name as typed, the file's name otherwise.
std::string served_name(const std::string& typed, const std::string& path) {
  if (!std::filesystem::exists(typed) && typed != "default") return typed;
  return std::filesystem::path(path).stem().string();
}

Result<std::unique_ptr<Backend>> load_backend(const ServeOptions& options) {
  StepLimits limits{.max_tokens = options.max_tokens_per_step, .max_sequences = options.max_sequences};
  ASSIGN_OR_RETURN(Loaded loaded, load(options.model, limits));
  ASSIGN_OR_RETURN(ChatTemplate chat, load_template(*loaded.file, *loaded.tokenizer));
  std::string digest = model_digest(*loaded.file).hex();

  EngineOptions engine_options = loaded.engine_options(limits);
  engine_options.max_waiting = options.max_waiting;
  engine_options.kv_bytes = options.kv_bytes;
  engine_options.model_digest = digest;
  ASSIGN_OR_RETURN(auto engine, Engine::create(*loaded.model, loaded.tokenizer, *loaded.stream, engine_options));
  ModelInfo info{
      .name = served_name(options.model.model, loaded.path),
      .architecture = loaded.model->config().architecture,
      .digest = digest,
      .context = loaded.context,
      .created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()};
  auto tokenizer = loaded.tokenizer;
  return make_engine_backend({.info = std::move(info),
                              .tokenizer = std::move(tokenizer),
                              .chat_template = std::move(chat),
                              .engine = std::move(engine),
                              .keep = std::make_shared<Loaded>(std::move(loaded))});
}

}  // namespace

int serve(const ServeOptions& options) {
  ServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.api_keys = options.api_keys;
  server.api_key_file = options.api_key_file;
  server.cors_origin = options.cors_origin;
  server.log_json = options.json_log;
  server.drain_timeout = options.drain_seconds;
  return run_server(server, [&options] { return load_backend(options); });
}

}  // namespace ibid::cli
