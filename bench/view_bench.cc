// The cost of drafts over views, part by part: passes of one row and of several after long sequences, and of one row
// over a view of them, in turns, relative to a step of one row after the longest.
//   view_bench [--model MODEL] [--threads N] [--context N] [--rounds N]
// Times are the process's CPU time, so that they hold on a busy machine too (with one thread; with more they include
// the spinning of waiting threads). The cache holds noise: it is read, and its values do not matter.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "cache/block_cache.h"
#include "cli/terminal/exit_code.h"
#include "host/loading.h"
#include "kernels/batch_arrays.h"
#include "worker/model_pass.h"
#include "worker/worker.h"

namespace ibid::bench {
namespace {

constexpr int32_t kLen = 16, kMostRows = 9;

struct Case {
  int32_t n_text, n_rows, n_view;  // n_view 0: no view
  std::vector<double> seconds;
  double median() const {
    std::vector<double> v = seconds;
    std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
    return v[v.size() / 2];
  }
};

double cpu_now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double run(Worker& worker, BatchArrays& arrays, const BlockTable& blocks, const Case& c) {
  arrays.clear();
  constexpr TokenId kToken{5};
  const int32_t end = c.n_text + c.n_rows, n_blocks = (end + kLen - 1) / kLen;
  if (c.n_view > 0) {
    const int32_t first = n_blocks - (c.n_view + kLen - 1) / kLen;
    arrays.add_viewed(kToken, c.n_text, c.n_text - first * kLen, slot_in(blocks, kLen, c.n_text));
    arrays.want_last();
    arrays.add_blocks(std::span(blocks).subspan(static_cast<size_t>(first), static_cast<size_t>(n_blocks - first)));
  } else {
    // Each with its row, as verification has them.
    for (int32_t p = c.n_text; p < end; ++p) {
      const std::span<int32_t> path = arrays.add_path(p - c.n_text + 1);
      for (int32_t at = c.n_text; at <= p; ++at) path[static_cast<size_t>(at - c.n_text)] = slot_in(blocks, kLen, at);
      arrays.add(kToken, p, slot_in(blocks, kLen, p));
      arrays.want_last();
    }
    arrays.add_blocks(std::span(blocks).first(static_cast<size_t>(n_blocks)));
  }
  arrays.end_sequence();
  const ForwardBatch batch = arrays.batch();
  const double begin = cpu_now();
  worker.wait(worker.launch({.batch = &batch}));
  return cpu_now() - begin;
}

int main_of(const host::ModelArgs& args, int rounds) {
  auto loaded = host::load(args, {.spec = {.finds_own = false, .k = kMostRows - 1}});
  if (!loaded) return cli::fail(loaded.error());
  const int32_t context_len = loaded->context_len, n_blocks = context_len / kLen;
  auto pass = std::make_unique<ModelPass>(*loaded->model, *loaded->stream, std::vector<TokenId>(), "");
  auto worker = Worker::create(
      std::move(pass), *loaded->stream,
      {.kv_dtype = DType::kF16, .block_len = kLen, .n_blocks = n_blocks, .step_tokens = 64, .max_rows = kMostRows});
  if (!worker) return cli::fail(worker.error());
  BlockTable blocks;
  for (int32_t b = 0; b < n_blocks; ++b) blocks.push_back(BlockId{b});
  // Numbers between -1/8 and 1/8; no two pages have the same bits.
  uint64_t x = 1;
  for (const PagedKv& kv : (*worker)->kv().owned()) {
    for (int64_t i = 0; i < kv.n_blocks * kv.layer_bytes; i += 2) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      const auto half = static_cast<uint16_t>(x >> 48 & 0xafff);
      std::memcpy(kv.blocks + i / kv.layer_bytes * kv.block_bytes + i % kv.layer_bytes, &half, sizeof half);
    }
  }
  BatchArrays arrays(kLen, {.n_tokens = 64,
                            .n_sequences = 1,
                            .n_rows = kMostRows,
                            .n_blocks = static_cast<size_t>(n_blocks),
                            .n_path_slots = 64});
  std::vector<Case> cases;
  for (int32_t n = context_len - 192; n >= 480; n /= 2) {
    for (const int32_t n_rows : {1, 2, 3, 4, 5, 8}) cases.push_back({n, n_rows, 0, {}});
  }
  for (int32_t view = 144; view < context_len / 2; view = 2 * view - 16 * (view == 144))
    cases.push_back({context_len - 192, 1, view, {}});
  for (int round = 0; round < rounds; ++round) {
    for (Case& c : cases) c.seconds.push_back(run(**worker, arrays, blocks, c));
  }
  std::printf("%s\n\n| after | rows | view | ms | part of a step |\n|--:|--:|--:|--:|--:|\n",
              loaded->description().c_str());
  for (const Case& c : cases) {
    std::printf("| %d | %d | %s | %.2f | %.3f |\n", c.n_text, c.n_rows,
                c.n_view > 0 ? std::to_string(c.n_view).c_str() : "", 1e3 * c.median(),
                c.median() / cases.front().median());
  }
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  ibid::host::ModelArgs args;
  args.threads = 1;
  args.context_len = 8192;
  int rounds = 9;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--model")
      args.model = value;
    else if (flag == "--threads")
      args.threads = std::atoi(value.c_str());
    else if (flag == "--context")
      args.context_len = std::atoi(value.c_str());
    else if (flag == "--rounds")
      rounds = std::max(1, std::atoi(value.c_str()));
  }
  return ibid::bench::main_of(args, rounds);
}
