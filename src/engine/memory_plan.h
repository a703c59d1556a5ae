// MemoryPlan: what a process will hold at most, part by part, summed up before any of it is held. Parts are added by
// their owners; what a limit leaves is for keys and values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/state/engine_options.h"

namespace ibid {

class Model;

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<MemoryPart> parts;

  void add(std::string name, int64_t bytes) { parts.push_back({std::move(name), bytes}); }
  int64_t total() const;
  // "weights 84.1 MiB, a step 12.0 MiB, ..."
  std::string text() const;
};

// Whether so many bytes, spread evenly, go into the memory of n devices. Tight: less than a seventh is left, so that a
// few longer prompts or one more stream would not do; what else they run, its pages and tables, is not counted.
enum class DeviceFit : uint8_t { kNot, kTight, kRoomy };
struct Devices {
  int64_t n = 1;
  int64_t bytes = 0;  // of each
  DeviceFit fit(int64_t taken) const;
};

// Of a model that was loaded, or only sized (ModelOptions::sized_only), and of an engine over it but for keys and
// values. `n_threads`: of the team that draws.
void add_engine_parts(MemoryPlan& plan, const Model& model, const EngineOptions& options, int n_threads);

// Bytes of one block over all layers; 0 of an encoder, which keeps none.
int64_t kv_bytes_of_block(const Model& model, KvTypes kv_dtype, int32_t block_len);
// The same with what the cache notes of it.
int64_t planned_block_bytes(const Model& model, const EngineOptions& options);

// What `limit` leaves for keys and values beside the parts, in whole blocks. Refused with the sum and its parts where
// that does not hold one context, as any engine must.
Result<int64_t> kv_bytes_within(int64_t limit, const MemoryPlan& beside, const Model& model,
                                const EngineOptions& options);

}  // namespace ibid
