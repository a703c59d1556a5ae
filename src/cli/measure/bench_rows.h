// What `ibid bench` prints: a row a test, as llama-bench has them.
#pragma once

#include <string>
#include <vector>

#include "cli/measure/bench_case.h"
#include "host/loading.h"

namespace ibid::cli {

struct BenchRow {
  BenchCase test;
  std::string model, model_file, kv;
  uint64_t model_bytes = 0;
  int64_t n_parameters = 0;
  int n_threads = 0;
  int32_t n_batch = 0, n_ubatch = 0;
  std::string time;  // when it began
  std::vector<double> seconds;
};

BenchRow bench_row(const host::Loaded& loaded, const BenchCase& test, int32_t n_batch, int32_t n_ubatch);
// `output`: md, json, jsonl or csv.
std::string bench_text(const std::vector<BenchRow>& rows, const std::string& output);

}  // namespace ibid::cli
