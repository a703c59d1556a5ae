// The table of metrics: what each is called here and by others, what it means, and how its samples are taken. A new
// metric is a row. Other engines' names are those that their dashboards ask for, as of vLLM 0.11 (docs.vllm.ai,
// "Metrics") and llama.cpp's server of October 2025 (tools/server/README.md).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/observe/metrics.h"

namespace ibid {

struct MetricSource {
  const MetricCounts& counts;
  const EngineStats& engine;
  const ServerGauges& server;
};

// Where a row writes its samples; the name and the labels that all samples share come by themselves.
class Samples {
 public:
  Samples(std::string& out, std::string name, std::string_view shared_labels)
      : out_(out), name_(std::move(name)), shared_(shared_labels) {}
  void add(double value) { line("", {}, value); }
  void add(int64_t value) { add(static_cast<double>(value)); }
  void add(std::string_view label, std::string_view is, double value);
  void add(std::string_view label, std::string_view is, std::string_view label2, std::string_view is2, double value);
  void add(const Histogram& histogram);

 private:
  void line(std::string_view suffix, std::string_view labels, double value);
  std::string& out_;
  std::string name_;
  std::string_view shared_;
};

struct MetricRow {
  const char* name;       // after "ibid_"; null: others alone have it
  const char* vllm;       // after "vllm:"; null: as here, if there
  const char* llama_cpp;  // after "llamacpp:"; likewise
  const char* type;       // in Prometheus' terms: counter, gauge, histogram
  const char* help;
  void (*samples)(const MetricSource& from, Samples& to);
};

std::span<const MetricRow> metric_table();
// With its prefix; empty: the row is not exported under these names.
std::string metric_name(const MetricRow& row, MetricNames names);
void append_metrics(std::string& out, const MetricSource& from, MetricNames names, std::string_view model);
// Facts of a replica that routers read from labels, under vLLM's names whatever the others are: the series
// vllm:cache_config_info, and vllm:lora_requests_info if it takes adapters.
struct ReplicaFacts {
  int32_t block_len = 0, n_blocks = 0, n_host_blocks = 0;
  std::string_view kv_dtype;
  bool shares_prefixes = false;
  int32_t max_adapters = 0;
  std::vector<std::string> adapters_in_use;  // of requests that run or wait
  double now = 0;                            // seconds since 1970; of several answers routers take the newest
};
void append_replica_facts(std::string& out, const ReplicaFacts& facts);
// The rows that others have a name for, as a table for the pages.
std::string metric_names_markdown();

}  // namespace ibid
