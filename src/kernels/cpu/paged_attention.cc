// The way attention's work is cut into tasks, and the memory of partial states. What a task computes stands in
// attention_table.h; how work is cut changes no bit.
#include <algorithm>

#include "kernels/cpu/attention_table.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/table.h"
#include "kernels/kv_codes.h"

namespace ibid::cpu {
namespace {

// Only sequences with few query tokens are split over pieces (decode and verification at long context), and only while
// their tokens' partial states fit the workspace.
constexpr int32_t kMaxSplitQueries = 4;
constexpr int32_t kMaxSplitTokens = 16;
// Tasks that make a team busy even if the last one is unlucky.
constexpr int64_t kTasksPerThread = 4;
// Where tasks are fewer than that, they are cut, down to so many rows: less would load more than it multiplies.
constexpr int32_t kMinRows = 12;
// A split sequence of so many pieces has tasks of several KV heads; a shorter one too few of them.
constexpr int32_t kGroupedPieces = 16;
// Below this many multiply-adds the caller works alone (about 3 us).
constexpr int64_t kSerialWork = 1 << 17;

KvFormat format_of(KvType type) {
  switch (type) {
    case KvType::kF32:
      return KvFormat::kF32;
    case KvType::kF16:
      return KvFormat::kF16;
    case KvType::kBF16:
      return KvFormat::kBF16;
    case KvType::kI8:
      return KvFormat::kI8;
    case KvType::kI4:
      return KvFormat::kI4;
    case KvType::kF8:
      return KvFormat::kF8;
  }
  return KvFormat::kF32;
}

bool reads_blocks(const PagedKv& kv) {
  return attention_reads_blocks(kv.block_len, kv.key_len, format_of(kv.dtype.key), kv.value_len,
                                format_of(kv.dtype.value), kv.kind == KvKind::kLatent);
}

struct Call {
  const TensorView& out;
  const TensorView& q;
  const PagedKv& kv;
  const ForwardBatch& batch;
  const ops::AttentionParams& params;
  int32_t group;         // query heads of a KV head
  int32_t heads_a_task;  // at most as many as a task's rows
  int32_t head_chunks;   // tasks that share a KV head's group
  int32_t max_queries;   // that a task has rows for
  int32_t queries_a_task;
  int32_t max_groups;  // KV heads of a task of few queries, where it has several
  bool groups_all;     // all sequences of few queries have such tasks
  bool may_split;      // those of few queries
  int32_t min_tasks;   // that keep the team busy
  int32_t n_threads;

  int32_t n_queries(int32_t s) const { return batch.query_start[s + 1] - batch.query_start[s]; }
  int32_t longest_head() const { return std::max(kv.key_len, kv.value_len); }
  // The pieces that a sequence's queries see begin where the earliest one's window does.
  int32_t first_piece(int32_t s) const {
    if (params.window <= 0) return 0;
    const int32_t* positions = batch.read_by();
    const int32_t earliest = *std::min_element(positions + batch.query_start[s], positions + batch.query_start[s + 1]);
    return std::max(0, earliest + 1 - params.window) / kPieceLen;
  }
  int32_t n_pieces(int32_t s) const { return (batch.kv_len[s] + kPieceLen - 1) / kPieceLen - first_piece(s); }
  bool has_few_queries(int32_t s) const { return n_queries(s) <= std::min(kMaxSplitQueries, max_queries); }
  // KV heads that one task reads: a block's lie side by side, and longer runs of memory are read faster
  // (docs/decisions/0048-runs-of-memory.md).
  int32_t n_groups(int32_t s) const {
    if (!has_few_queries(s)) return 1;
    return groups_all || (may_split && n_pieces(s) >= kGroupedPieces) ? max_groups : 1;
  }
  // Number of runs that a split sequence's pieces are cut into: as long as possible, since the first lines that a task
  // reads have not been fetched ahead, and equally many for each thread.
  int32_t n_runs(int32_t s) const {
    const auto heads = static_cast<int32_t>(n_head_tasks(s));
    const int32_t n = ((min_tasks + heads - 1) / heads + n_threads - 1) / n_threads * n_threads;
    return std::min(n, n_pieces(s));
  }
  // Partial states of a split sequence lie [piece][chunk of heads][token][head of the chunk]: rows of a piece, and
  // those before a chunk's.
  int64_t partial_rows(int32_t s) const { return int64_t{n_queries(s)} * group * kv.n_kv_heads; }
  int64_t partial_row(int32_t s, int64_t chunk) const {
    return (chunk / head_chunks * group + chunk % head_chunks * heads_a_task) * n_queries(s);
  }
  int64_t n_head_tasks(int32_t s) const { return int64_t{kv.n_kv_heads} / n_groups(s) * head_chunks; }
  int64_t n_plain_tasks(int32_t s) const {
    return (n_queries(s) + queries_a_task - 1) / queries_a_task * n_head_tasks(s);
  }

  // Query tokens [first, first + n) of sequence s, counted in the batch, and chunk `chunk` of all heads' chunks, or
  // `n_groups` groups from that on.
  AttentionTask task(int32_t s, int32_t first, int32_t n, int64_t chunk, int32_t n_groups) const {
    const auto kv_head = static_cast<int32_t>(chunk / head_chunks);
    const auto first_in_group = static_cast<int32_t>(chunk % head_chunks) * heads_a_task;
    const int64_t head = int64_t{kv_head} * group + first_in_group;
    AttentionTask t = {};
    t.q = q.row_as<const float>(first) + head * kv.key_len;
    t.q_stride = q.row_stride_bytes / static_cast<int64_t>(sizeof(float));
    t.out = out.row_as<float>(first) + head * kv.value_len;
    t.out_stride = out.row_stride_bytes / static_cast<int64_t>(sizeof(float));
    t.positions = batch.read_by() + first;
    t.ends = batch.ends == nullptr ? nullptr : batch.ends + first;
    t.n_queries = n;
    t.n_heads = std::min(heads_a_task, group - first_in_group);
    t.n_groups = n_groups;
    t.key_len = kv.key_len;
    t.value_len = kv.value_len;
    t.latent = kv.kind == KvKind::kLatent;
    t.keys = kv.blocks + kv_element_offset(kv, KvPart::kKey, 0, kv_head, 0);
    t.values = kv.blocks + kv_element_offset(kv, KvPart::kValue, 0, kv_head, 0);
    if (is_code(kv.dtype.key)) t.key_scales = kv.blocks + kv_scale_offset(kv, KvPart::kKey, 0, kv_head);
    if (is_code(kv.dtype.value)) t.value_scales = kv.blocks + kv_scale_offset(kv, KvPart::kValue, 0, kv_head);
    if (kv.dtype.key == KvType::kI4) t.key_zeros = kv.blocks + kv_zero_offset(kv, KvPart::kKey, 0, kv_head);
    if (kv.dtype.value == KvType::kI4) t.value_zeros = kv.blocks + kv_zero_offset(kv, KvPart::kValue, 0, kv_head);
    t.group_bytes = kv_element_offset(kv, KvPart::kKey, 0, 1, 0) - kv_element_offset(kv, KvPart::kKey, 0, 0, 0);
    t.run_bytes = static_cast<int32_t>(kv_elements_bytes(kv.dtype.key, kv.key_len, kv.block_len) +
                                       kv_elements_bytes(kv.dtype.value, kv.value_len, kv.block_len));
    t.scales_bytes = static_cast<int32_t>(t.group_bytes) - t.run_bytes;
    t.block_bytes = kv.block_bytes;
    t.blocks = reinterpret_cast<const int32_t*>(batch.blocks(s).data());
    t.path_start = batch.path_start == nullptr ? nullptr : batch.path_start + first;
    t.path_slots = batch.path_slots;
    t.block_len = kv.block_len;
    t.key_format = format_of(kv.dtype.key);
    t.value_format = format_of(kv.dtype.value);
    t.scale = params.scale;
    t.soft_cap = params.soft_cap;
    t.window = params.window;
    t.sinks = params.sinks == nullptr ? nullptr : params.sinks + head;
    t.slopes = params.slopes == nullptr ? nullptr : params.slopes + head;
    t.fetches_into_second = core().fetches_into_second;
    return t;
  }
};

// A sequence's tasks: [first_task, the next one's first_task). Split: one for each run of pieces, else one for each
// query tile.
struct Span {
  int64_t first_task;
  int64_t first_partial;  // row of the partial states; -1: not split
};

// Runs a task over a cache of turned heads: its queries turned, and, where they are whole, its outputs turned back.
void run_turned(const Call& c, AttentionTask task) {
  const int32_t n_heads = task.n_heads * task.n_groups;
  float turned[kAttentionRowFloats];
  if (c.kv.dtype.key == KvType::kI4) {
    const int64_t row = int64_t{n_heads} * task.key_len;
    for (int32_t i = 0; i < task.n_queries; ++i) {
      std::copy_n(task.q + i * task.q_stride, row, turned + i * row);
      for (int32_t head = 0; head < n_heads; ++head) turn_out(turned + i * row + head * task.key_len, task.key_len);
    }
    task.q = turned;
    task.q_stride = row;
  }
  table().attention->run(task);
  if (c.kv.dtype.value != KvType::kI4 || task.partial != nullptr) return;
  for (int32_t i = 0; i < task.n_queries; ++i) {
    for (int32_t head = 0; head < n_heads; ++head)
      turn_out(task.out + i * task.out_stride + int64_t{head} * task.value_len, task.value_len);
  }
}

void run_task(const Call& c, const Span& span, int32_t s, int64_t index, float* partials) {
  const int64_t heads = c.n_head_tasks(s);
  const int32_t n_groups = c.n_groups(s);
  const int64_t chunk = index % heads * n_groups;
  const int64_t part = index / heads;
  if (span.first_partial < 0) {
    // Later query tiles see more keys: they go first, so that the team ends together.
    const int32_t n_tiles = (c.n_queries(s) + c.queries_a_task - 1) / c.queries_a_task;
    const int32_t first = (n_tiles - 1 - static_cast<int32_t>(part)) * c.queries_a_task;
    const int32_t n = std::min(c.queries_a_task, c.n_queries(s) - first);
    run_turned(c, c.task(s, c.batch.query_start[s] + first, n, chunk, n_groups));
    return;
  }
  AttentionTask task = c.task(s, c.batch.query_start[s], c.n_queries(s), chunk, n_groups);
  const int64_t n_pieces = c.n_pieces(s), n_runs = c.n_runs(s), state_len = attention_partial_len(c.kv.value_len);
  const int64_t first = part * n_pieces / n_runs;  // of those that are seen
  task.first_piece = c.first_piece(s) + static_cast<int32_t>(first);
  task.n_pieces = static_cast<int32_t>((part + 1) * n_pieces / n_runs - first);
  task.partial_stride = c.partial_rows(s) * state_len;
  task.partial = partials + (span.first_partial + c.partial_row(s, chunk)) * state_len + first * task.partial_stride;
  run_turned(c, task);
}

void merge_split(const Call& c, const Span& span, int32_t s, float* partials) {
  const int64_t state_len = attention_partial_len(c.kv.value_len), n_pieces = c.n_pieces(s);
  for (int64_t chunk = 0; chunk < int64_t{c.kv.n_kv_heads} * c.head_chunks; ++chunk) {
    const AttentionTask task = c.task(s, c.batch.query_start[s], c.n_queries(s), chunk, 1);
    float* states = partials + (span.first_partial + c.partial_row(s, chunk)) * state_len;
    for (int64_t i = 0; i < int64_t{c.n_queries(s)} * task.n_heads; ++i) {
      float* out = task.out + i / task.n_heads * task.out_stride + i % task.n_heads * c.kv.value_len;
      table().attention->merge(out, states + i * state_len, c.first_piece(s), n_pieces, c.partial_rows(s) * state_len,
                               task.sinks == nullptr ? nullptr : task.sinks + i % task.n_heads, c.kv.value_len);
      if (c.kv.dtype.value == KvType::kI4) turn_out(out, c.kv.value_len);
    }
  }
}

size_t spans_bytes(int64_t n_sequences) { return (static_cast<size_t>(n_sequences + 1) * sizeof(Span) + 63) / 64 * 64; }

// Which sequences are split, and where everybody's tasks and partial states begin: spans[S + 1], or null to count only.
struct Dealt {
  int64_t n_tasks = 0;
  int64_t n_partial_rows = 0;
};
Dealt deal(const Call& c, Span* spans) {
  Dealt dealt;
  int32_t split_tokens = 0;
  for (int32_t i = 0; i < c.batch.n_sequences; ++i) {
    const int32_t n = c.n_queries(i);
    const bool split = c.may_split && c.has_few_queries(i) && c.n_pieces(i) > 1 && split_tokens + n <= kMaxSplitTokens;
    if (spans != nullptr) spans[i] = {dealt.n_tasks, split ? dealt.n_partial_rows : -1};
    dealt.n_tasks += split ? c.n_runs(i) * c.n_head_tasks(i) : c.n_plain_tasks(i);
    if (!split) continue;
    split_tokens += n;
    dealt.n_partial_rows += c.partial_rows(i) * c.n_pieces(i);
  }
  if (spans != nullptr) spans[c.batch.n_sequences] = {dealt.n_tasks, -1};
  return dealt;
}

}  // namespace

size_t paged_attention_workspace_bytes(int32_t n_tokens, int32_t n_heads, int32_t value_len, int32_t max_positions) {
  const int64_t pieces = (int64_t{max_positions} + kPieceLen - 1) / kPieceLen;
  const int64_t rows = int64_t{std::min(n_tokens, kMaxSplitTokens)} * n_heads;
  return spans_bytes(n_tokens) + static_cast<size_t>(rows * pieces * attention_partial_len(value_len)) * sizeof(float);
}

void paged_attention(Stream& s, const TensorView& out, const TensorView& q, const PagedKv& kv,
                     const ForwardBatch& batch, const ops::AttentionParams& params) {
  const int64_t N = q.row_len();
  Call c = {out, q, kv, batch, params, static_cast<int32_t>(N / kv.key_len / kv.n_kv_heads)};
  const int32_t max_rows = attention_max_rows(c.longest_head());
  c.heads_a_task = std::min(c.group, max_rows);
  c.head_chunks = (c.group + c.heads_a_task - 1) / c.heads_a_task;
  c.max_queries = c.queries_a_task = max_rows / c.heads_a_task;

  const int64_t n_threads = s.team().n_threads();
  c.n_threads = static_cast<int32_t>(n_threads);
  c.min_tasks = static_cast<int32_t>(kTasksPerThread * n_threads);
  int32_t n_few = 0, most_queries = 1;  // sequences of few queries
  for (int32_t i = 0; i < batch.n_sequences; ++i) {
    if (!c.has_few_queries(i)) continue;
    ++n_few;
    most_queries = std::max(most_queries, c.n_queries(i));
  }
  c.max_groups = 1;
  if (batch.path_start == nullptr && c.head_chunks == 1 && reads_blocks(kv)) {
    const int32_t most = attention_max_groups(most_queries * c.group, c.longest_head());
    for (int32_t n = 2; n <= std::min(most, kv.n_kv_heads); ++n)
      c.max_groups = kv.n_kv_heads % n == 0 ? n : c.max_groups;
  }
  c.groups_all = n_threads == 1 || n_few * (kv.n_kv_heads / c.max_groups) >= c.min_tasks;
  int64_t work = 0;
  for (int32_t i = 0; i < batch.n_sequences; ++i)
    work += int64_t{c.n_queries(i)} * batch.kv_len[i] * (N + out.row_len());
  const auto count_plain = [&] {
    int64_t n = 0;
    for (int32_t i = 0; i < batch.n_sequences; ++i) n += c.n_plain_tasks(i);
    return n;
  };
  int64_t n_plain = count_plain();
  while (n_threads > 1 && n_plain < c.min_tasks && c.queries_a_task / 2 * c.heads_a_task >= kMinRows) {
    c.queries_a_task /= 2;
    n_plain = count_plain();
  }
  c.may_split = n_threads > 1 && n_plain < c.min_tasks && work > kSerialWork;

  // First the partial states that splits need are counted, then the workspace is taken once for all.
  const Dealt counted = deal(c, nullptr);
  const size_t partial_bytes =
      static_cast<size_t>(counted.n_partial_rows * attention_partial_len(kv.value_len)) * sizeof(float);
  std::byte* workspace = s.workspace(spans_bytes(batch.n_sequences) + partial_bytes);
  auto* spans = reinterpret_cast<Span*>(workspace);
  auto* partials = reinterpret_cast<float*>(workspace + spans_bytes(batch.n_sequences));
  const int64_t n_tasks = deal(c, spans).n_tasks;

  auto run = [&](int64_t task, int) {
    const Span* next = std::upper_bound(spans, spans + batch.n_sequences + 1, task,
                                        [](int64_t t, const Span& span) { return t < span.first_task; });
    const auto sequence = static_cast<int32_t>(next - spans - 1);
    run_task(c, spans[sequence], sequence, task - spans[sequence].first_task, partials);
  };
  if (n_threads == 1 || work <= kSerialWork) {
    for (int64_t task = 0; task < n_tasks; ++task) run(task, 0);
  } else {
    s.team().parallel_for(n_tasks, run);
  }
  for (int32_t i = 0; i < batch.n_sequences; ++i) {
    if (spans[i].first_partial >= 0) merge_split(c, spans[i], i, partials);
  }
}

}  // namespace ibid::cpu
