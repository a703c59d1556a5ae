// Workload: requests as data, by when they come and how long they are. Read from public traces or made up, for benches
// and tests that replay what users do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace ibid {

struct Arrival {
  double at = 0;  // seconds from the first one
  int32_t prompt_len = 0;
  int32_t answer_len = 0;
  // Where it is known what prompts share: a number for each part_len tokens of the prompt (the last one may be
  // shorter). Equal numbers, after equal numbers, are equal tokens. Empty: the prompt shares nothing.
  std::vector<int32_t> parts;
};

struct Workload {
  std::string name;
  int32_t part_len = 512;
  std::vector<Arrival> arrivals;  // ascending by time
  int32_t longest() const;        // prompt and answer
};

// A .csv of TIMESTAMP, ContextTokens, GeneratedTokens (Azure's LLM inference traces) or a .jsonl of timestamp in ms,
// input_length, output_length, hash_ids of 512 tokens each (Mooncake's). An error names the line.
Result<Workload> read_workload(const std::string& file);

// Conversations by several applications: prompts begin with their application's, continue the conversation so far, and
// have lengths of a log-normal distribution. The same for the same numbers.
Workload make_workload(uint64_t seed, int32_t n_requests);

// The tokens of the i-th prompt, each below vocab_size. Where that is more than there are parts, no two parts begin
// alike.
std::vector<TokenId> prompt_of(const Workload& workload, size_t i, int32_t vocab_size);

}  // namespace ibid
