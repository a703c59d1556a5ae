#include "engine/engine_size.h"

#include <algorithm>

#include "base/memory.h"
#include "kernels/kv_layout.h"
#include "spec/drafts.h"
#include "worker/block_image.h"
#include "worker/kv_store.h"

namespace ibid {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kLeastDiskBlocks = 16;  // fewer hold no prompt that is worth looking for

// Of a model with recurrent layers, a state stands among the blocks.
Status size_disk(const EngineOptions& options, int64_t block_bytes, int64_t state_bytes) {
  const BlockFormat format = {.block_len = options.block_len, .payload_bytes = block_bytes, .state_bytes = state_bytes};
  const int64_t n_states = state_bytes > 0 ? 1 : 0;
  const int64_t least =
      (kLeastDiskBlocks - n_states) * format.image_bytes() + n_states * format.image_bytes(ImageKind::kState);
  if (options.disk_bytes < least) {
    return invalid(
        "The disk tier of " + std::to_string(options.disk_bytes / kMiB) + " MiB is less than " +
            std::to_string(kLeastDiskBlocks) + " blocks of " + std::to_string(format.image_bytes()) + " bytes" +
            (n_states > 0 ? ", one of them with a recurrent state: " + std::to_string(least) + " bytes" : "") + ".",
        "disk_bytes");
  }
  return {};
}

// It keeps no keys and values, and so nothing to share, to move down or to draft from.
Result<EngineOptions> size_encoder(const ModelFacts& model, EngineOptions options) {
  if (options.step_tokens < model.context_len) {
    return invalid("An encoder reads a text whole, and a step of " + std::to_string(options.step_tokens) +
                       " tokens does not hold its context of " + std::to_string(model.context_len) +
                       "; use a longer step or a smaller context.",
                   "step_tokens");
  }
  options.kv_bytes = options.host_bytes = options.disk_bytes = 0;
  options.host_copy_seconds = 0;
  options.disk_folder.clear();
  options.prefix_cache = false;
  options.max_drafts = 0;
  return options;
}

// Alone, a sequence reads one state that others may find again and writes another.
constexpr int64_t kLeastStates = 2;

Status size_states(const ModelFacts& model, EngineOptions& options) {
  if (model.state_bytes == 0) {
    options.states_bytes = options.host_states_bytes = 0;
    return {};
  }
  options.states_bytes = states_bytes_of(model.state_bytes, options);
  if (options.states_bytes / model.state_bytes < kLeastStates || options.states_bytes / model.state_bytes > INT32_MAX) {
    return invalid("Memory of " + std::to_string(options.states_bytes / kMiB) +
                       " MiB for recurrent states was asked for; one takes " + std::to_string(model.state_bytes) +
                       " bytes, and " + std::to_string(kLeastStates) + " at least are needed.",
                   "states_bytes");
  }
  if (options.host_states_bytes < 0 || options.host_states_bytes / model.state_bytes > INT32_MAX ||
      options.state_step < 1)
    return invalid("The host tier of recurrent states, or the tokens between two, are out of reach.",
                   "host_states_bytes");
  return {};
}

}  // namespace

int32_t rows_of(const EngineOptions& options) {
  if (options.max_rows > 0) return options.max_rows;
  constexpr int32_t kTexts = 4;
  return options.max_sequences + std::min(options.max_sequences, kTexts) * options.max_drafts;
}

int64_t states_bytes_of(int64_t state_bytes, const EngineOptions& options) {
  constexpr int64_t kStatesOfASequence = 4;
  if (state_bytes == 0 || options.states_bytes > 0) return state_bytes == 0 ? 0 : options.states_bytes;
  return kStatesOfASequence * options.max_sequences * state_bytes;
}

Result<EngineOptions> size_engine(const ModelFacts& model, EngineOptions options) {
  if (options.block_len < 1 || options.block_len > 1024) {
    return invalid("A block of " + std::to_string(options.block_len) + " tokens was asked for; expected 1 to 1024.",
                   "block_len");
  }
  if (options.max_sequences < 1 || options.step_tokens < options.max_sequences) {
    return invalid("A step of " + std::to_string(options.step_tokens) + " tokens cannot serve " +
                       std::to_string(options.max_sequences) +
                       " running sequences: each needs one, and at least one must run.",
                   "step_tokens");
  }
  if (options.max_drafts < 0 || options.max_drafts > kMaxDrafts) {
    return invalid(std::to_string(options.max_drafts) + " drafts of a sequence were asked for; expected 0 to " +
                       std::to_string(kMaxDrafts) + ".",
                   "max_drafts");
  }
  options.max_rows = rows_of(options);
  if (options.max_rows < options.max_sequences) {
    return invalid(std::to_string(options.max_rows) + " rows of logits cannot serve " +
                       std::to_string(options.max_sequences) + " running sequences.",
                   "max_rows");
  }
  if (model.encoder) return size_encoder(model, std::move(options));
  TRY(size_states(model, options));
  const int64_t block_bytes = KvStore::block_bytes(model, options.kv_dtype, options.block_len);
  const int64_t n_context_blocks = (model.context_len + options.block_len - 1) / options.block_len;
  if (options.kv_bytes == 0) {
    const int64_t n_contexts = std::max(1, options.max_sequences / 4);
    options.kv_bytes = std::max(n_context_blocks * block_bytes,
                                std::min(n_contexts * n_context_blocks * block_bytes, usable_bytes() / 2));
  }
  const int64_t n_blocks = options.kv_bytes / block_bytes;
  if (n_blocks < n_context_blocks || n_blocks > INT32_MAX / options.block_len) {
    return invalid("The KV cache of " + std::to_string(options.kv_bytes / kMiB) + " MiB holds " +
                       std::to_string(n_blocks * options.block_len) + " tokens and the context is " +
                       std::to_string(model.context_len) + "; use " +
                       std::to_string((n_context_blocks * block_bytes + kMiB - 1) / kMiB) +
                       " MiB or a smaller context.",
                   "kv_bytes");
  }
  if (options.host_bytes < 0 || options.host_bytes / block_bytes > INT32_MAX / options.block_len) {
    return invalid("The host tier of " + std::to_string(options.host_bytes / kMiB) + " MiB is out of reach.",
                   "host_bytes");
  }
  if (!options.disk_folder.empty()) TRY(size_disk(options, block_bytes, model.state_bytes));
  return options;
}

}  // namespace ibid
