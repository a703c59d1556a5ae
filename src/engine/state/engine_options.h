// What an engine is made with, and what it reports.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/state/policy.h"
#include "engine/state/request.h"
#include "engine/state/step_load.h"
#include "kernels/kv_types.h"

namespace ibid {

struct EngineOptions {
  int32_t block_len = 16;  // B: 8, 16 or 32
  int64_t kv_bytes = 0;    // memory for KV blocks; 0: enough for max_sequences / 4 full contexts, bounded by RAM
  KvTypes kv_dtype;
  int32_t step_tokens = 512;   // T: token budget of a step
  int32_t max_sequences = 64;  // S: sequences running at once
  int32_t max_waiting = 4096;  // sequences queued beyond those before submit() refuses
  int32_t max_rows = 0;        // R: rows of logits of a step, which bound its memory; 0: by the two
  int32_t max_drafts = 0;      // of a sequence in a step, by look-up (spec/lookup/lookup_proposer.h); 0: no speculation
  int64_t host_bytes = 0;      // memory for blocks that have left that of kv_bytes; 0: they are forgotten
  // Of copying one block between the two, as measured: blocks go there and come back while computing them again takes
  // longer. 0: nothing.
  double host_copy_seconds = 0;
  std::string disk_folder;  // where whole blocks outlive the process; empty: they do not. Needs model_digest
  int64_t disk_bytes = 0;   // of files there, this model's and others'
  bool prefix_cache = true;
  PolicyKind policy = PolicyKind::kFair;
  double max_itl = 0;        // seconds between tokens that prompts may cause; 0: by the model's own speed (policy.h)
  std::string model_digest;  // of the weights; needed where cached blocks outlive the process
  std::vector<TokenId> end_of_generation;  // ids that end an answer; empty: the tokenizer's
  // What the cost of steps begins with. Empty: with an estimate (Engine::measure_steps() does better).
  std::vector<MeasuredStep> measured_steps;
  // Of a model with recurrent layers: memory for the states of sequences and for snapshots of them; 0: four for each of
  // max_sequences. And for snapshots that have left it; 0: they are forgotten.
  int64_t states_bytes = 0;
  int64_t host_states_bytes = 0;
  int32_t state_step = 2048;  // tokens between the snapshots of a sequence
};

inline constexpr size_t kDraftPlaces = 16;  // that are counted each for itself, the last with all after it

// What the disk tier has done since the start, and what it holds now.
struct DiskStats {
  int64_t n_blocks = 0;  // and states, there or being written, of any model
  int64_t bytes = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t n_fetches = 0;         // sequences that waited for blocks
  int64_t n_fetched = 0;         // blocks that came for them
  int64_t n_states_fetched = 0;  // recurrent states that came for them
  int64_t n_abandoned = 0;       // fetches that ended before all had come: slower than computing, a fault, no room
  int64_t n_not_worth = 0;       // prefixes that were there, and that computing was expected to have sooner
  int64_t n_evicted = 0;         // blocks and states
  int64_t n_unsaved = 0;         // blocks of sequences that ended before the disk had room for them
  int64_t n_corrupt = 0;         // files that were torn, or had a bit flipped
  int64_t n_foreign = 0;         // whole, but not what their names state
  int64_t n_missing = 0;
  int64_t n_failed_reads = 0;
  int64_t n_failed_writes = 0;
  int64_t n_no_space = 0;  // writes that found the disk full
};

// A snapshot for /metrics, /health and the page; cheap to take.
// Of the pictures that requests show (engine/picture_encoder.h).
struct PictureStats {
  int64_t n_waiting = 0;   // of requests that wait for their rows
  int64_t n_encoded = 0;   // by the vision tower
  int64_t n_found = 0;     // whose rows were kept
  int64_t n_failed = 0;    // requests that had no memory for theirs
  int64_t kept_bytes = 0;  // of rows
  double seconds = 0;      // of the tower
};

struct EngineStats {
  int64_t n_steps = 0;
  int32_t n_running = 0;  // sequences
  int32_t n_waiting = 0;  // sequences
  int32_t blocks_total = 0;
  int32_t blocks_free = 0;     // never used or emptied
  int32_t blocks_cached = 0;   // hold a prefix, evictable
  int32_t blocks_in_use = 0;   // referenced by running sequences
  int32_t blocks_shared = 0;   // of those, referenced more than once
  int64_t slots_unfilled = 0;  // of running sequences' blocks: reserved, and they have no token for them yet
  int32_t host_blocks_total = 0;
  int32_t host_blocks_cached = 0;
  bool uses_host = false;     // there is one, and copying a block down and up costs less than computing it
  int64_t n_blocks_down = 0;  // moved to the host
  int64_t n_blocks_up = 0;    // found there, and brought back
  // Recurrent states; none of a model without.
  int64_t state_bytes = 0;  // of one
  int32_t states_total = 0;
  int32_t states_free = 0;
  int32_t states_cached = 0;  // snapshots that no sequence refers to
  int32_t states_in_use = 0;
  int32_t n_snapshots = 0;  // on the device, the host or both
  int32_t host_states_total = 0;
  int32_t host_states_cached = 0;
  int64_t n_states_down = 0;  // moved to the host
  int64_t n_states_up = 0;
  int64_t n_snapshot_hits = 0;          // requests that went on from a snapshot
  int64_t tokens_without_snapshot = 0;  // of prompts: cached, and computed again as no snapshot was nearer
  DiskStats disk;
  PictureStats pictures;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t n_drafts = 0;        // times that a sequence had any in a step
  int64_t drafted_tokens = 0;  // that were verified
  int64_t accepted_tokens = 0;
  std::array<int64_t, kDraftPlaces> accepted_at = {};  // of those, by their place in what was proposed
  int64_t n_preemptions = 0;
  int64_t n_evictions = 0;     // times that a sequence went on with keys and values of fewer tokens (KvEviction)
  int64_t evicted_tokens = 0;  // of those
  int64_t n_finished = 0;
  int64_t n_cancelled = 0;
  int64_t n_failed = 0;
  int64_t n_overdue = 0;  // requests that did not begin in time
  // The last step: what was in it and where its time went, in seconds.
  int32_t step_prefill_tokens = 0;
  int32_t step_decode_tokens = 0;
  int32_t step_sequences = 0;
  int32_t step_drafted = 0;
  int32_t step_accepted = 0;
  // Of a record, where one is written (engine/record/); set by its owner.
  int64_t recorded_bytes = 0;
  bool is_recording = false;
  double step_plan = 0;
  double step_forward = 0;
  double step_sample = 0;
  double step_settle = 0;
  // As Engine::forecast() had it last.
  int64_t queue_tokens = 0;
  double first_token_seconds = 0;
  // |predicted - taken| / taken of the last steps' times, quantiles.
  double step_error_p50 = 0;
  double step_error_p95 = 0;
};

// One sequence's part of a step.
struct StepShare {
  RequestId request{};
  int32_t choice = 0;
  int32_t n_tokens = 0;
  bool operator==(const StepShare&) const = default;
};

}  // namespace ibid
