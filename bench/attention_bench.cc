// Paged attention against the machine's limits, both measured in this run.
//   attention_bench [THREADS [ISA]]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/best_seconds.h"
#include "cli/measure/machine_limits.h"
#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "tensor/buffer.h"

namespace ibid::bench {
namespace {

struct Shape {
  const char* name;
  int32_t heads, kv_heads, head_len, layers;
};
constexpr Shape kShapes[] = {
    {"135M 9/3x64", 9, 3, 64, 30}, {"1B 32/8x64", 32, 8, 64, 8}, {"8B 32/8x128", 32, 8, 128, 4}};

constexpr int32_t kFewRows = 16;  // decodes, and drafts under verification

// All layers of a model's cache for one sequence, filled with small numbers.
struct Cache {
  std::vector<PagedKv> layers;
  Buffer cells;
  std::vector<BlockId> table;

  Cache(const Shape& shape, KvTypes dtype, int32_t block_len, int32_t len) {
    const int32_t n_blocks = (len + block_len - 1) / block_len;
    const KvGeometry geometry = {.n_kv_heads = shape.kv_heads, .key_len = shape.head_len, .value_len = shape.head_len};
    const std::vector<KvLayout> layouts(static_cast<size_t>(shape.layers), KvLayout{geometry, dtype, block_len});
    const int64_t n_bytes = kv_pool_bytes(layouts, n_blocks);
    cells = Buffer::allocate(cpu_memory(), static_cast<size_t>(n_bytes), "the keys and values to read").value();
    std::byte* memory = cells.data();
    layers = kv_pool(layouts, n_blocks, memory);
    std::mt19937 random(1);
    for (int32_t b = 0; b < n_blocks; ++b) table.push_back(BlockId{b});
    std::shuffle(table.begin(), table.end(), random);
    const bool is_f32 = dtype == KvTypes(KvType::kF32), is_bf16 = dtype == KvTypes(KvType::kBF16);
    const int64_t size = is_f32 ? 4 : 2;  // of codes two or four at a time, and scales
    for (int64_t i = 0; i < n_bytes / size; ++i) {
      const float value = static_cast<float>(random() % 1024) / 1024.0f - 0.5f;
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      if (is_f32) {
        reinterpret_cast<float*>(memory)[i] = value;
      } else {
        // The sign and a small exponent of either format.
        const uint32_t half = is_bf16 ? bits >> 16 : (bits >> 16 & 0x8000) | 0x3000 | (random() & 0x7ff);
        reinterpret_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(half);
      }
    }
  }
};

void run(Stream& s, const Shape& shape, KvTypes dtype, int32_t block_len, int32_t begin, int32_t n, double bandwidth,
         double rate) {
  const int32_t len = begin + n;
  Cache cache(shape, dtype, block_len, len);
  std::vector<float> q(static_cast<size_t>(n) * shape.heads * shape.head_len, 0.25f), out(q.size());
  const TensorView q_view(q.data(), DType::kF32, {n, shape.heads * shape.head_len});
  const TensorView out_view(out.data(), DType::kF32, {n, shape.heads * shape.head_len});
  std::vector<int32_t> positions;
  for (int32_t p = begin; p < len; ++p) positions.push_back(p);
  const int32_t query_start[] = {0, n};
  ForwardBatch batch;
  batch.n_tokens = n;
  batch.n_sequences = 1;
  const int32_t block_start[] = {0, static_cast<int32_t>(cache.table.size())};
  batch.block_len = block_len;
  batch.positions = positions.data();
  batch.query_start = query_start;
  batch.kv_len = &len;
  batch.block_start = block_start;
  batch.block_table = cache.table.data();
  CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(n, shape.heads, shape.head_len, len)).ok());
  const ops::AttentionParams params = {1.0f / std::sqrt(static_cast<float>(shape.head_len))};
  // Few rows read each layer's cache once and find none of it in the processor's; a prefill is bound by arithmetic.
  const size_t layers = n <= kFewRows ? cache.layers.size() : 1;
  const double time = best_seconds(n <= kFewRows ? 15 : 10, [&] {
    for (size_t layer = 0; layer < layers; ++layer)
      ops::paged_attention(s, out_view, q_view, cache.layers[layer], batch, params);
  });
  double pairs = 0.0;
  for (int32_t p : positions) pairs += p + 1;
  const double operations = pairs * 4.0 * shape.heads * shape.head_len * layers;
  const double bytes = static_cast<double>(cache.layers[0].layer_bytes) * cache.table.size() * layers;
  std::printf("%-12s %-7s B%-3d %-8s %6d  %9.3f ms  %7.1f GFLOP/s %5.1f %%  %7.1f GB/s %5.1f %%\n", shape.name,
              dtype.name().c_str(), block_len,
              n == 1          ? "decode"
              : n <= kFewRows ? ("rows " + std::to_string(n)).c_str()
                              : "prefill",
              len, time * 1e3, operations / time * 1e-9, operations / time / rate * 100.0, bytes / time * 1e-9,
              bytes / time / bandwidth * 100.0);
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) {
  using namespace ibid;
  using namespace ibid::bench;
  ThreadTeam team(argc > 1 ? std::max(1, std::atoi(argv[1])) : usable_cores());
  if (argc > 2) {
    const auto isa = isa_from_name(argv[2]);
    if (!isa || !select_isa(*isa).ok()) {
      std::fprintf(stderr, "unknown or unsupported instruction set \"%s\"\n", argv[2]);
      return 2;
    }
  }
  Stream s(team);
  const cli::MachineLimits limits = cli::measure_limits(team);
  const double bandwidth = limits.read_bytes_per_s, rate = 2 * limits.fp32_macs_per_s;
  std::printf("%d threads, %s; limits: %.1f GB/s read, %.1f F32 GFLOP/s\n", team.n_threads(),
              std::string(isa_name(selected_isa())).c_str(), bandwidth * 1e-9, rate * 1e-9);
  for (const Shape& shape : kShapes) {
    for (int32_t len : {1024, 4096, 16384}) run(s, shape, DType::kF16, 16, len - 1, 1, bandwidth, rate);
    for (int32_t n : {2, 4, 8, 16}) {
      for (int32_t len : {1024, 4096}) run(s, shape, DType::kF16, 16, len - n, n, bandwidth, rate);
    }
    for (int32_t len : {512, 2048}) run(s, shape, DType::kF16, 16, 0, len, bandwidth, rate);
    for (const KvTypes codes :
         {KvTypes(KvType::kF8), KvTypes(KvType::kI8), KvTypes(KvType::kI8, KvType::kI4), KvTypes(KvType::kI4)}) {
      for (int32_t len : {1024, 4096, 16384}) run(s, shape, codes, 16, len - 1, 1, bandwidth, rate);
      run(s, shape, codes, 16, 4096 - 4, 4, bandwidth, rate);
      run(s, shape, codes, 16, 0, 2048, bandwidth, rate);
    }
  }
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int32_t block_len : {8, 32}) {
      run(s, kShapes[0], dtype, block_len, 4095, 1, bandwidth, rate);
      run(s, kShapes[0], dtype, block_len, 0, 512, bandwidth, rate);
    }
  }
  return 0;
}
