// The contents and times of an answer, read from its events; and figures over many of them. For any server that speaks
// OpenAI's streams; what only some servers send (token ids, log-probabilities, usage) is used where it is there.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "bench/load/load_client.h"

namespace ibid::load {

struct ChoiceContent {
  std::string text;
  std::string token_ids;                        // joined over the events, as JSON without brackets
  std::map<std::string, std::string> logprobs;  // each of its lists, the same way
  std::string finish;
  bool operator==(const ChoiceContent&) const = default;
};

struct StreamContent {
  std::vector<ChoiceContent> choices;
  bool done = false;          // [DONE] came
  std::string error;          // a connection's, or the sentence of an error event
  double first = 0;           // when the first text came, on the client's clock; 0: none did
  std::vector<double> times;  // of events with text
  std::vector<double> gaps;   // between events with text of one choice
  int64_t prompt_tokens = -1, cached_tokens = -1, completion_tokens = -1;  // -1: not reported
};

StreamContent read_stream(const LoadAnswer& answer);
// Everything in a request's answer that must repeat. Ids, times and cached tokens are not part of it.
bool same_bytes(const StreamContent& a, const StreamContent& b);

struct Percentiles {
  size_t n = 0;
  double p50 = 0, p95 = 0, p99 = 0, p999 = 0, max = 0;
};
// Nearest rank.
Percentiles percentiles_of(std::vector<double> values);

struct LoadFigures {
  int64_t n_requests = 0, n_whole = 0;
  std::map<std::string, int64_t> errors;  // by status ("429") or by what happened ("read: ...")
  double seconds = 0;                     // from the first due request to the last answer's end
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  Percentiles ttft, itl, total;  // seconds, over the whole ones
};
LoadFigures figures_of(std::span<const LoadAnswer> answers);

void write_figures(JsonWriter& json, const LoadFigures& figures);

}  // namespace ibid::load
