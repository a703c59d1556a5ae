// What the length of a block costs and buys: a workload through the cache, without a model, for blocks of 8 to 128; and
// the time that attention takes over them, where it reads such blocks.
#include <fmt/format.h>
#include <time.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cache/block_cache.h"
#include "cli/options/options.h"
#include "cli/terminal/progress.h"
#include "engine/workload.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tensor/stream.h"

namespace ibid::cli {
namespace {

constexpr int32_t kLens[] = {8, 16, 32, 64, 128};  // B
constexpr int32_t kVocabSize = 1 << 20;

struct Swept {
  double n_prompt = 0, n_found = 0, n_shared = 0;  // tokens: of prompts, of those found, of those in blocks not copied
  double slots = 0, unfilled = 0;                  // of requests that have all of their tokens
  double seconds = 0;                              // of looking up, taking, publishing and giving back
};

double cpu_seconds() {  // of this thread: the cache's is the only one
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// So many requests hold their blocks at once; who comes takes the oldest one's place.
Swept sweep(const Workload& workload, int32_t block_len, int64_t n_tokens, int32_t n_streams) {
  BlockCache cache({.n_blocks = static_cast<int32_t>(n_tokens / block_len), .block_len = block_len});
  const ScopeId scope = cache.tree().hold({});
  std::deque<BlockTable> held;
  std::vector<BlockCopy> copies;
  Swept out;
  for (size_t i = 0; i < workload.arrivals.size(); ++i) {
    std::vector<TokenId> tokens = prompt_of(workload, i, kVocabSize);
    const auto n_prompt = static_cast<int32_t>(tokens.size());
    if (n_prompt < 1) continue;
    tokens.resize(tokens.size() + static_cast<size_t>(workload.arrivals[i].answer_len), TokenId{0});
    const auto n_all = static_cast<int32_t>(tokens.size());
    const double begin = cpu_seconds();
    const auto give_back = [&] {
      cache.release(held.front());
      held.pop_front();
    };
    if (static_cast<int32_t>(held.size()) >= n_streams) give_back();
    BlockTable table;
    copies.clear();
    const int32_t n_found =
        cache.match(scope, std::span(tokens).first(static_cast<size_t>(n_prompt - 1)), table, copies);
    while (!cache.reserve(table, n_found, n_all, copies)) {
      if (held.empty()) break;
      give_back();
    }
    if (static_cast<int32_t>(table.size()) < cache.n_blocks_for(n_all)) {  // longer than all of the memory
      cache.release(table);
      continue;
    }
    const int32_t n_published = cache.publish(scope, tokens, n_all, n_found / block_len, table);
    cache.publish_tail(scope, tokens, n_all, n_published, table);
    held.push_back(std::move(table));
    out.seconds += cpu_seconds() - begin;
    out.n_prompt += n_prompt;
    out.n_found += n_found;
    out.n_shared += n_found / block_len * block_len;
    out.slots += static_cast<double>(cache.n_blocks_for(n_all)) * block_len;
    out.unfilled += static_cast<double>(cache.n_blocks_for(n_all)) * block_len - n_all;
  }
  return out;
}

// Milliseconds of a decode's attention over 4,096 positions, 30 layers of 9 heads over 3 of 64 in F16, from memory.
double decode_ms(Stream& s, int32_t block_len) {
  constexpr int32_t kHeads = 9, kKvHeads = 3, kHeadLen = 64, kLen = 4096, kLayers = 30, kRuns = 9;
  const KvGeometry geometry = {.n_kv_heads = kKvHeads, .key_len = kHeadLen, .value_len = kHeadLen};
  const int32_t n_blocks = kLen / block_len;
  const std::vector<KvLayout> layers(kLayers, KvLayout{geometry, DType::kF16, block_len});
  auto memory = Buffer::allocate(cpu_memory(), static_cast<size_t>(kv_pool_bytes(layers, n_blocks)),
                                 "the keys and values to read");
  if (!memory || !s.reserve_workspace(ops::paged_attention_workspace_bytes(1, kHeads, kHeadLen, kLen))) return 0;
  std::fill_n(memory->data(), memory->bytes(), std::byte{0x2a});
  const std::vector<PagedKv> caches = kv_pool(layers, n_blocks, memory->data());
  std::vector<BlockId> table;
  for (int32_t b = 0; b < n_blocks; ++b) table.push_back(BlockId{(b * 37) % n_blocks});
  std::vector<float> q(kHeads * kHeadLen, 0.25f), out(q.size());
  const TensorView q_view(q.data(), DType::kF32, {1, kHeads * kHeadLen});
  const TensorView out_view(out.data(), DType::kF32, {1, kHeads * kHeadLen});
  const int32_t position = kLen - 1, len = kLen, query_start[] = {0, 1}, block_start[] = {0, n_blocks};
  ForwardBatch batch{.n_tokens = 1,
                     .n_sequences = 1,
                     .block_len = block_len,
                     .positions = &position,
                     .query_start = query_start,
                     .kv_len = &len,
                     .block_start = block_start,
                     .block_table = table.data()};
  double best = INFINITY;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = steady_clock().now();
    for (const PagedKv& kv : caches) ops::paged_attention(s, out_view, q_view, kv, batch, {0.125f});
    best = std::min(best, steady_clock().now() - begin);
  }
  return 1e3 * best;
}

}  // namespace

int bench_cache(const CacheBenchOptions& options) {
  Workload workload = make_workload(1, 4000);
  if (!options.trace_file.empty()) {
    auto read = read_workload(options.trace_file);
    if (!read) return fail(read.error());
    workload = *std::move(read);
  }
  ThreadTeam team(options.n_threads > 0 ? options.n_threads : usable_cores());
  Stream stream(team);
  std::printf("%s",
              fmt::format("{}: {} requests, {} at once, memory for {} tokens\n\n"
                          "| block | unfilled | found | shared without a copy | bookkeeping, us a request | attention "
                          "of a decode at 4096, ms |\n|--:|--:|--:|--:|--:|--:|\n",
                          workload.name, workload.arrivals.size(), options.n_streams, options.n_tokens)
                  .c_str());
  for (const int32_t len : kLens) {
    const Swept s = sweep(workload, len, options.n_tokens, options.n_streams);
    const std::string attention = len <= 32 ? fmt::format("{:.2f}", decode_ms(stream, len)) : "not read";
    std::printf("%s",
                fmt::format("| {} | {:.2f} % | {:.1f} % | {:.1f} % | {:.1f} | {} |\n", len, 100 * s.unfilled / s.slots,
                            100 * s.n_found / s.n_prompt, 100 * s.n_shared / s.n_prompt,
                            1e6 * s.seconds / static_cast<double>(workload.arrivals.size()), attention)
                    .c_str());
    std::fflush(stdout);
  }
  return kOk;
}

}  // namespace ibid::cli
