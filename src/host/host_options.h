// What an engine is made of, as plain data. No parser and no server is named here: the command line fills these structs
// from flags, others fill them by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/numa.h"
#include "engine/memory_plan.h"
#include "engine/state/policy.h"
#include "kernels/isa.h"
#include "kernels/kv_types.h"

namespace ibid::host {

// Adapters of low rank that requests may name (model/adapters.h).
struct AdapterArgs {
  struct Named {
    std::string name, path;
  };
  std::vector<Named> named;  // loaded with the model
  bool may_load = false;     // others may be loaded while it runs
  int32_t max_adapters = 0;  // loaded at once; 0: 32, and no less than are named
  int64_t max_rank = 64;     // of each
  int64_t memory_bytes = 0;  // of all of them; 0: of the named ones, and 256 MiB where others may be loaded
  int32_t n_slots() const;   // 0: there are none, and none may be loaded
};

// What makes pictures readable for the model (model/vision/tower.h).
struct PictureArgs {
  // A GGUF file with the vision tower; empty: the tower of the model's own folder, where it has one; kNoTower: none.
  std::string tower = "none";
  int64_t max_tokens = 4096;                // of a picture; larger ones are shrunk
  int64_t kept_bytes = int64_t{128} << 20;  // of rows of pictures that were shown lately
};
inline constexpr std::string_view kNoTower = "none";

// The model, and the machine that it runs on. `isa` and `reference_kernels` are state of the whole process, which the
// last load() or size() sets (host/host.h).
struct ModelArgs {
  std::string model = "default";  // as format/source.h reads it
  int32_t context_len = 0;        // 0: what the model promises, at most 8192
  bool own_context = false;   // 0 is all that the model promises, or half of it, and so on, until it fits into memory
  int threads = 0;            // 0: the cores that affinity and cgroup leave
  int64_t memory_bytes = 0;   // what the process may hold; 0: what the machine has
  int64_t process_bytes = 0;  // what it holds without any model; 0: what it holds now
  KvTypes kv_dtype;
  bool own_kv_dtype = false;  // kv_dtype is the one that a folder's recipe names; F16 where it names none
  std::optional<Isa> isa;     // none: the best of this CPU
  NumaPolicy numa;
  bool reference_kernels = false;
  AdapterArgs adapters;
  PictureArgs pictures;
  bool keep_packed = false;  // its weights as kernels read them, in a file of the cache folder
};

// Where blocks of the cache go that have left the memory for keys and values (docs/users/caching.md).
struct TierArgs {
  int64_t host_bytes = 0;   // 0: none
  std::string disk_folder;  // empty: none
  int64_t disk_bytes = int64_t{20} << 30;
};

// Who proposes drafts (docs/users/speculation.md).
inline constexpr std::string_view kOwnEagle = "own";   // the one that comes with ibid: of its default model alone
inline constexpr std::string_view kOwnLayers = "own";  // likewise those that were found for it
struct WindowArgs {  // tokens of a text that the model drafts over (spec/model/window_proposer.h)
  int32_t n_sink = 64, n_window = 512;
};
struct SpecArgs {
  std::string name;  // as given; empty: not given
  bool by_lookup = true;
  bool finds_own = true;                   // beside it the head that comes with ibid, if the model is its own: "auto"
  std::string draft_model;                 // beside it; empty: none
  std::optional<WindowArgs> draft_window;  // what it, or the model without layers, reads of a longer text; none: all
  std::string heads;                       // beside it: a file or folder; empty: none
  std::string eagle;  // beside it: a file or folder of a head with attention, or kOwnEagle; empty: none
  bool mtp = false;   // beside it: the layer that the model brings along (spec/heads/mtp_layer.h)
  std::string store;  // beside it: a file of texts (spec/experimental/text_store.h); empty: none
  std::string skip;   // beside it: the model without these layers (read_layers), or kOwnLayers; empty: none
  std::optional<WindowArgs> window;  // beside all of these: the model itself over a part of the text
  int32_t look_ahead = 0;  // beside it: so many tokens of a window (spec/experimental/lookahead_proposer.h); 0: none
  int64_t own_answers_bytes = 0;  // what tenants were answered, for their own next answers; 0: it is not kept
  int32_t k = 8;                  // most of a sequence in a step
  int32_t max_drafts() const { return by_lookup ? k : 0; }
  // The proposer beside the look-up, without its file: "eagle", "draft+window"; empty: none.
  std::string proposer() const;
};

// What one step may hold, which sizes the scratch arrays, what else the engine needs, and its proposers.
struct StepLimits {
  int32_t step_tokens = 512;
  int32_t max_sequences = 1;
  int32_t max_waiting = 1;
  int32_t max_rows = 0;  // 0: by the others
  bool has_grammars = false;
  bool makes_text = true;  // false: an encoder will do too
  int64_t kv_bytes = 0;    // 0: what ModelArgs::memory_bytes leaves; without that, the engine's choice
  SpecArgs spec = {.by_lookup = false, .finds_own = false};
  bool draft_chains = false;  // heads draw no trees
};

// A file to write all to that the engine does (docs/users/replay.md).
struct RecordArgs {
  std::string file;     // not there yet; empty: none
  bool redact = false;  // without what users wrote
};

// All of it: what open() needs.
struct HostOptions {
  ModelArgs model;
  StepLimits limits;
  TierArgs tiers;
  RecordArgs record;
  std::string name;  // of the model, in a record; empty: ModelArgs::model
  PolicyKind policy = PolicyKind::kFair;
  double max_itl = 0;       // seconds between tokens that prompts may cause; 0: by the model's own speed
  bool measures = true;     // what steps cost here, for some 50 ms; else it is estimated
  bool has_digest = false;  // EngineOptions::model_digest is set; a disk tier and a record have it anyway
  MemoryPlan beside;        // what the process will hold besides model and engine
};

}  // namespace ibid::host
