#include "cli/measure/bench_rows.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <fstream>

#include "base/json.h"

namespace ibid::cli {
namespace {

double mean(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

double deviation(const std::vector<double>& v) {
  if (v.size() < 2) return 0;
  double m = mean(v), sum = 0;
  for (double x : v) sum += (x - m) * (x - m);
  return std::sqrt(sum / static_cast<double>(v.size() - 1));
}

std::vector<double> rates(const BenchRow& row) {
  std::vector<double> out;
  for (double s : row.seconds) out.push_back(row.test.tokens() / s);
  return out;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "";
}

struct Field {
  std::string name, value;  // the value as JSON has it
};

std::string list_text(const std::vector<double>& v, int digits) {
  std::string s;
  for (double x : v) s += fmt::format("{}{:.{}f}", s.empty() ? "" : ", ", x, digits);
  return "[" + s + "]";
}

// llama-bench's keys, and after them ours.
std::vector<Field> fields_of(const BenchRow& row) {
  const auto text = [](const std::string& value) { return Json(value).text(); };
  const auto number = [](auto value) { return fmt::format("{}", value); };
  std::vector<double> ns;
  for (double s : row.seconds) ns.push_back(s * 1e9);
  const std::vector<double> ts = rates(row);
  return {{"build_commit", text("ibid " IBID_VERSION)},
          {"build_number", "0"},
          {"cpu_info", text(cpu_name())},
          {"gpu_info", text("")},
          {"backends", text("CPU")},
          {"model_filename", text(row.model_file)},
          {"model_type", text(row.model)},
          {"model_size", number(row.model_bytes)},
          {"model_n_params", number(row.n_parameters)},
          {"n_batch", number(row.n_batch)},
          {"n_ubatch", number(row.n_ubatch)},
          {"n_threads", number(row.n_threads)},
          {"type_k", text(row.kv.substr(0, row.kv.find(':')))},
          {"type_v", text(row.kv.substr(row.kv.find(':') + 1))},
          {"n_gpu_layers", "0"},
          {"flash_attn", "true"},
          {"use_mmap", "true"},
          {"embeddings", "false"},
          {"n_prompt", number(row.test.n_prompt)},
          {"n_gen", number(row.test.n_gen)},
          {"n_depth", number(row.test.depth)},
          {"test_time", text(row.time)},
          {"avg_ns", fmt::format("{:.0f}", mean(ns))},
          {"stddev_ns", fmt::format("{:.0f}", deviation(ns))},
          {"avg_ts", fmt::format("{:.4f}", mean(ts))},
          {"stddev_ts", fmt::format("{:.4f}", deviation(ts))},
          {"samples_ns", list_text(ns, 0)},
          {"samples_ts", list_text(ts, 3)},
          {"cpu_isa", text(std::string(isa_name(selected_isa())))},
          {"n_streams", number(row.test.n_streams)}};
}

std::string object_text(const BenchRow& row) {
  std::string out;
  for (const Field& f : fields_of(row)) out += (out.empty() ? "{\"" : ", \"") + f.name + "\": " + f.value;
  return out + "}";
}

// Each value in quotes, those of a list left out: a column has one.
std::string csv_text(const std::vector<BenchRow>& rows) {
  std::string out;
  for (size_t i = 0; i <= rows.size(); ++i) {
    std::string line;
    for (const Field& f : fields_of(rows[i == 0 ? 0 : i - 1])) {
      if (f.name.starts_with("samples_")) continue;
      std::string value = f.value;
      if (const Result<Json> json = parse_json(value); json && json->string() != nullptr) value = *json->string();
      if (i == 0) value = f.name;
      for (size_t at = 0; (at = value.find('"', at)) != std::string::npos; at += 2) value.insert(at, 1, '"');
      line += line.empty() ? "" : ",";
      line += i == 0 ? value : '"' + value + '"';
    }
    out += line + "\n";
  }
  return out;
}

// With a column for what is not the same in all rows, as llama-bench has it.
std::string table_text(const std::vector<BenchRow>& rows) {
  bool has_batches = false;
  for (const BenchRow& row : rows)
    has_batches |= row.n_batch != rows.front().n_batch || row.n_ubatch != rows.front().n_ubatch;
  std::string out = "| model | threads | kv | ";
  out += has_batches ? "n_batch | n_ubatch | test | tokens/s |\n|---|--:|---|--:|--:|---|--:|\n"
                     : "test | tokens/s |\n|---|--:|---|---|--:|\n";
  for (const BenchRow& row : rows) {
    const std::vector<double> ts = rates(row);
    out += fmt::format("| {} | {} | {} | {}{} | {:.2f} \u00b1 {:.2f} |\n", row.model, row.n_threads, row.kv,
                       has_batches ? fmt::format("{} | {} | ", row.n_batch, row.n_ubatch) : std::string(),
                       row.test.name(), mean(ts), deviation(ts));
  }
  return out;
}

}  // namespace

BenchRow bench_row(const host::Loaded& loaded, const BenchCase& test, int32_t n_batch, int32_t n_ubatch) {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {.test = test,
          .model = loaded.description(),
          .model_file = loaded.path,
          .kv = loaded.kv_name(),
          .model_bytes = loaded.file->tensor_bytes(),
          .n_parameters = loaded.model->config().n_parameters(),
          .n_threads = loaded.team->n_threads(),
          .n_batch = n_batch,
          .n_ubatch = n_ubatch,
          .time = time};
}

std::string bench_text(const std::vector<BenchRow>& rows, const std::string& output) {
  if (output == "md") return table_text(rows);
  if (output == "csv") return csv_text(rows);
  std::string out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (output == "jsonl") out += object_text(rows[i]) + "\n";
    if (output == "json") out += "  " + object_text(rows[i]) + (i + 1 < rows.size() ? ",\n" : "\n");
  }
  return output == "json" ? "[\n" + out + "]\n" : out;
}

}  // namespace ibid::cli
