// The flags of `ibid serve`. What each bound does when it is passed stands in docs/users/serving.md.
#include <algorithm>

#include "base/json.h"
#include "base/quoted.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "cli/loading.h"
#include "cli/presets.h"
#include "server/dialects.h"

namespace ibid::cli {
namespace {

constexpr int64_t kKiB = 1 << 10, kGiB = 1 << 30;
constexpr double kDay = 86400;

std::string check_alias(const std::string& name) {
  const bool is_plain = std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  const bool fits = !name.empty() && name.size() <= 512 && is_plain && utf8::is_valid(name);
  return fits ? "" : "a name is a text of 1 to 512 bytes without control characters";
}

std::string check_root_path(const std::string& path) {
  const auto may_stand = [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '?' && c != '#' && c != '%'; };
  const bool is_path = path.size() > 1 && path.size() <= 512 && path.front() == '/' && path.back() != '/';
  return is_path && std::ranges::all_of(path, may_stand) ? "" : "a root path begins with / and does not end with it";
}

void add_address(CLI::App* c, ServerOptions& o) {
  c->add_option("--host", o.host, "address to listen on")->capture_default_str();
  add_whole(c, "--port", o.port, 0, 65535, "port to listen on (0: any free one)");
  c->add_option("--uds", o.unix_socket, "Unix socket to listen at, instead of host and port")->type_name("PATH");
  CLI::Option* certificate = c->add_option("--ssl-cert-file,--ssl-certfile", o.tls_certificate_file,
                                           "certificate and its chain (PEM): TLS alone")
                                 ->type_name("FILE");
  CLI::Option* key =
      c->add_option("--ssl-key-file,--ssl-keyfile", o.tls_key_file, "the certificate's key (PEM)")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  c->add_option("--root-path,--api-prefix", o.root_path, "before every path, where a proxy leaves it there: /llm")
      ->type_name("PATH")
      ->check(CLI::Validator(check_root_path, ""));
  c->add_option("--api-key", o.api_keys, "key that clients must send, KEY or TENANT:KEY; may be repeated")
      ->allow_extra_args(false)
      ->envname("IBID_API_KEY")
      ->type_name("KEY");
  c->add_option("--api-key-file", o.api_key_file, "file with one such key a line")->type_name("FILE");
  c->add_option("--alias", o.aliases, "further name of the model; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->check(CLI::Validator(check_alias, ""));
  c->add_option("--tag", o.tags, "word that /v1/models tells of the model; may be repeated")
      ->allow_extra_args(false)
      ->type_name("WORD")
      ->check(CLI::Validator(check_alias, ""));
  c->add_flag("--list-once", o.list_once,
              "list a model in /v1/models under its own name alone, with its aliases beside");
  c->add_flag("--strict-model", o.strict_model, "404 for a model's name that is neither its own nor an alias");
  c->add_option("--cors-origin", o.cors_origin, "origin of web pages that may call (* for any)")->type_name("ORIGIN");
  c->add_option("--allow-host", o.allowed_hosts, "further name that clients may call this server by; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME");
  c->add_flag_callback(
      "--no-page", [&o] { o.page = false; }, "answer the API alone, without the page at /");
}

void add_models(CLI::App* c, ServeOptions& o) {
  c->get_option("MODEL")->each([&o](const std::string&) { o.names_model = true; });
  c->add_option("MORE", o.more_models, "further models, loaded when they are first asked for by name");
  c->add_option("-m,--model", o.named_models, "a model, and the name that it is served by; may be repeated")
      ->allow_extra_args(false)
      ->type_name("[NAME=]MODEL")
      ->check(CLI::Validator(
          [](const std::string& text) {
            const NamedModel model = named_model(text);
            if (model.typed.empty()) return "'" + text + "' is no model: write MODEL, or NAME=MODEL";
            return check_alias(model.name);
          },
          ""));
  c->add_option("--models-dir", o.models_folder, "folder of GGUF files and of models' folders, all of them served")
      ->type_name("DIR");
  add_whole(c, "--models-max", o.max_models, 0, 1000,
            "of several models, how many may be loaded at once (0: as many as fit)");
  c->add_flag_callback(
      "--no-models-autoload", [&o] { o.server.autoload = false; },
      "of several models, load one where /models/load asks for it and not for who uses it");
}

// Before all others: they are read in this order, so that each may say otherwise than the preset.
void add_preset(CLI::App* c, ServeOptions& o) {
  c->add_option_function<std::string>(
       "--for", [&o](const std::string& name) { apply(**preset_by_name(name), o); },
       "defaults for who asks: chat, offline, eval, agent or batch (docs/users/serving.md)")
      ->check(CLI::Validator(
          [](const std::string& name) {
            const auto preset = preset_by_name(name);
            return preset ? std::string() : preset.error().message;
          },
          ""))
      ->type_name("NAME");
}

void add_engine(CLI::App* c, ServeOptions& o) {
  add_whole(c, "--max-sequences", o.max_sequences, 1, 4096, "sequences that run at once");
  add_whole(c, "--max-tokens-per-step", o.max_tokens_per_step, 1, 65536,
            "token budget of a step, at least one for each sequence that runs");
  add_whole(c, "--max-waiting", o.max_waiting, 0, 1'000'000, "sequences that may wait; more get 429");
  add_read(
      c, "--policy", o.policy, "NAME", "fair",
      "who goes first: fair, tenants by their weights, and of each as priority; priority, then the shortest prompt; "
      "or fcfs, who came first alone",
      policy_by_name);
  add_read(c, "--max-itl", o.max_itl, "TIME", "by the model's speed",
           "time between tokens, as 50ms, that prompts of others may cause; they are computed in pieces that fit",
           [](std::string_view text) { return read_duration(text, 0.0001, kDay); });
  c->add_option("--chat-template", o.chat_template, "file with a chat template in the place of the model's own")
      ->type_name("FILE");
  c->add_option_function<std::string>(
       "--pooling", [&o](const std::string& name) { o.pooling = pooling_by_name(name); },
       "which hidden states /v1/embeddings makes a text's vector of: mean, last or cls, the first (as the model's file "
       "says, else mean); none: a vector for each token (/pooling, /embedding)")
      ->check(CLI::IsMember({"mean", "last", "cls", "none"}))
      ->type_name("NAME");
  add_read(c, "--kv-memory", o.kv_bytes, "BYTES", "chosen", "memory for keys and values, as 2G or 512M",
           [](std::string_view text) { return read_bytes(text, 0, int64_t{1} << 50); });
  add_spec_options(c, o.spec);
  add_tier_options(c, o.tiers);
}

void add_life(CLI::App* c, ServerOptions& o) {
  c->add_option("--files-dir", o.files_folder,
                "folder for /v1/files and /v1/batches, which go on where they were when the server starts again")
      ->type_name("DIR");
  add_bytes(c, "--max-files-bytes", o.max_files_bytes, 1 << 20, int64_t{1} << 50, "all files there, together");
  add_seconds(c, "--drain-timeout", o.drain_timeout, 0, kDay, "how long what runs may take after SIGTERM");
  add_seconds(c, "--stall-timeout", o.stall_timeout, 0.1, kDay,
              "/health is 503 when work waits and the engine has not turned for so long");
  c->add_option("--log-file", o.log_file, "append the log to this file (standard error)")->type_name("FILE");
  c->add_flag("--log-json", o.log_json, "one JSON object a line instead of text");
  c->add_flag_callback(
      "--no-request-log", [&o] { o.log_requests = false; },
      "no line for each request; what the server itself does is still said");
}

void add_sight(CLI::App* c, ServeOptions& o) {
  c->add_option("--record", o.record, "write all that enters the engine to this new file, for ibid replay")
      ->type_name("FILE");
  c->add_flag("--redact", o.redact, "record without what users wrote; scheduling alone replays")->needs("--record");
  c->add_flag("--slots", o.server.slots, "answer /slots, which tells how many requests run");
  c->add_option("--otlp", o.server.otlp_url, "send a span for each request to this OpenTelemetry receiver (OTLP, JSON)")
      ->type_name("URL");
  add_read(c, "--metrics-names", o.server.metric_names, "NAMES", "ibid",
           "what /metrics calls what it tells: ibid, vllm or llama.cpp", metric_names_by_name);
}

void add_connections(CLI::App* c, ServerOptions& o) {
  add_whole(c, "--io-threads", o.io_threads, 1, 256, "threads that read, write, tokenise and write JSON");
  add_whole(c, "--max-connections", o.max_connections, 1, 1'000'000, "connections; more get 503");
  add_whole(c, "--max-connections-per-address", o.max_connections_per_address, 1, 1'000'000,
            "connections of one address; more get 503");
  add_bytes(c, "--max-header-bytes", o.max_header_bytes, kKiB, 16 << 20, "a request's header; more gets 431");
  add_bytes(c, "--max-body-bytes", o.max_body_bytes, kKiB, kGiB, "a request's body; more gets 413");
  add_bytes(c, "--max-bodies-bytes", o.max_bodies_bytes, kKiB, 64 * kGiB,
            "all bodies that are on their way, together; more gets 429");
  add_bytes(c, "--max-answers-bytes", o.max_answers_bytes, 1 << 20, 1024 * kGiB,
            "what answers under way may come to hold, together; more gets 429");
  add_seconds(c, "--header-timeout", o.header_timeout, 0.01, kDay, "from a header's first byte to its last");
  add_seconds(c, "--body-timeout", o.body_timeout, 0.01, kDay, "for the whole body");
  add_seconds(c, "--idle-timeout", o.idle_timeout, 0.01, kDay, "between two requests of a connection");
  add_seconds(c, "--write-timeout", o.write_timeout, 0.01, kDay,
              "a client that takes no byte for so long has its stream ended");
  add_bytes(c, "--max-stream-backlog", o.max_stream_backlog, kKiB, kGiB,
            "text gathered for a client that does not read; more ends its stream");
  add_read(c, "--send-buffer", o.send_buffer_bytes, "BYTES",
           o.send_buffer_bytes == 0 ? "the system's" : bytes_text(int64_t{o.send_buffer_bytes}),
           "what the kernel may hold for a connection, besides that backlog",
           [](std::string_view text) { return read_bytes(text, 0, kGiB); });
}

Result<uint64_t> read_seed(std::string_view text) {
  ASSIGN_OR_RETURN(const int64_t seed, read_whole(text, 0, INT64_MAX));
  return static_cast<uint64_t>(seed);
}

Result<Json> read_object(std::string_view text) {
  Result<Json> value = parse_json(text);
  if (!value || value->object() == nullptr) return invalid(in_quotes(text, 64) + " is no JSON object");
  return value;
}

void add_defaults(CLI::App* c, RequestDefaults& o) {
  add_read(c, "--max-tokens,--n-predict", o.max_tokens, "N", "up to the context", "tokens of an answer",
           [](std::string_view text) { return read_whole(text, -1, INT32_MAX); });
  add_read(c, "--seed", o.seed, "N", "one of its own for each", "seed of all requests that name none", read_seed);
  add_read(c, "--chat-template-kwargs,--default-chat-template-kwargs", o.template_kwargs, "JSON", "none",
           "object of variables for the chat template, as {\"enable_thinking\": false}", read_object);
  c->add_flag("--enable-force-include-usage", o.include_usage, "tell the usage at the end of each stream");
  c->add_flag("--return-tokens-as-token-ids", o.tokens_as_ids, "spell tokens in log-probabilities by their ids");
  c->add_flag("--verbose", o.verbose, "tell each chat's prompt in its answer, as __verbose.prompt");
  c->add_flag("--prefill-assistant", o.prefill,
              "go on from a chat's last message where it is the assistant's, without continue_final_message");
  c->add_flag("--template-dates", o.template_dates,
              "give the chat template date_string and datetime, today's: an answer's bytes then change with the day");
}

void add_requests(CLI::App* c, ApiLimits& o) {
  add_whole(c, "--max-n", o.max_n, 1, 4096, "choices of a prompt");
  add_whole(c, "--max-prompts", o.max_prompts, 1, 65536, "prompts of a request");
  add_whole(c, "--max-inputs", o.max_inputs, 1, 65536, "texts of an embeddings request");
  add_whole(c, "--max-choices", o.max_choices, 1, 65536, "choices of a request: n times its prompts");
  add_whole(c, "--max-logprobs", o.max_logprobs, 0, 1000, "candidates beside each token");
  add_whole(c, "--max-logit-bias", o.max_logit_bias, 0, kMaxTokenEntries, "entries of logit_bias");
  add_whole(c, "--max-stops", o.max_stops, 0, 4096, "stop texts, and stop ids");
  add_whole(c, "--max-stop-bytes", o.max_stop_bytes, 0, 1 << 20, "all stop texts of a request, together");
  add_whole(c, "--max-messages", o.max_messages, 1, 1'000'000, "messages of a conversation");
  add_whole(c, "--max-json-depth", o.json.max_depth, 4, 256, "nesting of a body");
  add_whole(c, "--max-json-values", o.json.max_values, 64, 100'000'000, "values in a body");
  c->add_flag("--allow-priority", o.allow_priority, "let requests say their priority");
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
  c->option_defaults()->group("How much runs at once");
  add_engine(c, o);
  c->option_defaults()->group(
      "Sampling where a request does not say (else as the model's file says, else these defaults)");
  add_sampling_options(c, o.sampling, SamplingScope::kDefaults);
  c->option_defaults()->group("What else a request gets that does not say it");
  add_defaults(c, o.server.api.defaults);
  c->option_defaults()->group("Life and log");
  add_life(c, o.server);
  c->option_defaults()->group("What can be seen");
  add_sight(c, o);
  c->option_defaults()->group("Limits of connections");
  add_connections(c, o.server);
  c->option_defaults()->group("Limits of a request (more is a 400 that names the field)");
  add_requests(c, o.server.api);
  refuse_empty_values(c, Refusing::kAll);
  c->footer("Examples:\n  ibid serve\n  ibid serve model.gguf --port 9000 --ctx 8192 --api-key-file keys.txt");
}

}  // namespace ibid::cli
