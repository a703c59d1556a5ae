// KV events: which whole blocks of prompts and answers the cache has, sent to routers as vLLM's engines do
// (docs/users/replicas.md): a payload of MessagePack for each step that changed something, over ZeroMQ. Routers send a
// request where its beginning is.
//
// KvEvents gathers on the engine's thread and hands each step's events to a thread of its own, which encodes and sends
// them. A slow or dead subscriber costs that thread some memory, bounded, and the engine nothing: what cannot be kept
// is dropped, and its sequence number with it, so that subscribers see the gap.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "cache/prefix_observer.h"

namespace ibid {

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kCleared;
  Tier tier = Tier::kDevice;
  std::vector<uint64_t> hashes;  // of blocks; of kStored each after the one before it
  bool has_parent = false;
  uint64_t parent = 0;          // of the first block
  std::vector<TokenId> tokens;  // of all blocks
  std::string salt;             // of the first block, where it has no parent: tenant and cache_salt; empty: none
  bool operator==(const KvEvent&) const = default;
};

struct KvEventBatch {
  int64_t sequence = 0;
  double time = 0;  // seconds since 1970
  std::vector<KvEvent> events;
};

struct KvEventOptions {
  std::string endpoint;          // of ZeroMQ, to bind: "tcp://127.0.0.1:5557"; empty: none
  std::string replay_endpoint;   // where missed payloads are asked for; empty: nowhere
  std::string topic;             // before each payload
  bool as_arrays = false;        // events as vLLM wrote them until June 2026: arrays, not maps
  size_t max_queued = 10'000;    // payloads that wait to be sent
  size_t max_replayed = 10'000;  // payloads that are kept to be asked for
  bool on() const { return !endpoint.empty(); }
};

// A batch as MessagePack: [time, events, 0]. block_len is of whole blocks. Pure.
std::string encode_kv_events(const KvEventBatch& batch, int32_t block_len, bool as_arrays);

// Adds a change to the events of a step: what follows the last event in one chain extends it.
void add_stored(std::vector<KvEvent>& events, Tier tier, uint64_t hash, bool has_parent, uint64_t parent,
                std::span<const TokenId> tokens, std::string_view salt);
void add_removed(std::vector<KvEvent>& events, Tier tier, uint64_t hash);

class KvEvents : public PrefixObserver {
 public:
  // Binds the endpoints and starts the thread; the first payload is that all is cleared. Errors: kUnsupported where
  // libzmq is not installed, kInvalid with ZeroMQ's reason.
  static Result<std::unique_ptr<KvEvents>> open(const KvEventOptions& options, int32_t block_len);
};

}  // namespace ibid
