#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/engine_size.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "spec/lookup/lookup_proposer.h"
#include "worker/disk_thread.h"

namespace ibid {
namespace {

// What pool and tree note of a block: an entry, a node, its tokens, a place in the hash table and one in the order.
constexpr int64_t kNotesOfBlock = 192;
// Of a vocabulary's entry while a token is drawn: logits and log-probabilities, candidates and their orders, counts.
constexpr int64_t kDrawBytes = 2 * sizeof(float) + 3 * sizeof(Candidate) + sizeof(int32_t) + 1 + sizeof(uint32_t);

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

int64_t MemoryPlan::total() const {
  int64_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

std::string MemoryPlan::text() const {
  std::string out;
  for (const MemoryPart& part : parts) out += (out.empty() ? "" : ", ") + part.name + " " + mebibytes(part.bytes);
  return out;
}

DeviceFit Devices::fit(int64_t taken) const {
  const int64_t all = n * bytes;
  return taken > all ? DeviceFit::kNot : all - taken < all / 7 ? DeviceFit::kTight : DeviceFit::kRoomy;
}

void add_engine_parts(MemoryPlan& plan, const Model& model, const EngineOptions& options, int n_threads) {
  const MemoryUse& use = model.memory();
  const int64_t vocab_size = model.config().vocab_size, n_rows = std::max(rows_of(options), options.max_sequences);
  plan.add("weights read from the file", use.mapped_bytes);
  plan.add("weights repacked", use.repacked_bytes);
  plan.add("intermediates of a step", use.scratch_bytes + use.workspace_bytes);
  plan.add("rows of logits", n_rows * vocab_size * static_cast<int64_t>(sizeof(float)));
  plan.add("hidden states of a step", options.step_tokens * model.config().width * static_cast<int64_t>(sizeof(float)));
  plan.add("drawing", n_threads * vocab_size * kDrawBytes);
  // A prompt stands in its request and in its sequence, with a table of blocks and the order of a running one's batch.
  const int64_t of_sequence = model.context_len() * 2 * static_cast<int64_t>(sizeof(TokenId));
  plan.add("sequences", (options.max_sequences + int64_t{options.max_waiting}) * of_sequence);
  if (const int64_t state_bytes = model.state_layout().slot_bytes(); state_bytes > 0) {
    plan.add("recurrent states", states_bytes_of(state_bytes, options));
    if (options.host_states_bytes > 0) plan.add("recurrent states on the host", options.host_states_bytes);
    if (!options.disk_folder.empty()) plan.add("recurrent states on their way to a disk", kDiskThreadBytes);
  }
  if (options.max_drafts > 0)
    plan.add("texts that drafts come from", LookupProposer::bytes_of(model.context_len(), options.max_sequences));
}

int64_t kv_bytes_of_block(const Model& model, KvTypes kv_dtype, int32_t block_len) {
  return kv_block_bytes(kv_layouts(model.kv_geometries(), kv_dtype, block_len));
}

int64_t planned_block_bytes(const Model& model, const EngineOptions& options) {
  return model.config().is_encoder() ? 0
                                     : kv_bytes_of_block(model, options.kv_dtype, options.block_len) + kNotesOfBlock;
}

Result<int64_t> kv_bytes_within(int64_t limit, const MemoryPlan& beside, const Model& model,
                                const EngineOptions& options) {
  if (model.config().is_encoder()) {
    if (limit >= beside.total()) return 0;
    return exhausted(
        fmt::format("The encoder does not fit in {}: {} come to {}. Use a smaller context, fewer sequences "
                    "or more memory.",
                    mebibytes(limit), beside.text(), mebibytes(beside.total())));
  }
  const int64_t with_notes = planned_block_bytes(model, options);
  const int64_t block_bytes = kv_bytes_of_block(model, options.kv_dtype, options.block_len);
  const int64_t of_context = (model.context_len() + options.block_len - 1) / options.block_len;
  const int64_t n_blocks = std::min<int64_t>((limit - beside.total()) / with_notes, INT32_MAX / options.block_len);
  if (limit < beside.total() || n_blocks < of_context) {
    return exhausted(fmt::format(
        "The model does not fit in {}: {} come to {}, and keys and values of one context of {} tokens need {} more. "
        "Use a smaller context, fewer sequences or more memory.",
        mebibytes(limit), beside.text(), mebibytes(beside.total()), model.context_len(),
        mebibytes(of_context * with_notes)));
  }
  return n_blocks * block_bytes;
}

}  // namespace ibid
