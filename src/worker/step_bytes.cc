#include "worker/step_bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "kernels/kept_rows.h"

namespace ibid {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(BlockCopy) % 4 == 0 && std::is_trivially_copyable_v<BlockCopy>);
static_assert(sizeof(StateCopy) % 4 == 0 && std::is_trivially_copyable_v<StateCopy>);

constexpr uint32_t kMagic = 0x32737069;  // "ips2"
enum Flag : uint32_t {
  kBatch = 1,
  kHidden = 2,
  kRowsHidden = 4,
  kTaps = 8,
  kPlaces = 16,
  kPaths = 32,
  kTypes = 64,
  kStates = 128,
  kAdapters = 256,
  kKept = 512
};
constexpr uint32_t kAllFlags = 1023;

struct StepHead {
  uint32_t magic = kMagic, flags = 0;
  int32_t n_copies = 0, n_tokens = 0, n_sequences = 0, n_rows = 0, block_len = 0, n_blocks = 0, n_path_slots = 0;
  int32_t n_state_copies = 0, n_kept = 0, n_kept_blocks = 0;
};

StepHead head_of(const StepWork& work) {
  CHECK(work.batch == nullptr ||
            (work.batch->inputs == nullptr && work.batch->axes == nullptr && work.batch->ends == nullptr),
        "a step with pictures, which bytes do not hold");
  StepHead h = {.n_copies = static_cast<int32_t>(work.copies.size()),
                .n_state_copies = static_cast<int32_t>(work.state_copies.size())};
  if (work.wants_hidden) h.flags |= kHidden;
  if (work.wants_rows_hidden) h.flags |= kRowsHidden;
  if (work.wants_taps) h.flags |= kTaps;
  if (work.batch == nullptr) return h;
  const ForwardBatch& b = *work.batch;
  h.flags |= kBatch;
  h.n_tokens = b.n_tokens, h.n_sequences = b.n_sequences, h.n_rows = b.n_rows, h.block_len = b.block_len;
  h.n_blocks = b.n_sequences == 0 || b.block_start == nullptr ? 0 : b.block_start[b.n_sequences];
  if (b.places != nullptr) h.flags |= kPlaces;
  if (b.token_types != nullptr) h.flags |= kTypes;
  if (b.state_out != nullptr) h.flags |= kStates;
  if (b.adapters != nullptr) h.flags |= kAdapters;
  if (b.n_kept > 0) {
    const KeptRows& last = b.kept[b.n_kept - 1];
    h.flags |= kKept, h.n_kept = b.n_kept;
    h.n_kept_blocks = last.block_start + (last.n + b.block_len - 1) / b.block_len;
  }
  if (b.path_start != nullptr) h.flags |= kPaths, h.n_path_slots = b.path_start[b.n_tokens];
  return h;
}

// Calls visit(array, n) for each array of the batch in their order. `Batch` is const or not.
template <typename Batch, typename Visit>
void each_array(const StepHead& h, Batch& b, Visit visit) {
  const auto T = static_cast<size_t>(std::max(0, h.n_tokens)), S = static_cast<size_t>(std::max(0, h.n_sequences));
  visit(b.tokens, T);
  visit(b.positions, T);
  if (h.flags & kPlaces) visit(b.places, T);
  visit(b.slots, T);
  visit(b.query_start, S + 1);
  visit(b.kv_len, S);
  visit(b.block_start, S + 1);
  visit(b.block_table, static_cast<size_t>(h.n_blocks));
  visit(b.logit_rows, static_cast<size_t>(h.n_rows));
  if (h.flags & kPaths) visit(b.path_start, T + 1), visit(b.path_slots, static_cast<size_t>(h.n_path_slots));
  if (h.flags & kStates) visit(b.state_in, S), visit(b.state_out, T);
  if (h.flags & kTypes) visit(b.token_types, T);
  if (h.flags & kAdapters) visit(b.adapters, S);
  if (h.flags & kKept)
    visit(b.kept, static_cast<size_t>(h.n_kept)), visit(b.kept_blocks, static_cast<size_t>(h.n_kept_blocks));
}

Error bad(const char* what) { return invalid("These bytes are no step of this worker: " + std::string(what) + "."); }

bool ascends(const int32_t* values, int32_t n, int32_t last) {
  if (values[0] != 0 || values[n] != last) return false;
  return std::is_sorted(values, values + n + 1);
}

bool all_within(const int32_t* values, int64_t n, int64_t from, int64_t to) {
  return std::all_of(values, values + n, [&](int32_t v) { return v >= from && v < to; });
}

const char* wrong_copies(std::span<const BlockCopy> copies, const StepLimits& limits) {
  const auto is_block = [&](BlockId block, Tier tier) {
    const int32_t n = tier == Tier::kDevice ? limits.n_blocks : tier == Tier::kHost ? limits.n_host_blocks : 0;
    return raw(block) >= 0 && raw(block) < n;
  };
  for (const BlockCopy& c : copies) {
    if (!is_block(c.from, c.from_tier) || !is_block(c.to, c.to_tier)) return "a copy of a block that is not there";
    if (c.from_tier == Tier::kHost && c.to_tier == Tier::kHost) return "a copy within the host";
  }
  return nullptr;
}

const char* wrong_state_copies(std::span<const StateCopy> copies, const StepLimits& limits) {
  const auto is_state = [&](StateId state, Tier tier) {
    const int32_t n = tier == Tier::kDevice ? limits.n_states : tier == Tier::kHost ? limits.n_host_states : 0;
    return raw(state) >= 0 && raw(state) < n;
  };
  for (const StateCopy& c : copies) {
    if (!is_state(c.from, c.from_tier) || !is_state(c.to, c.to_tier)) return "a copy of a state that is not there";
    if (c.from_tier == c.to_tier) return "a copy of a state within a tier";
  }
  return nullptr;
}

const char* wrong_kept(const StepHead& h, const ForwardBatch& b, const StepLimits& limits) {
  const auto* blocks = reinterpret_cast<const int32_t*>(b.kept_blocks);
  if (!all_within(blocks, h.n_kept_blocks, 0, limits.n_blocks)) return "a kept block outside the pool";
  int32_t after = 0;
  for (int32_t i = 0; i < h.n_kept; ++i) {
    const KeptRows& rows = b.kept[i];
    if (rows.sequence < after || rows.sequence >= h.n_sequences) return "kept rows that are no sequence's";
    after = rows.sequence + 1;
    const int64_t n_certain = int64_t{rows.n_first} + rows.n_last;
    const int32_t n_tokens = b.query_start[rows.sequence + 1] - b.query_start[rows.sequence];
    if (rows.n_first < 0 || rows.n_last < 0 || n_certain > rows.n || rows.n >= b.kv_len[rows.sequence])
      return "kept rows that are not there";
    if (n_certain < rows.n && (rows.n_queries < 1 || rows.n_queries > std::min(n_tokens, kMaxScoringQueries) ||
                               rows.pool < 1 || rows.pool > limits.context_len || rows.pool % 2 == 0))
      return "kept rows that nothing chooses";
    const int64_t n_blocks = (int64_t{rows.n} + h.block_len - 1) / h.block_len;
    if (rows.block_start < 0 || rows.block_start + n_blocks > h.n_kept_blocks) return "too few blocks for kept rows";
  }
  return nullptr;
}

const char* wrong_batch(const StepHead& h, const ForwardBatch& b, const StepLimits& limits) {
  const int64_t n_slots = int64_t{limits.n_blocks} * h.block_len;
  const auto* tokens = reinterpret_cast<const int32_t*>(b.tokens);
  const auto* table = reinterpret_cast<const int32_t*>(b.block_table);
  if (!all_within(tokens, h.n_tokens, 0, limits.vocab_size)) return "a token outside the vocabulary";
  if (!all_within(b.positions, h.n_tokens, 0, limits.context_len)) return "a position outside the context";
  if (b.places != nullptr && !all_within(b.places, h.n_tokens, 0, limits.context_len))
    return "a place outside the context";
  if (!all_within(b.slots, h.n_tokens, 0, n_slots)) return "a slot outside the pool";
  if (!ascends(b.query_start, h.n_sequences, h.n_tokens)) return "tokens that are no sequence's";
  if (!ascends(b.block_start, h.n_sequences, h.n_blocks)) return "blocks that are no sequence's";
  if (!all_within(table, h.n_blocks, -1, limits.n_blocks)) return "a block outside the pool";
  if (!all_within(b.logit_rows, h.n_rows, 0, h.n_tokens)) return "a row of a token that is not there";
  if (!std::is_sorted(b.logit_rows, b.logit_rows + h.n_rows, std::less_equal<>())) return "rows that do not ascend";
  if (b.state_out != nullptr && (!all_within(b.state_in, h.n_sequences, -1, limits.n_states) ||
                                 !all_within(b.state_out, h.n_tokens, -1, limits.n_states)))
    return "a state outside the pool";
  if (b.adapters != nullptr && !all_within(b.adapters, h.n_sequences, -1, limits.n_adapters))
    return "an adapter that is not there";
  if (b.path_start != nullptr) {
    if (!ascends(b.path_start, h.n_tokens, h.n_path_slots)) return "paths that do not ascend";
    if (!all_within(b.path_slots, h.n_path_slots, 0, n_slots)) return "a path outside the pool";
  }
  for (int32_t s = 0; s < h.n_sequences; ++s) {
    int32_t longest = 0, most_in_table = 0, first = limits.context_len;
    for (int32_t t = b.query_start[s]; t < b.query_start[s + 1]; ++t) {
      const int32_t place = b.read_by()[t], on_path = static_cast<int32_t>(b.path(t).size());
      if (on_path > place + 1) return "a path longer than its sequence";
      longest = std::max(longest, place + 1);
      first = std::min(first, place);
      most_in_table = std::max(most_in_table, place + 1 - on_path);
    }
    if (b.kv_len[s] != longest) return "a length that is not its sequence's";
    // Blocks that no token's window reaches may be gone.
    const int32_t n_gone = limits.window == 0 ? 0 : std::max(0, first + 1 - limits.window) / h.block_len;
    const std::span<const BlockId> blocks = b.blocks(s);
    for (size_t i = static_cast<size_t>(n_gone); i < blocks.size(); ++i) {
      if (blocks[i] == BlockId::kNone) return "a block that is read and not there";
    }
    if (int64_t{b.block_start[s + 1] - b.block_start[s]} * h.block_len < most_in_table) return "too few blocks";
  }
  return h.n_kept > 0 ? wrong_kept(h, b, limits) : nullptr;
}

}  // namespace

size_t step_bytes(const StepWork& work) {
  const StepHead h = head_of(work);
  size_t n = sizeof(StepHead) + work.copies.size_bytes() + work.state_copies.size_bytes();
  if (work.batch != nullptr) {
    each_array(h, *work.batch, [&](const auto* array, size_t count) { n += count * sizeof(*array); });
  }
  return (n + 3) / 4 * 4;
}

void write_step(const StepWork& work, std::span<std::byte> out) {
  CHECK(out.size() == step_bytes(work));
  const StepHead h = head_of(work);
  std::byte* at = out.data();
  const auto put = [&](const void* from, size_t n) { at = std::copy_n(static_cast<const std::byte*>(from), n, at); };
  put(&h, sizeof(h));
  put(work.copies.data(), work.copies.size_bytes());
  put(work.state_copies.data(), work.state_copies.size_bytes());
  if (work.batch != nullptr) {
    each_array(h, *work.batch, [&](const auto* array, size_t count) { put(array, count * sizeof(*array)); });
  }
  std::fill(at, out.data() + out.size(), std::byte{0});
}

Result<ReadStep> ReadStep::read(std::span<const std::byte> bytes, const StepLimits& limits) {
  StepHead h;
  if (bytes.size() < sizeof(h) || reinterpret_cast<uintptr_t>(bytes.data()) % 4 != 0) return bad("they are too short");
  std::memcpy(&h, bytes.data(), sizeof(h));
  if (h.magic != kMagic || (h.flags & ~kAllFlags) != 0) return bad("they begin otherwise");
  const auto is_bounded = [](int64_t n, int64_t most) { return n >= 0 && n <= most; };
  const bool has_batch = (h.flags & kBatch) != 0;
  if (!is_bounded(h.n_copies, int64_t{2} * (limits.n_blocks + limits.n_host_blocks)) ||
      !is_bounded(h.n_state_copies, int64_t{2} * (limits.n_states + limits.n_host_states)) ||
      !is_bounded(h.n_tokens, limits.n_tokens) || !is_bounded(h.n_sequences, h.n_tokens) ||
      !is_bounded(h.n_rows, limits.n_rows) || !is_bounded(h.n_path_slots, int64_t{limits.context_len} * h.n_tokens) ||
      !is_bounded(h.n_blocks, int64_t{limits.context_len} * h.n_sequences) ||
      !is_bounded(h.n_kept, (h.flags & kKept) != 0 ? h.n_sequences : 0) ||
      !is_bounded(h.n_kept_blocks, int64_t{limits.context_len} * h.n_kept)) {
    return bad("it is larger than the largest step");
  }
  if (has_batch && h.block_len != 8 && h.block_len != 16 && h.block_len != 32) return bad("its blocks have no length");
  ReadStep step;
  std::span<const std::byte> rest = bytes.subspan(sizeof(h));
  bool is_whole = true;
  const auto take = [&](auto*& array, size_t n) {
    const size_t n_bytes = n * sizeof(*array);
    if (!is_whole || n_bytes > rest.size()) return static_cast<void>(is_whole = false);
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(rest.data());
    rest = rest.subspan(n_bytes);
  };
  const BlockCopy* copies = nullptr;
  take(copies, static_cast<size_t>(h.n_copies));
  const StateCopy* state_copies = nullptr;
  take(state_copies, static_cast<size_t>(h.n_state_copies));
  if (has_batch) each_array(h, step.batch_, take);
  if (!is_whole || rest.size() >= 4) return bad("they are not as long as their header states");
  step.has_batch_ = has_batch;
  step.work_ = {.copies = {copies, static_cast<size_t>(h.n_copies)},
                .state_copies = {state_copies, static_cast<size_t>(h.n_state_copies)},
                .wants_hidden = (h.flags & kHidden) != 0,
                .wants_rows_hidden = (h.flags & kRowsHidden) != 0,
                .wants_taps = (h.flags & kTaps) != 0};
  if (const char* wrong = wrong_copies(step.work_.copies, limits)) return bad(wrong);
  if (const char* wrong = wrong_state_copies(step.work_.state_copies, limits)) return bad(wrong);
  if (!has_batch) return step;
  step.batch_.n_tokens = h.n_tokens, step.batch_.n_sequences = h.n_sequences, step.batch_.n_rows = h.n_rows;
  step.batch_.block_len = h.block_len;
  step.batch_.n_kept = h.n_kept;
  if (const char* wrong = wrong_batch(h, step.batch_, limits)) return bad(wrong);
  return step;
}

}  // namespace ibid
