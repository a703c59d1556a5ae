// The flags of `ibid serve`. docs/users/limits.md states what happens beyond each limit.
#include <algorithm>

#include "base/json.h"
#include "base/quoted.h"
#include "base/utf8.h"
#include "cli/options/command_line.h"
#include "cli/options/model_names.h"
#include "cli/options/presets.h"
#include "server/dialects/dialects.h"

namespace ibid::cli {
namespace {

constexpr int64_t kKiB = 1 << 10, kGiB = 1 << 30;
constexpr double kDay = 86400;

std::string check_alias(const std::string& name) {
  const bool is_plain = std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  const bool fits = !name.empty() && name.size() <= 512 && is_plain && utf8::is_valid(name);
  return fits ? "" : "expected a name of 1 to 512 bytes without control characters";
}

std::string check_root_path(const std::string& path) {
  const auto may_stand = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '?' && c != '#' && c != '%'; };
  const bool is_path = path.size() > 1 && path.size() <= 512 && path.front() == '/' && path.back() != '/';
  return is_path && std::ranges::all_of(path, may_stand) ? ""
                                                         : "expected a path that starts with / and does not end with /";
}

void add_address(CLI::App* c, ServerOptions& o) {
  c->add_option("--host", o.host, "address to listen on")->type_name("ADDRESS")->capture_default_str();
  add_whole(c, "--port", o.port, 0, 65535, "port to listen on; 0: any free one");
  c->add_option("--uds", o.unix_socket, "Unix socket to listen on, instead of host and port")->type_name("PATH");
  CLI::Option* certificate = c->add_option("--ssl-cert-file,--ssl-certfile", o.tls_certificate_file,
                                           "certificate with its chain (PEM): serve TLS only")
                                 ->type_name("FILE");
  CLI::Option* key =
      c->add_option("--ssl-key-file,--ssl-keyfile", o.tls_key_file, "key of the certificate (PEM)")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  c->add_option("--root-path,--api-prefix", o.root_path, "path prefix that a proxy keeps, as /llm")
      ->type_name("PATH")
      ->check(CLI::Validator(check_root_path, ""));
  c->add_option("--api-key", o.api_keys, "key that clients must send, KEY or TENANT:KEY; repeatable (env IBID_API_KEY)")
      ->allow_extra_args(false)
      ->envname("IBID_API_KEY")
      ->type_name("KEY");
  c->add_option("--api-key-file", o.api_key_file, "file with one key per line, KEY or TENANT:KEY")->type_name("FILE");
  c->add_option("--alias", o.aliases, "another name of the model; repeatable")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->check(CLI::Validator(check_alias, ""));
  c->add_option("--tag", o.tags, "word that /v1/models shows for the model; repeatable")
      ->allow_extra_args(false)
      ->type_name("WORD")
      ->check(CLI::Validator(check_alias, ""));
  c->add_flag("--list-once", o.list_once, "list a model in /v1/models once, with its aliases");
  c->add_flag("--strict-model", o.strict_model, "refuse unknown model names with 404");
  c->add_option("--cors-origin", o.cors_origin, "origin of web pages that may call the API (* for any)")
      ->type_name("ORIGIN");
  c->add_option("--allow-host", o.allowed_hosts, "another host name that clients may use; repeatable")
      ->allow_extra_args(false)
      ->type_name("NAME");
  c->add_option("--allowed-media-domains", o.picture_hosts,
                "hosts from which pictures are fetched by address, HOST or HOST:PORT; default: none")
      ->type_name("HOST");
  add_seconds(c, "--media-timeout", o.picture_timeout, 0.1, 600, "time to fetch a picture");
  c->add_flag_callback(
      "--no-page", [&o] { o.page = false; }, "do not serve the web page at /");
}

void add_models(CLI::App* c, ServeOptions& o) {
  c->get_option("MODEL")->each([&o](const std::string&) { o.names_model = true; });
  c->add_option("MORE", o.more_models, "more models, loaded on first use");
  c->add_option("-m,--model", o.named_models, "model, and the name to serve it under; repeatable")
      ->allow_extra_args(false)
      ->type_name("[NAME=]MODEL")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const NamedModel model = named_model(text);
            if (model.typed.empty()) return "unknown value '" + text + "'; expected MODEL or NAME=MODEL";
            return check_alias(model.name);
          },
          ""));
  c->add_option("--models-dir", o.models_folder, "serve all models in this folder (GGUF files and model folders)")
      ->type_name("DIR");
  add_whole(c, "--models-max", o.max_models, 0, 1000, "models loaded at once; 0: as many as fit");
  c->add_flag_callback(
      "--no-models-autoload", [&o] { o.server.autoload = false; },
      "with several models: load only through /models/load, not on first use");
}

// Before all others: they are read in this order, so that each may override the preset.
void add_preset(CLI::App* c, ServeOptions& o) {
  c->add_option_function<std::string>(
       "--for", [&o](const std::string& name) { apply(**preset_by_name(name), o); },
       "preset: chat, offline, eval, agent or batch; other flags override it")
      ->check(CLI::Validator(
          [](const std::string& name) {
            const auto preset = preset_by_name(name);
            return preset ? std::string() : preset.error().message;
          },
          ""))
      ->type_name("NAME");
}

void add_engine(CLI::App* c, ServeOptions& o) {
  add_whole(c, "--max-sequences", o.max_sequences, 1, 4096, "maximum running sequences");
  add_whole(c, "--max-tokens-per-step", o.max_tokens_per_step, 1, 65536,
            "maximum tokens per step, at least --max-sequences");
  add_whole(c, "--max-waiting", o.max_waiting, 0, 1'000'000, "maximum waiting sequences; more get 429");
  add_read(c, "--policy", o.policy, "NAME", "fair", "scheduling policy: fair (weighted by tenant), priority, or fcfs",
           policy_by_name);
  add_read(c, "--max-itl", o.max_itl, "TIME", "by the model's speed",
           "limit on inter-token latency during prefill, as 50ms",
           [](std::string_view text) { return read_duration(text, 0.0001, kDay); });
  c->add_option("--chat-template", o.chat_template, "chat template to use instead of the model's")->type_name("FILE");
  c->add_option_function<std::string>(
       "--pooling", [&o](const std::string& name) { o.pooling = pooling_by_name(name); },
       "pooling of embeddings: mean, last, cls or none; default: the model's, else mean")
      ->check(CLI::IsMember({"mean", "last", "cls", "none"}))
      ->type_name("NAME");
  add_read(c, "--kv-memory", o.kv_bytes, "BYTES", "what --memory leaves", "size of the KV cache, as 2G",
           [](std::string_view text) { return read_bytes(text, 0, int64_t{1} << 50); });
  add_spec_options(c, o.spec);
  add_tier_options(c, o.tiers);
  add_lora_modules(c, o.model.adapters);
  add_lora_option(c, o.model.adapters, "adapter of requests that name none", &o.server.default_adapter);
  add_lora_limits(c, o.model.adapters, o.server.lora_updates);
  add_picture_options(c, o.model.pictures);
}

void add_life(CLI::App* c, ServerOptions& o) {
  c->add_option("--files-dir", o.files_folder, "folder for /v1/files and /v1/batches; batches continue after a restart")
      ->type_name("DIR");
  add_bytes(c, "--max-files-bytes", o.max_files_bytes, 1 << 20, int64_t{1} << 50, "maximum total size of these files");
  add_seconds(c, "--drain-timeout", o.drain_timeout, 0, kDay, "seconds to let running requests finish after SIGTERM");
  c->add_flag("--allow-moves", o.allow_moves, "serve /v1/requests/ID/move: a client may move its request to a replica");
  c->add_option("--drain-to", o.drain_to, "after SIGTERM move running requests to this replica and pass on its answers")
      ->type_name("URL");
  add_seconds(c, "--stall-timeout", o.stall_timeout, 0.1, kDay, "/health is 503 after so long without progress");
  c->add_option("--log-file", o.log_file, "append the log to this file; default: standard error")->type_name("FILE");
  c->add_flag("--log-json", o.log_json, "log JSON objects, one per line");
  c->add_flag_callback(
      "--no-request-log", [&o] { o.log_requests = false; }, "do not log requests");
}

void add_sight(CLI::App* c, ServeOptions& o) {
  c->add_option("--record", o.record, "record the engine's input to this new file, for ibid replay")->type_name("FILE");
  c->add_flag("--redact", o.redact, "record without what users wrote; replays scheduling only")->needs("--record");
  c->add_flag("--slots", o.server.slots, "serve /slots");
  c->add_option("--otlp", o.server.otlp_url, "send a span per request to this OpenTelemetry receiver (OTLP, JSON)")
      ->type_name("URL");
  c->add_option("--kv-events", o.server.kv_events.endpoint,
                "publish the cached blocks at this ZeroMQ endpoint, as vLLM: tcp://127.0.0.1:5557")
      ->type_name("ENDPOINT");
  c->add_option("--kv-events-replay", o.server.kv_events.replay_endpoint, "where subscribers ask for missed KV events")
      ->needs("--kv-events")
      ->type_name("ENDPOINT");
  c->add_option("--kv-events-topic", o.server.kv_events.topic, "topic of KV events, as kv@POD@MODEL")
      ->needs("--kv-events")
      ->type_name("TEXT");
  c->add_flag("--kv-events-arrays", o.server.kv_events.as_arrays, "KV events as arrays, for older subscribers")
      ->needs("--kv-events");
  add_read(c, "--metrics-names", o.server.metric_names, "NAMES", "ibid",
           "metric naming scheme: ibid, vllm or llama.cpp", metric_names_by_name);
}

void add_connections(CLI::App* c, ServerOptions& o) {
  add_whole(c, "--io-threads", o.io_threads, 1, 256, "threads for HTTP, tokenization and JSON");
  add_whole(c, "--max-connections", o.max_connections, 1, 1'000'000, "maximum connections; more get 503");
  add_whole(c, "--max-connections-per-address", o.max_connections_per_address, 1, 1'000'000,
            "maximum connections per address; more get 503");
  add_bytes(c, "--max-header-bytes", o.max_header_bytes, kKiB, 16 << 20,
            "maximum size of a request header; more gets 431");
  add_bytes(c, "--max-body-bytes", o.max_body_bytes, kKiB, kGiB, "maximum size of a request body; more gets 413");
  add_bytes(c, "--max-bodies-bytes", o.max_bodies_bytes, kKiB, 64 * kGiB,
            "maximum total size of incoming bodies; more gets 429");
  add_bytes(c, "--max-answers-bytes", o.max_answers_bytes, 1 << 20, 1024 * kGiB,
            "maximum total size of answers in progress; more gets 429");
  add_seconds(c, "--header-timeout", o.header_timeout, 0.01, kDay, "time to receive a header");
  add_seconds(c, "--body-timeout", o.body_timeout, 0.01, kDay, "time to receive a body");
  add_seconds(c, "--idle-timeout", o.idle_timeout, 0.01, kDay, "time between two requests of a connection");
  add_seconds(c, "--write-timeout", o.write_timeout, 0.01, kDay,
              "end the stream of a client that reads nothing for so long");
  add_bytes(c, "--max-stream-backlog", o.max_stream_backlog, kKiB, kGiB,
            "maximum buffered text of a slow reader; more ends its stream");
  add_read(c, "--send-buffer", o.send_buffer_bytes, "BYTES",
           o.send_buffer_bytes == 0 ? "the system's" : bytes_text(int64_t{o.send_buffer_bytes}),
           "kernel send buffer per connection", [](std::string_view text) { return read_bytes(text, 0, kGiB); });
}

Result<uint64_t> read_seed(std::string_view text) {
  ASSIGN_OR_RETURN(const int64_t seed, read_whole(text, 0, INT64_MAX));
  return static_cast<uint64_t>(seed);
}

Result<Json> read_object(std::string_view text) {
  Result<Json> value = parse_json(text);
  if (!value || value->object() == nullptr)
    return invalid("invalid value " + in_quotes(text, 64) + "; expected a JSON object");
  return value;
}

void add_defaults(CLI::App* c, RequestDefaults& o) {
  add_read(c, "--max-tokens,--n-predict", o.max_tokens, "N", "up to the context", "maximum tokens of an answer",
           [](std::string_view text) { return read_whole(text, -1, INT32_MAX); });
  add_read(c, "--seed", o.seed, "N", "random per request", "seed of requests without one", read_seed);
  add_read(c, "--chat-template-kwargs,--default-chat-template-kwargs", o.template_kwargs, "JSON", "",
           "template variables, as {\"enable_thinking\": false}", read_object);
  add_read(c, "--kv-eviction", o.kv_eviction, "METHOD:N", "none",
           "keys and values that answers keep, as snapkv:1024 or h2o:25%", parse_kv_eviction);
  c->add_flag("--enable-force-include-usage", o.include_usage, "include usage at the end of every stream");
  c->add_flag("--return-tokens-as-token-ids", o.tokens_as_ids, "show tokens in log-probabilities as token_id:ID");
  c->add_flag("--verbose", o.verbose, "include each chat's prompt in its answer, as __verbose.prompt");
  c->add_flag("--prefill-assistant", o.prefill, "continue a chat's last message if it is the assistant's");
  c->add_flag("--template-dates", o.template_dates, "pass today's date to the template; answers then change daily");
}

void add_requests(CLI::App* c, ApiLimits& o) {
  add_whole(c, "--max-n", o.max_n, 1, 4096, "maximum choices per prompt");
  add_whole(c, "--max-prompts", o.max_prompts, 1, 65536, "maximum prompts per request");
  add_whole(c, "--max-inputs", o.max_inputs, 1, 65536, "maximum inputs of an embeddings request");
  add_whole(c, "--max-choices", o.max_choices, 1, 65536, "maximum choices per request: n times its prompts");
  add_whole(c, "--max-logprobs", o.max_logprobs, 0, 1000, "maximum logprobs per token");
  add_whole(c, "--max-logit-bias", o.max_logit_bias, 0, kMaxTokenEntries, "maximum entries of logit_bias");
  add_whole(c, "--max-stops", o.max_stops, 0, 4096, "maximum stop strings, and stop ids");
  add_whole(c, "--max-stop-bytes", o.max_stop_bytes, 0, 1 << 20, "maximum total size of stop strings");
  add_whole(c, "--max-messages", o.max_messages, 1, 1'000'000, "maximum messages per conversation");
  add_whole(c, "--max-json-depth", o.json.max_depth, 4, 256, "maximum nesting of a body");
  add_whole(c, "--max-json-values", o.json.max_values, 64, 100'000'000, "maximum values in a body");
  c->add_flag("--allow-priority", o.allow_priority, "allow requests to set their priority");
}

}  // namespace

void add_serve_options(CLI::App* c, ServeOptions& o) {
  add_preset(c, o);
  add_positional_model(c, o.model.model);
  add_models(c, o);
  add_threads(c, o.model);
  add_machine_options(c, o.model);
  add_foreign_options(c, o.model);
  add_address(c, o.server);
  c->option_defaults()->group("Engine");
  add_engine(c, o);
  c->option_defaults()->group("Sampling defaults (else the model file's value, else the one shown)");
  add_sampling_options(c, o.sampling, SamplingScope::kDefaults);
  c->option_defaults()->group("Other request defaults");
  add_defaults(c, o.server.api.defaults);
  c->option_defaults()->group("Files, shutdown and log");
  add_life(c, o.server);
  c->option_defaults()->group("Observability");
  add_sight(c, o);
  c->option_defaults()->group("Connection limits");
  add_connections(c, o.server);
  c->option_defaults()->group("Request limits (more is a 400 that names the field)");
  add_requests(c, o.server.api);
  refuse_empty_values(c, Refusing::kAll);
  c->footer("Examples:\n  ibid serve\n  ibid serve model.gguf --port 9000 --ctx 8192 --api-key-file keys.txt");
}

}  // namespace ibid::cli
