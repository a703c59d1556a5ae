#include "server/observe/metric_table.h"

#include <fmt/format.h>

#include <iterator>

#include "base/json_writer.h"
#include "kernels/isa.h"

namespace ibid {
namespace {

using From = const MetricSource&;

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

int64_t ended_as(const MetricCounts& counts, std::initializer_list<FinishReason> reasons) {
  int64_t n = 0;
  for (size_t i = 0; i < finish_reasons().size(); ++i) {
    for (const FinishReason reason : reasons) n += finish_reasons()[i] == reason ? counts.finishes[i] : 0;
  }
  return n;
}

constexpr MetricRow kTable[] = {
    {"time_to_first_token_seconds", "time_to_first_token_seconds", nullptr, "histogram",
     "From a request's arrival to its first token.", [](From f, Samples& to) { to.add(f.counts.ttft); }},
    {"inter_token_latency_seconds", "inter_token_latency_seconds", nullptr, "histogram",
     "Between two tokens of a choice.", [](From f, Samples& to) { to.add(f.counts.itl); }},
    {nullptr, "time_per_output_token_seconds", nullptr, "histogram", "Between two tokens of a choice.",
     [](From f, Samples& to) { to.add(f.counts.itl); }},
    {"request_seconds", "e2e_request_latency_seconds", nullptr, "histogram",
     "From a request's arrival to the end of its answer.", [](From f, Samples& to) { to.add(f.counts.e2e); }},
    {"queue_seconds", "request_queue_time_seconds", nullptr, "histogram",
     "From a request's arrival in the engine to its first step.", [](From f, Samples& to) { to.add(f.counts.queue); }},
    {"prefill_seconds", "request_prefill_time_seconds", nullptr, "histogram",
     "From a request's first step to its first token.", [](From f, Samples& to) { to.add(f.counts.prefill); }},
    {"decode_seconds", "request_decode_time_seconds", nullptr, "histogram",
     "From a request's first token to its last one.", [](From f, Samples& to) { to.add(f.counts.decode); }},
    {"request_prompt_tokens", "request_prompt_tokens", nullptr, "histogram", "Tokens of a request's prompts.",
     [](From f, Samples& to) { to.add(f.counts.prompt_len); }},
    {"request_generated_tokens", "request_generation_tokens", nullptr, "histogram", "Tokens of a request's answers.",
     [](From f, Samples& to) { to.add(f.counts.answer_len); }},

    {"request_phase_seconds_total", nullptr, nullptr, "counter",
     "Where requests' time went; adds up to request_seconds.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < kPhaseNames.size(); ++i) to.add("phase", kPhaseNames[i], f.counts.phases[i]);
     }},
    {"step_seconds", nullptr, nullptr, "histogram", "Duration of a step.",
     [](From f, Samples& to) { to.add(f.counts.step); }},
    {nullptr, "iteration_tokens_total", nullptr, "histogram", "Tokens computed by a step.",
     [](From f, Samples& to) { to.add(f.counts.step_tokens); }},
    {"step_part_seconds_total", nullptr, nullptr, "counter", "Time spent in the parts of steps.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < kStepPartNames.size(); ++i) to.add("part", kStepPartNames[i], f.counts.step_parts[i]);
     }},
    {"step_prediction_error_ratio", nullptr, nullptr, "gauge",
     "How far a step's time was from what was expected of it, as a part of it, in the last 512 steps.",
     [](From f, Samples& to) {
       to.add("percentile", "50", f.engine.step_error_p50);
       to.add("percentile", "95", f.engine.step_error_p95);
     }},
    {"step_tokens_total", nullptr, nullptr, "counter", "Tokens that steps computed, of prompts and of answers.",
     [](From f, Samples& to) {
       to.add("kind", "prefill", static_cast<double>(f.counts.prefill_tokens));
       to.add("kind", "decode", static_cast<double>(f.counts.decode_tokens));
     }},
    {"steps_total", nullptr, "n_decode_total", "counter", "Steps of the engine.",
     [](From f, Samples& to) { to.add(f.engine.n_steps); }},
    {nullptr, nullptr, "n_busy_slots_per_decode", "gauge", "Average sequences per step since the start.",
     [](From f, Samples& to) {
       to.add(ratio(static_cast<double>(f.counts.step_sequences), static_cast<double>(f.counts.step.count())));
     }},

    {"tenant_sequences", nullptr, nullptr, "gauge", "Sequences of a tenant under way; 32 tenants have a label.",
     [](From f, Samples& to) {
       for (const TenantFigures& t : f.server.tenants) to.add("tenant", t.tenant, static_cast<double>(t.sequences));
     }},
    {"tenant_tokens_total", nullptr, nullptr, "counter", "Tokens of a tenant's prompts and answers.",
     [](From f, Samples& to) {
       for (const TenantFigures& t : f.server.tenants) to.add("tenant", t.tenant, static_cast<double>(t.tokens));
     }},
    {"tenant_refused_total", nullptr, nullptr, "counter", "Requests of a tenant refused by its terms.",
     [](From f, Samples& to) {
       for (const TenantFigures& t : f.server.tenants) to.add("tenant", t.tenant, static_cast<double>(t.refused));
     }},
    {"requests_overdue_total", nullptr, nullptr, "counter",
     "Requests that could not begin in the time they were given.",
     [](From f, Samples& to) { to.add(f.engine.n_overdue); }},

    {"prompt_tokens_total", "prompt_tokens_total", nullptr, "counter", "Prompt tokens of queued requests.",
     [](From f, Samples& to) { to.add(f.counts.prompt_tokens); }},
    {nullptr, "gpu_prefix_cache_queries_total", nullptr, "counter", "Prompt tokens looked up in the prefix cache; older name.",
     [](From f, Samples& to) { to.add(f.counts.prompt_tokens); }},
    {nullptr, "gpu_prefix_cache_hits_total", nullptr, "counter", "Prompt tokens found in the prefix cache; older name.",
     [](From f, Samples& to) { to.add(f.counts.cached_tokens); }},
    {nullptr, "prefix_cache_queries_total", nullptr, "counter", "Prompt tokens looked up in the prefix cache.",
     [](From f, Samples& to) { to.add(f.counts.prompt_tokens); }},
    {"cached_tokens_total", "prefix_cache_hits_total", nullptr, "counter",
     "Prompt tokens found in the prefix cache.", [](From f, Samples& to) { to.add(f.counts.cached_tokens); }},
    {"generated_tokens_total", "generation_tokens_total", "tokens_predicted_total", "counter",
     "Tokens generated for connected clients.",
     [](From f, Samples& to) { to.add(f.counts.generated_tokens); }},
    {nullptr, nullptr, "prompt_tokens_total", "counter", "Prompt tokens computed by steps.",
     [](From f, Samples& to) { to.add(f.counts.prefill_tokens); }},
    {nullptr, nullptr, "prompt_seconds_total", "counter", "From requests' first steps to their first tokens.",
     [](From f, Samples& to) { to.add(f.counts.prefill.sum()); }},
    {nullptr, nullptr, "tokens_predicted_seconds_total", "counter", "From requests' first tokens to their last ones.",
     [](From f, Samples& to) { to.add(f.counts.decode.sum()); }},
    {nullptr, nullptr, "prompt_tokens_seconds", "gauge", "Prompt tokens per second of prefill, since the start.",
     [](From f, Samples& to) { to.add(ratio(static_cast<double>(f.counts.prefill_tokens), f.counts.prefill.sum())); }},
    {nullptr, nullptr, "predicted_tokens_seconds", "gauge", "Generated tokens per second of decode, since the start.",
     [](From f, Samples& to) { to.add(ratio(static_cast<double>(f.counts.generated_tokens), f.counts.decode.sum())); }},
    {nullptr, nullptr, "n_tokens_max", "gauge", "Tokens of the longest finished request, with its prompts.",
     [](From f, Samples& to) { to.add(f.counts.longest); }},
    {"drafts_total", "spec_decode_num_drafts_total", nullptr, "counter",
     "Verifications of draft tokens, one per sequence and step.",
     [](From f, Samples& to) { to.add(f.engine.n_drafts); }},
    {"draft_tokens_total", "spec_decode_num_draft_tokens_total", nullptr, "counter", "Draft tokens that were verified.",
     [](From f, Samples& to) { to.add(f.engine.drafted_tokens); }},
    {"accepted_draft_tokens_total", "spec_decode_num_accepted_tokens_total", nullptr, "counter",
     "Draft tokens that were accepted.", [](From f, Samples& to) { to.add(f.engine.accepted_tokens); }},
    {"accepted_draft_tokens_at_total", "spec_decode_num_accepted_tokens_per_pos_total", nullptr, "counter",
     "Accepted draft tokens by position, from 0; the last label has all later ones.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < f.engine.accepted_at.size(); ++i)
         to.add("position", std::to_string(i), static_cast<double>(f.engine.accepted_at[i]));
     }},
    {"preemptions_total", "num_preemptions_total", nullptr, "counter",
     "Preemptions of sequences.",
     [](From f, Samples& to) { to.add(f.engine.n_preemptions); }},
    {"kv_evictions_total", nullptr, nullptr, "counter",
     "Times that a sequence went on with keys and values of fewer tokens.",
     [](From f, Samples& to) { to.add(f.engine.n_evictions); }},
    {"kv_evicted_tokens_total", nullptr, nullptr, "counter", "Tokens whose keys and values were evicted then.",
     [](From f, Samples& to) { to.add(f.engine.evicted_tokens); }},

    {"sequences_running", "num_requests_running", "requests_processing", "gauge", "Running sequences.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.n_running}); }},
    {"sequences_waiting", "num_requests_waiting", "requests_deferred", "gauge", "Waiting sequences.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.n_waiting}); }},
    {"queue_tokens", nullptr, nullptr, "gauge",
     "Tokens of prompts that wait or are partly computed, and of preempted answers, that steps have still to compute.",
     [](From f, Samples& to) { to.add(f.engine.queue_tokens); }},
    {"predicted_first_token_seconds", nullptr, nullptr, "gauge",
     "What a request like the last ones would wait for its first token if it came now.",
     [](From f, Samples& to) { to.add(f.engine.first_token_seconds); }},
    {"cache_blocks", nullptr, nullptr, "gauge",
     "Blocks of the KV cache by state; shared ones are in use by more than one sequence.",
     [](From f, Samples& to) {
       to.add("state", "free", f.engine.blocks_free);
       to.add("state", "cached", f.engine.blocks_cached);
       to.add("state", "in_use", f.engine.blocks_in_use);
     }},
    {"cache_blocks_shared", nullptr, nullptr, "gauge", "Blocks in use by more than one sequence.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.blocks_shared}); }},
    {"cache_slots_unfilled", nullptr, nullptr, "gauge", "Slots of running sequences' blocks that have no token yet.",
     [](From f, Samples& to) { to.add(f.engine.slots_unfilled); }},
    {"cache_host_blocks", nullptr, nullptr, "gauge", "Blocks of the host tier by state.",
     [](From f, Samples& to) {
       to.add("state", "free", f.engine.host_blocks_total - f.engine.host_blocks_cached);
       to.add("state", "cached", f.engine.host_blocks_cached);
     }},
    {"cache_host_is_used", nullptr, nullptr, "gauge",
     "1 while copying a block to the host tier and back takes less than computing it; else nothing goes there.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.uses_host}); }},
    {"cache_moved_blocks_total", nullptr, nullptr, "counter",
     "Blocks that moved to a lower tier, and that were found there and brought back.",
     [](From f, Samples& to) {
       to.add("way", "to_host", static_cast<double>(f.engine.n_blocks_down));
       to.add("way", "from_host", static_cast<double>(f.engine.n_blocks_up));
       to.add("way", "from_disk", static_cast<double>(f.engine.disk.n_fetched));
     }},
    {"states", nullptr, nullptr, "gauge", "Slots for recurrent states by state; a cached one holds a snapshot.",
     [](From f, Samples& to) {
       to.add("state", "free", f.engine.states_free);
       to.add("state", "cached", f.engine.states_cached);
       to.add("state", "in_use", f.engine.states_in_use);
     }},
    {"states_host", nullptr, nullptr, "gauge", "Slots for recurrent states on the host by state.",
     [](From f, Samples& to) {
       to.add("state", "free", f.engine.host_states_total - f.engine.host_states_cached);
       to.add("state", "cached", f.engine.host_states_cached);
     }},
    {"states_moved_total", nullptr, nullptr, "counter",
     "Recurrent states that moved to a lower tier, and that were found there and brought back.",
     [](From f, Samples& to) {
       to.add("way", "to_host", static_cast<double>(f.engine.n_states_down));
       to.add("way", "from_host", static_cast<double>(f.engine.n_states_up));
       to.add("way", "from_disk", static_cast<double>(f.engine.disk.n_states_fetched));
     }},
    {"snapshots", nullptr, nullptr, "gauge", "Snapshots of recurrent states, on the device and the host.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.n_snapshots}); }},
    {"snapshot_hits_total", nullptr, nullptr, "counter", "Requests that went on from a snapshot of a recurrent state.",
     [](From f, Samples& to) { to.add(f.engine.n_snapshot_hits); }},
    {"snapshot_missed_tokens_total", nullptr, nullptr, "counter",
     "Tokens of prompts that were cached and computed again, as no snapshot of a recurrent state was nearer.",
     [](From f, Samples& to) { to.add(f.engine.tokens_without_snapshot); }},
    {"cache_disk_files", nullptr, nullptr, "gauge", "Blocks of the disk tier, of any model.",
     [](From f, Samples& to) { to.add(f.engine.disk.n_blocks); }},
    {"cache_disk_bytes", nullptr, nullptr, "gauge", "Bytes of the disk tier's files.",
     [](From f, Samples& to) { to.add(f.engine.disk.bytes); }},
    {"cache_disk_io_bytes_total", nullptr, nullptr, "counter", "Bytes that the disk tier read and wrote.",
     [](From f, Samples& to) {
       to.add("way", "read", static_cast<double>(f.engine.disk.bytes_read));
       to.add("way", "written", static_cast<double>(f.engine.disk.bytes_written));
     }},
    {"cache_disk_fetches_total", nullptr, nullptr, "counter",
     "Prefixes found on the disk: fetched, of these abandoned before all had come, and computed instead.",
     [](From f, Samples& to) {
       to.add("outcome", "begun", static_cast<double>(f.engine.disk.n_fetches));
       to.add("outcome", "abandoned", static_cast<double>(f.engine.disk.n_abandoned));
       to.add("outcome", "not_worth", static_cast<double>(f.engine.disk.n_not_worth));
     }},
    {"cache_disk_evicted_total", nullptr, nullptr, "counter", "Files removed for the sake of newer ones.",
     [](From f, Samples& to) { to.add(f.engine.disk.n_evicted); }},
    {"cache_disk_faults_total", nullptr, nullptr, "counter",
     "Files of the disk tier that were not believed, and reads and writes that failed.",
     [](From f, Samples& to) {
       const DiskStats& d = f.engine.disk;
       to.add("kind", "corrupt", static_cast<double>(d.n_corrupt));
       to.add("kind", "foreign", static_cast<double>(d.n_foreign));
       to.add("kind", "missing", static_cast<double>(d.n_missing));
       to.add("kind", "read", static_cast<double>(d.n_failed_reads));
       to.add("kind", "write", static_cast<double>(d.n_failed_writes));
       to.add("kind", "no_space", static_cast<double>(d.n_no_space));
       to.add("kind", "unsaved", static_cast<double>(d.n_unsaved));
     }},
    {"cache_use_ratio", "kv_cache_usage_perc", "kv_cache_usage_ratio", "gauge", "Blocks in use over all blocks.",
     [](From f, Samples& to) { to.add(ratio(f.engine.blocks_in_use, f.engine.blocks_total)); }},
    {nullptr, "gpu_cache_usage_perc", nullptr, "gauge", "Blocks in use over all blocks; older name.",
     [](From f, Samples& to) { to.add(ratio(f.engine.blocks_in_use, f.engine.blocks_total)); }},

    {"responses_total", nullptr, nullptr, "counter", "HTTP answers by route and class of status, as the log has it.",
     [](From f, Samples& to) {
       for (size_t r = 0; r < kRouteNames.size(); ++r) {
         for (size_t c = 1; c < 5; ++c) {
           to.add("route", kRouteNames[r], "status", std::to_string(c + 1) + "xx",
                  static_cast<double>(f.counts.responses[r][c]));
         }
       }
     }},
    {"errors_total", nullptr, nullptr, "counter",
     "HTTP answers of 400 and above by kind; client_gone: the client did not wait for one.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < kErrorNames.size(); ++i)
         to.add("kind", kErrorNames[i], static_cast<double>(f.counts.errors[i]));
     }},
    {"aborts_total", nullptr, nullptr, "counter", "Generations ended from our side of the socket, by cause.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < kAbortNames.size(); ++i)
         to.add("cause", kAbortNames[i], static_cast<double>(f.counts.aborts[i]));
     }},
    {"choices_finished_total", nullptr, nullptr, "counter", "Choices by finish reason.",
     [](From f, Samples& to) {
       for (size_t i = 0; i < finish_reasons().size(); ++i)
         to.add("reason", finish_reason_name(finish_reasons()[i]), static_cast<double>(f.counts.finishes[i]));
     }},
    {nullptr, "request_success_total", nullptr, "counter", "Choices by finish reason.",
     [](From f, Samples& to) {
       using enum FinishReason;
       to.add("finished_reason", "stop",
              static_cast<double>(ended_as(f.counts, {kEos, kStop, kGrammar, kTool, kSafety})));
       to.add("finished_reason", "length", static_cast<double>(ended_as(f.counts, {kLength})));
       to.add("finished_reason", "abort", static_cast<double>(ended_as(f.counts, {kCancelled})));
       to.add("finished_reason", "error", static_cast<double>(ended_as(f.counts, {kError})));
     }},
    {"connections", nullptr, nullptr, "gauge", "Open connections.",
     [](From f, Samples& to) { to.add(f.server.connections); }},
    {"body_bytes", nullptr, nullptr, "gauge", "Bytes of bodies that arrive or wait to be handled.",
     [](From f, Samples& to) { to.add(f.server.body_bytes); }},
    {"connections_refused_total", nullptr, nullptr, "counter", "Connections closed because of a limit.",
     [](From f, Samples& to) { to.add(f.counts.connections_refused); }},
    {"requests_active", nullptr, nullptr, "gauge", "Generations under way.",
     [](From f, Samples& to) { to.add(f.server.requests_active); }},
    {"log_lines_lost_total", nullptr, nullptr, "counter", "Lines that the log could not take.",
     [](From f, Samples& to) { to.add(f.counts.log_lines_lost); }},
    {"spans_total", nullptr, nullptr, "counter", "Requests whose spans went to the receiver, or were dropped.",
     [](From f, Samples& to) {
       to.add("outcome", "sent", static_cast<double>(f.server.spans_sent));
       to.add("outcome", "dropped", static_cast<double>(f.server.spans_dropped));
     }},
    {"pictures_total", nullptr, nullptr, "counter", "Pictures of requests: encoded by the vision tower, or found.",
     [](From f, Samples& to) {
       to.add("how", "encoded", static_cast<double>(f.engine.pictures.n_encoded));
       to.add("how", "found", static_cast<double>(f.engine.pictures.n_found));
     }},
    {"picture_seconds_total", nullptr, nullptr, "counter", "Time of the vision tower.",
     [](From f, Samples& to) { to.add(f.engine.pictures.seconds); }},
    {"pictures_waiting", nullptr, nullptr, "gauge", "Pictures of requests that wait for the vision tower.",
     [](From f, Samples& to) { to.add(f.engine.pictures.n_waiting); }},
    {"picture_rows_bytes", nullptr, nullptr, "gauge", "Rows of pictures that are kept for further requests.",
     [](From f, Samples& to) { to.add(f.engine.pictures.kept_bytes); }},
    {"recording", nullptr, nullptr, "gauge", "1 while a record is written; 0 again where it ended before the server.",
     [](From f, Samples& to) { to.add(int64_t{f.engine.is_recording}); }},
    {"record_bytes_total", nullptr, nullptr, "counter", "Bytes of the record.",
     [](From f, Samples& to) { to.add(f.engine.recorded_bytes); }},
    {"kernels", nullptr, nullptr, "gauge", "1, with the set of instructions that the processor's kernels use.",
     [](From, Samples& to) { to.add("isa", isa_name(selected_isa()), 1.0); }},
    {"uptime_seconds", nullptr, nullptr, "gauge", "Since the server started.",
     [](From f, Samples& to) { to.add(f.server.uptime); }},
    {"ready", nullptr, nullptr, "gauge", "1 if /health reports ready.",
     [](From f, Samples& to) { to.add(int64_t{f.server.ready}); }},
};

std::string label_text(std::string_view label, std::string_view is) {
  std::string out(label);
  out += "=\"";
  for (const char c : is) {
    if (c == '\\' || c == '"') out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out + '"';
}

}  // namespace

void Samples::line(std::string_view suffix, std::string_view labels, double value) {
  out_.append(name_).append(suffix);
  if (!labels.empty() || !shared_.empty()) {
    out_.append("{").append(shared_).append(shared_.empty() || labels.empty() ? "" : ",").append(labels).append("}");
  }
  out_ += ' ';
  JsonWriter(out_).number(value);
  out_ += '\n';
}

void Samples::add(std::string_view label, std::string_view is, double value) { line("", label_text(label, is), value); }

void Samples::add(std::string_view label, std::string_view is, std::string_view label2, std::string_view is2,
                  double value) {
  line("", label_text(label, is) + "," + label_text(label2, is2), value);
}

void Samples::add(const Histogram& histogram) {
  int64_t below = 0;
  for (size_t i = 0; i < histogram.bounds().size(); ++i) {
    below += histogram.counts()[i];
    line("_bucket", "le=\"" + bucket_name(histogram.bounds()[i]) + "\"", static_cast<double>(below));
  }
  line("_bucket", "le=\"+Inf\"", static_cast<double>(histogram.count()));
  line("_sum", "", histogram.sum());
  line("_count", "", static_cast<double>(histogram.count()));
}

std::span<const MetricRow> metric_table() { return kTable; }

Result<MetricNames> metric_names_by_name(std::string_view name) {
  if (name == "ibid") return MetricNames::kIbid;
  if (name == "vllm") return MetricNames::kVllm;
  if (name == "llama.cpp") return MetricNames::kLlamaCpp;
  return invalid("unknown value '" + std::string(name) + "'; expected ibid, vllm or llama.cpp");
}

std::string metric_name(const MetricRow& row, MetricNames names) {
  if (names == MetricNames::kVllm && row.vllm != nullptr) return std::string("vllm:") + row.vllm;
  if (names == MetricNames::kLlamaCpp && row.llama_cpp != nullptr) return std::string("llamacpp:") + row.llama_cpp;
  return row.name != nullptr ? std::string("ibid_") + row.name : std::string();
}

void append_metrics(std::string& out, const MetricSource& from, MetricNames names, std::string_view model) {
  const std::string vllm_labels = label_text("engine", "0") + "," + label_text("model_name", model);
  for (const MetricRow& row : metric_table()) {
    const std::string name = metric_name(row, names);
    if (name.empty()) continue;
    out.append("# HELP ").append(name).append(" ").append(row.help).append("\n");
    out.append("# TYPE ").append(name).append(" ").append(row.type).append("\n");
    Samples to(out, name, name.starts_with("vllm:") ? std::string_view(vllm_labels) : std::string_view());
    row.samples(from, to);
  }
}

void append_replica_facts(std::string& out, const ReplicaFacts& facts) {
  const auto series = [&](const char* name, const char* help, const std::string& labels, double value) {
    fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} gauge\n{0}{{{2}}} {3:.3f}\n", name, help,
                   labels, value);
  };
  const auto count = [](const char* label, int32_t n) { return label_text(label, std::to_string(n)); };
  series("vllm:cache_config_info", "1, with the sizes of the cache.",
         count("block_size", facts.block_len) + "," + label_text("cache_dtype", facts.kv_dtype) + "," +
             label_text("enable_prefix_caching", facts.shares_prefixes ? "True" : "False") + "," +
             label_text("engine", "0") + "," + count("num_cpu_blocks", facts.n_host_blocks) + "," +
             count("num_gpu_blocks", facts.n_blocks),
         1);
  if (facts.max_adapters == 0) return;
  series("vllm:lora_requests_info", "The time, with the adapters of the requests that run or wait.",
         count("max_lora", facts.max_adapters) + "," +
             label_text("running_lora_adapters", fmt::format("{}", fmt::join(facts.adapters_in_use, ","))) + "," +
             label_text("waiting_lora_adapters", ""),
         facts.now);
}

std::string metric_names_markdown() {
  std::string out = "| ibid | vLLM | llama.cpp | what |\n|---|---|---|---|\n";
  const auto cell = [](const char* prefix, const char* name) {
    return name != nullptr ? "`" + std::string(prefix) + name + "`" : std::string();
  };
  for (const MetricRow& row : metric_table()) {
    if (row.vllm == nullptr && row.llama_cpp == nullptr) continue;
    out += "| " + cell("ibid_", row.name) + " | " + cell("vllm:", row.vllm) + " | " + cell("llamacpp:", row.llama_cpp) +
           " | " + row.help + " |\n";
  }
  return out;
}

}  // namespace ibid
