// Each column of the table is a whole exposition of its own, with the values that the others have.

#include "server/observe/metric_table.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace ibid {
namespace {

constexpr MetricNames kColumns[] = {MetricNames::kIbid, MetricNames::kVllm, MetricNames::kLlamaCpp};

EngineStats busy_engine() {
  EngineStats stats;
  stats.n_steps = 7;
  stats.n_running = 3;
  stats.n_waiting = 2;
  stats.blocks_total = 40;
  stats.blocks_in_use = 10;
  stats.n_preemptions = 5;
  stats.step_prefill_tokens = 30;
  stats.step_decode_tokens = 4;
  stats.step_sequences = 6;
  stats.step_forward = 0.25;
  return stats;
}

std::map<std::string, double> samples_of(MetricNames names, std::string_view model = "m") {
  Metrics metrics;
  metrics.add_step(busy_engine());
  metrics.add_tokens(100, 60, 12);
  metrics.add_request({.queue = 1, .first_token = 3, .prefill = 2, .decode = 4, .total = 8, .has_first_token = true},
                      100, 12);
  metrics.add_itl(0.02, 3);
  metrics.add_finish("eos");
  metrics.add_finish("cancelled");
  std::map<std::string, double> out;
  std::istringstream lines(metrics.text(busy_engine(), {.tenants = {{.tenant = "t"}}}, names, model));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(out.emplace(line.substr(0, space), std::stod(line.substr(space))).second) << line << " stands twice";
  }
  return out;
}

TEST(MetricTable, NamesAreWellFormedAndStandOnceInEachColumn) {
  const std::regex well_formed("(ibid_|vllm:|llamacpp:)[a-z][a-z0-9_]*");
  for (const MetricNames names : kColumns) {
    std::set<std::string> seen;
    for (const MetricRow& row : metric_table()) {
      const std::string name = metric_name(row, names);
      if (name.empty()) continue;
      EXPECT_TRUE(std::regex_match(name, well_formed)) << name;
      EXPECT_TRUE(seen.insert(name).second) << name << " stands twice";
      const bool is_total = name.ends_with("_total"), is_counter = row.type == std::string_view("counter");
      EXPECT_TRUE(is_total == is_counter || name == "vllm:iteration_tokens_total") << name;
    }
  }
}

TEST(MetricTable, EveryRowWritesSamplesOfItsName) {
  for (const MetricNames names : kColumns) {
    const auto got = samples_of(names);
    for (const MetricRow& row : metric_table()) {
      const std::string name = metric_name(row, names);
      if (name.empty()) continue;
      const std::string first = name + (row.type == std::string_view("histogram") ? "_bucket" : "");
      EXPECT_TRUE(got.contains(first) || got.lower_bound(first + "{")->first.starts_with(first + "{")) << name;
    }
  }
}

// What the dashboards that come with vLLM and their readers ask for (docs.vllm.ai, "Metrics").
TEST(MetricTable, VllmsNamesHaveItsLabelsAndOurValues) {
  const auto got = samples_of(MetricNames::kVllm);
  const auto of = [&](const std::string& name, const std::string& label = "") {
    const auto at = got.find("vllm:" + name + "{engine=\"0\",model_name=\"m\"" + label + "}");
    return at != got.end() ? at->second : -1;
  };
  EXPECT_EQ(of("num_requests_running"), 3);
  EXPECT_EQ(of("num_requests_waiting"), 2);
  EXPECT_EQ(of("kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(of("gpu_cache_usage_perc"), 0.25);
  EXPECT_EQ(of("prompt_tokens_total"), 100);
  EXPECT_EQ(of("generation_tokens_total"), 12);
  EXPECT_EQ(of("prefix_cache_queries_total"), 100);
  EXPECT_EQ(of("prefix_cache_hits_total"), 60);
  EXPECT_EQ(of("num_preemptions_total"), 5);
  EXPECT_EQ(of("request_success_total", ",finished_reason=\"stop\""), 1);
  EXPECT_EQ(of("request_success_total", ",finished_reason=\"abort\""), 1);
  EXPECT_EQ(of("request_success_total", ",finished_reason=\"length\""), 0);
  EXPECT_EQ(of("e2e_request_latency_seconds_sum"), 8);
  EXPECT_EQ(of("time_to_first_token_seconds_sum"), 3);
  EXPECT_EQ(of("inter_token_latency_seconds_count"), 3);
  EXPECT_EQ(of("time_per_output_token_seconds_bucket", ",le=\"+Inf\""), 3);
  EXPECT_EQ(of("request_queue_time_seconds_sum"), 1);
  EXPECT_EQ(of("request_prefill_time_seconds_sum"), 2);
  EXPECT_EQ(of("request_decode_time_seconds_sum"), 4);
  EXPECT_EQ(of("request_prompt_tokens_sum"), 100);
  EXPECT_EQ(of("request_generation_tokens_sum"), 12);
  EXPECT_EQ(of("iteration_tokens_total_sum"), 34);
  EXPECT_TRUE(got.contains("ibid_steps_total")) << "what vLLM has no name for keeps ours";
  EXPECT_FALSE(got.contains("ibid_generated_tokens_total"));
}

TEST(MetricTable, LlamaCppsNamesHaveItsMeaning) {
  const auto got = samples_of(MetricNames::kLlamaCpp);
  const auto of = [&](const std::string& name) {
    return got.contains("llamacpp:" + name) ? got.at("llamacpp:" + name) : -1;
  };
  EXPECT_EQ(of("prompt_tokens_total"), 30);  // those that were computed
  EXPECT_EQ(of("prompt_seconds_total"), 2);
  EXPECT_EQ(of("prompt_tokens_seconds"), 15);
  EXPECT_EQ(of("tokens_predicted_total"), 12);
  EXPECT_EQ(of("tokens_predicted_seconds_total"), 4);
  EXPECT_EQ(of("predicted_tokens_seconds"), 3);
  EXPECT_EQ(of("requests_processing"), 3);
  EXPECT_EQ(of("requests_deferred"), 2);
  EXPECT_EQ(of("n_decode_total"), 7);
  EXPECT_EQ(of("n_busy_slots_per_decode"), 6);
  EXPECT_EQ(of("kv_cache_usage_ratio"), 0.25);
  EXPECT_EQ(of("n_tokens_max"), 112);
}

TEST(MetricTable, AModelsNameIsEscapedAsALabel) {
  EXPECT_TRUE(samples_of(MetricNames::kVllm, "a\"\\\nb")
                  .contains("vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"\\\\\\nb\"}"));
}

}  // namespace
}  // namespace ibid
