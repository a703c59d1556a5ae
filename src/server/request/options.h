// ServerOptions and FleetOptions: plain data that a command line fills and every part of the server reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/fields/api_request.h"
#include "server/observe/kv_events.h"
#include "server/observe/metrics.h"

namespace ibid {

class Backend;

struct ServerOptions {
  std::string host = "127.0.0.1";    // an address or "localhost"; anything but loopback is logged at start
  int port = 8080;                   // 0: any free one
  std::string unix_socket;           // a path to listen at instead of host and port; empty: there
  std::string tls_certificate_file;  // PEM, with its chain; empty: connections are plain
  std::string tls_key_file;          // PEM
  std::string root_path;             // before every path, where a proxy leaves it there: "/llm"; empty: none
  int io_threads = 2;

  std::vector<std::string> api_keys;       // KEY or TENANT:KEY
  std::string api_key_file;                // the same, one a line
  std::string cors_origin;                 // an origin, or "*"; empty: other sites' pages may not ask
  std::vector<std::string> allowed_hosts;  // further names in the Host header that mean this server (host_check.h)
  std::vector<std::string> picture_hosts;  // from which pictures are fetched by address (picture_fetcher.h)
  double picture_timeout = 10;             // seconds, of one such
  bool page = true;
  std::vector<std::string> aliases;  // further names of the model
  std::vector<std::string> tags;     // words that /v1/models lists for it
  bool list_once = false;            // /v1/models has it under its own name alone, with the others beside
  std::string default_adapter;       // that the model has where a request names none; empty: none
  bool lora_updates = false;         // clients may load and unload adapters
  bool strict_model = false;         // a name that it does not have is a 404
  bool autoload = true;              // of several models: one is loaded for who asks for it, else by /models/load alone

  std::string files_folder;                    // of /v1/files and /v1/batches (batches.h); empty: they are not served
  int64_t max_files_bytes = int64_t{1} << 30;  // of all files there

  std::string log_file;  // empty: standard error
  bool log_json = false;
  bool log_requests = true;
  std::string otlp_url;                           // of a receiver of spans (otlp.h); empty: none
  MetricNames metric_names = MetricNames::kIbid;  // of /metrics
  KvEventOptions kv_events;                       // of the one model

  int64_t max_header_bytes = 16 << 10;
  int64_t max_body_bytes = 8 << 20;
  int64_t max_bodies_bytes = 256 << 20;   // of all connections together, while they arrive
  int64_t max_answers_bytes = 512 << 20;  // what the answers under way may come to hold, all together
  int max_connections = 8192;
  int max_connections_per_address = 4096;
  double header_timeout = 10;              // seconds, from the first byte to the last of a header
  double body_timeout = 30;                // for the whole body
  double idle_timeout = 75;                // between requests of a connection
  int64_t max_stored_bytes = 32 << 20;     // of answers of /v1/responses that can be asked for again; 0: none are kept
  double max_stored_age = 3600;            // seconds
  int64_t max_grammars_bytes = 256 << 20;  // of compiled grammars, kept ones and those in use
  bool slots = false;                      // answer /slots, which shows what others have under way
  bool allow_moves = false;                // answer /v1/requests/ID/move, for which each request's body is kept
  std::string drain_to;                    // the URL of a replica to which a server that drains moves what runs
  double write_timeout = 30;               // a write that takes longer ends the connection: its reader does not read
  int64_t max_stream_backlog = 256 << 10;  // bytes gathered for a reader that does not read; more ends its stream
  int send_buffer_bytes = 256 << 10;       // of the socket: what the kernel adds; 0: the system's, to megabytes
  int64_t n_places = 64 + 4096;            // sequences that may run and wait: what tenants share
  int32_t n_slots = 64;                    // of these, that run at once
  double drain_timeout = 30;               // after SIGTERM, until what still runs is cancelled
  double stall_timeout = 30;               // /health reports work that waits while the engine stands still for so long
  ApiLimits api;
};

// A model of several (fleet.h).
struct LoadedModel {
  std::unique_ptr<Backend> backend;
  int64_t bytes = 0;  // that it may come to hold
};
struct FleetModel {
  std::string name;
  std::vector<std::string> aliases;
  // Within so many bytes, 0: what loading itself finds. kExhausted: it does not fit there, and nothing was kept.
  std::function<Result<LoadedModel>(int64_t memory_bytes)> load;
  // What load() would find wrong, from the file's header and the sum of memory, before a weight is read.
  std::function<Status(int64_t memory_bytes)> check = {};
  // Which state its files are in now: what was found wrong with them holds until it changes. Empty: that is unknown.
  std::function<std::string()> version = {};
};
struct FleetOptions {
  std::vector<FleetModel> models;  // the first is loaded at once, and answers who names none
  int64_t memory_bytes = 0;
  int max_loaded = 0;  // at once; 0: as many as fit
};

}  // namespace ibid
