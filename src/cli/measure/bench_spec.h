// What drafts bring on real prompts (ibid bench --spec): each is answered with them and without, in turn, on one
// stream of one engine, and both must give the same answer.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace ibid::cli {

struct SpecBenchRow {  // of the prompts of a kind; all but tokens of prompts and each answer's first one
  std::string kind;
  int64_t n_answers = 0, n_tokens = 0;
  int64_t n_steps = 0, n_drafted = 0, n_accepted = 0;  // of the answers with drafts
  double seconds = 0, plain_seconds = 0;
  void add(const SpecBenchRow& other);
};

struct SpecBenchResult {
  std::vector<SpecBenchRow> rows;                                        // the kinds in their order, then all
  std::array<int64_t, kDraftPlaces> verified_at = {}, accepted_at = {};  // by place in a step's drafts
  std::map<int32_t, double> step_seconds;                                // of a step of so many rows, the median
};

struct SpecBenchRun {
  int32_t n_tokens = 128;  // of an answer
  float temperature = 0;
  int32_t repeats = 1;  // of each prompt; seconds are the medians'
};

// `engine` speculates and has nothing to do. `answered` is called after each answer.
Result<SpecBenchResult> bench_spec(Engine& engine,
                                   const std::vector<std::pair<std::string, std::vector<TokenId>>>& prompts,
                                   const SpecBenchRun& run, const std::function<void()>& answered);

// As a table for people ("md"), "csv" or "json".
std::string spec_bench_text(const SpecBenchResult& result, const std::string& format);

}  // namespace ibid::cli
