#include "cli/measure/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json_writer.h"

namespace ibid::cli {
namespace {

std::string name_of(const OpRun& run) {
  if (run.work.n_inputs == 0) return run.op;
  return fmt::format("{} {} x {}", run.op, run.work.n_outputs, run.work.n_inputs);
}

int64_t macs(const OpWork& work) { return std::accumulate(work.macs.begin(), work.macs.end(), int64_t{0}); }

// By its bytes alone where a unit has no limit; 0: there is nothing to hold it against.
double least_seconds(const OpWork& work, const MachineLimits& limits) {
  const double rates[kMacUnits] = {limits.int8_macs_per_s, limits.bf16_macs_per_s, limits.fp32_macs_per_s};
  double arithmetic = 0;
  for (size_t unit = 0; unit < kMacUnits; ++unit) {
    if (work.macs[unit] > 0 && rates[unit] > 0) arithmetic += static_cast<double>(work.macs[unit]) / rates[unit];
  }
  const double read = limits.read_bytes_per_s > 0 ? static_cast<double>(work.bytes) / limits.read_bytes_per_s : 0.0;
  return std::max(arithmetic, read);
}

std::string cell(double value, const char* form) { return value > 0 ? fmt::format(fmt::runtime(form), value) : "-"; }

}  // namespace

void StepProfile::begin(const std::string& phase) {
  std::erase_if(phases_, [&](const Phase& p) { return p.name == phase; });
  phases_.push_back({.name = phase});
}

void StepProfile::end(double seconds) { phases_.back().seconds = seconds; }

void StepProfile::ran(const OpRun& run) {
  if (phases_.empty()) return;
  Phase& phase = phases_.back();
  Sum& sum = phase.ops[name_of(run)];
  for (size_t unit = 0; unit < kMacUnits; ++unit) sum.work.macs[unit] += run.work.macs[unit];
  sum.work.bytes += run.work.bytes;
  sum.n_calls += 1;
  sum.seconds += run.end - run.begin;
  if (phase.runs.size() < kMostEvents) phase.runs.push_back(run);
}

std::string StepProfile::text(const MachineLimits& limits) const {
  std::string out = fmt::format(
      "limits: {:.1f} GB/s read; G multiply-adds/s: int8 {:.0f}, bf16 {:.0f}, fp32 {:.0f} (0: not measured)\n",
      limits.read_bytes_per_s * 1e-9, limits.int8_macs_per_s * 1e-9, limits.bf16_macs_per_s * 1e-9,
      limits.fp32_macs_per_s * 1e-9);
  for (const Phase& phase : phases_) {
    std::vector<std::pair<std::string, Sum>> ops(phase.ops.begin(), phase.ops.end());
    std::ranges::sort(ops, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    double in_ops = 0;
    for (const auto& [name, sum] : ops) in_ops += sum.seconds;
    out += fmt::format(
        "\n{}: {:.2f} ms\n\n| op | calls | ms | of the time | G multiply-adds/s | GB/s | of its bound |\n"
        "|---|--:|--:|--:|--:|--:|--:|\n",
        phase.name, phase.seconds * 1e3);
    const auto share = [&phase](double seconds) { return phase.seconds > 0 ? 100 * seconds / phase.seconds : 0.0; };
    for (const auto& [name, sum] : ops) {
      const double a_second = sum.seconds > 0 ? 1 / sum.seconds : 0;
      out += fmt::format("| {} | {} | {:.2f} | {:.1f} % | {} | {} | {} |\n", name, sum.n_calls, sum.seconds * 1e3,
                         share(sum.seconds), cell(static_cast<double>(macs(sum.work)) * a_second * 1e-9, "{:.1f}"),
                         cell(static_cast<double>(sum.work.bytes) * a_second * 1e-9, "{:.1f}"),
                         cell(100 * least_seconds(sum.work, limits) * a_second, "{:.0f} %"));
    }
    const double rest = std::max(0.0, phase.seconds - in_ops);
    out += fmt::format("| the step's rest | | {:.2f} | {:.1f} % | - | - | - |\n", rest * 1e3, share(rest));
  }
  return out;
}

std::string StepProfile::trace() const {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
  double begin = 0;
  for (const Phase& phase : phases_) {
    if (!phase.runs.empty() && (begin == 0 || phase.runs.front().begin < begin)) begin = phase.runs.front().begin;
  }
  int64_t thread = 0;
  for (const Phase& phase : phases_) {
    ++thread;
    json.begin_object().field("name", "thread_name").field("ph", "M").field("pid", 1).field("tid", thread);
    json.key("args").begin_object().field("name", phase.name).end_object().end_object();
    for (const OpRun& run : phase.runs) {
      json.begin_object().field("name", name_of(run)).field("ph", "X").field("pid", 1).field("tid", thread);
      json.key("ts").number((run.begin - begin) * 1e6).key("dur").number((run.end - run.begin) * 1e6);
      json.key("args").begin_object().field("multiply_adds", macs(run.work)).field("bytes", run.work.bytes);
      json.end_object().end_object();
    }
  }
  json.end_array().end_object();
  return out + "\n";
}

}  // namespace ibid::cli
