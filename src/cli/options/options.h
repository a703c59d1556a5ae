// What a person may type, as plain data: one struct per command. The files that include cli/options/command_line.h
// alone know the parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options/sampling_flags.h"
#include "cli/terminal/exit_code.h"
#include "engine/state/policy.h"
#include "host/host_options.h"
#include "kernels/kv_types.h"
#include "server/net/server.h"

namespace ibid::cli {

// What every command that runs a model takes, and what those that serve or measure it take besides.
using host::AdapterArgs;
using host::kOwnEagle;
using host::kOwnLayers;
using host::ModelArgs;
using host::SpecArgs;
using host::TierArgs;
using host::WindowArgs;

struct RunOptions {
  ModelArgs model;
  TierArgs tiers;
  SpecArgs spec;
  std::optional<std::string> prompt;  // none: chat in the terminal
  std::string system;
  int32_t max_tokens = -1;
  SamplingFlags sampling;
  std::optional<uint64_t> seed;
  std::string tools;                // a file of functions that the model may call; empty: none
  std::string json_schema;          // of the answer: JSON, or a file; empty: none
  std::string history;              // a file that the conversation is read from and kept in; empty: none
  std::vector<std::string> images;  // files of pictures that go with the first question
  bool keeps_lines = true;          // that are typed, for the next time
  bool raw = false;                 // continue the prompt's text without a template
  bool stats = false;               // time to first token and tokens per second at the end
};

struct ServeOptions {
  ModelArgs model;
  bool names_model = false;               // it was given, and is not the default for want of any
  std::vector<std::string> more_models;   // further ones: paths or names
  std::vector<std::string> named_models;  // NAME=PATH
  std::string models_folder;
  int32_t max_models = 0;  // loaded at once; 0: as many as fit
  TierArgs tiers;
  SpecArgs spec;
  ServerOptions server;
  int32_t max_sequences = 64;
  int32_t max_tokens_per_step = 512;
  int32_t max_waiting = 512;
  PolicyKind policy = PolicyKind::kFair;
  double max_itl = 0;              // seconds; 0: by the model's own speed
  int64_t kv_bytes = 0;            // 0: chosen
  SamplingFlags sampling;          // of requests that do not set it
  std::string record;              // a file to write all to that the engine does (docs/users/replay.md); empty: none
  bool redact = false;             // without what users wrote
  std::string chat_template;       // a file in the place of the model's own; empty: none
  std::optional<Pooling> pooling;  // of texts' vectors; none: as in the model's file, else the mean
};

struct ReplayOptions {
  std::string file;
  ModelArgs model;
  bool with_model = false;  // else tokens come from the record
  uint64_t request = 0;     // whose life is shown; 0: none
  std::string svg;          // where to draw it
};

struct InspectOptions {
  std::string model = "default";
  bool tensors = false;
  bool samplers = false;
};

struct PullOptions {
  std::string model = "default";
};

struct HealthOptions {
  std::string url = "http://127.0.0.1:8080";
  int32_t timeout_s = 5;
};

struct BuildStoreOptions {
  std::string model = "default";
  std::vector<std::string> files;
  std::string out;
  int64_t max_tokens = int64_t{16} << 20;
};

struct FindLayersOptions {
  ModelArgs model;
  std::string file;  // text; "-": standard input
  int32_t n_tokens = 512;
  int32_t most = 0;  // 0: as many as may pay
  int32_t max_drafts = 8;
  float temperature = 0;
  double layer_cost = -1, row_cost = -1;  // as spec/experimental/layer_search.h has them; negative: measured
};

struct PerplexityOptions {
  ModelArgs model;
  std::string file;                           // text; "-": standard input
  int32_t n_tokens = 0;                       // the first so many; 0: all
  int32_t stride = 0;                         // scored in each window of a longer text; 0: half the context
  std::string base;                           // a model to compare with; empty: none
  std::optional<KvTypes> base_kv_dtype = {};  // none: the model's
  std::string dump_file;                      // raw fp32 log-probabilities [positions, V] for comparisons
};

struct BenchOptions {
  ModelArgs model;                        // of each test, except what the lists set
  std::vector<std::string> models;        // in turn; empty: model's
  std::vector<int32_t> threads;           // empty: model's
  std::vector<int32_t> n_batch = {2048};  // the smaller of the two is the budget of a step
  std::vector<int32_t> n_ubatch = {512};
  std::vector<KvTypes> kv_dtypes;  // empty: model's
  SpecArgs spec{.by_lookup = false};
  std::vector<int32_t> n_prompt = {512};
  std::vector<int32_t> n_gen = {128};
  std::vector<std::pair<int32_t, int32_t>> prompt_gen;  // prefill and decode after it, timed together
  std::vector<int32_t> streams;                         // batched decode with so many sequences
  int32_t repeats = 5;
  bool warms_up = true;
  std::string output = "md";          // md, json, jsonl, csv
  std::vector<int32_t> depths = {0};  // tokens already in the cache
  bool profile = false;               // one more run of each test, with the time of each op
  std::string trace;                  // a file for that run's ops; empty: none
  std::string prompts;                // with drafts: a file of what is answered; empty: ibid's own
  float temperature = 0;              // that it is answered at
};

struct CacheBenchOptions {
  std::string trace_file;  // empty: a workload that is made up
  int64_t n_tokens = 1 << 18;
  int32_t n_streams = 16;
  int32_t n_threads = 0;  // 0: all
};

struct TokenizeOptions {
  std::string model = "default";
  std::optional<std::string> text;  // none: that of the file
  std::string file = "-";           // "-": standard input
  bool special = false;
  bool bos = false;
  bool pieces = false;
};

struct DetokenizeOptions {
  std::string model = "default";
  std::optional<std::string> ids;  // none: standard input's
  bool special = false;
};

struct TemplateOptions {
  std::string model = "default";
  std::string messages_file = "-";
  bool generation_prompt = true;
};

struct PlanOptions {
  ServeOptions serve;                // of the server that is planned
  int32_t n_streams = 0;             // 0: as many as fit
  std::vector<std::string> devices;  // "2x80G"
  bool speed = true;
  std::string text;       // a file that drafts are measured after; empty: after prompts of ibid's own
  float temperature = 0;  // that its answers are drawn at
};

int run(const RunOptions& options);
int plan(const PlanOptions& options);
int serve(const ServeOptions& options);
int health(const HealthOptions& options);
int replay(const ReplayOptions& options);
int inspect(const InspectOptions& options);
int pull(const PullOptions& options);
int verify(const PullOptions& options);
int list_models();
int remove_model(const PullOptions& options);
int perplexity(const PerplexityOptions& options);
int bench(const BenchOptions& options);
int bench_cache(const CacheBenchOptions& options);
int selftest();
int build_store(const BuildStoreOptions& options);
int find_layers(const FindLayersOptions& options);
int tokenize(const TokenizeOptions& options);
int detokenize(const DetokenizeOptions& options);
int apply_template(const TemplateOptions& options);

// Parses and runs one command; returns the process's exit code.
int main(int argc, char** argv);

}  // namespace ibid::cli
