// Traces: how each token of an answer was drawn (row T1-T4), so that the draw can be made again: the token is a
// function of the processed distribution, the seed and the counter (position, purpose). openapi.json has the schemas.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/json_writer.h"
#include "engine/state/request.h"
#include "server/request/backend.h"

namespace ibid {

// What all records of an answer have in common, as JSON.
struct TraceFacts {
  std::string header;      // written once: engine, model, order of stages, every parameter and its source, digests
  std::string parameters;  // written in each record: temperature, top_k, top_p, and the numbers that differ from "off"
  std::string model_digest;
  std::string sampling_digest;
};

std::shared_ptr<const TraceFacts> trace_facts(const SamplingParams& sampling, const SamplingSources& sources,
                                              const ModelInfo& model, const grammar::Matcher* grammar = nullptr,
                                              const std::string& adapter = {}, const KvEviction& eviction = {});

// An array with one record for each draw.
void write_trace(JsonWriter& json, std::span<const TokenRecord> records, uint64_t seed, const TraceFacts& facts);

}  // namespace ibid
