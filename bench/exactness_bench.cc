// The price of exactness: ibid's kernels, which keep one order of sums for any number of rows, beside the fastest
// kernels without an order (bench/exactness/any_order.h), family by family.
//
//   exactness_bench [THREADS [ROUNDS [FAMILY]]]      FAMILY: a part of the names to measure; EVERY=1
//                                                    in the environment shows each variant, IBID_CPU_ISA=avx512_vnni
//                                                    or avx2 takes those kernels where there are more
//
// All variants of each family are tried and the fastest is used: other register tiles, one sum in several, K split
// over threads, ibid's own loops under -ffast-math, a shorter exp. Then ibid and it run in turns, A B A B, and the
// price is the median of their ratios less one, with quartiles. One thread is measured in its own processor time, so
// that other processes cost little; more threads by the clock, where times and price are the least ones, which are
// undisturbed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/exactness/any_order.h"
#include "bench/exactness/prices.h"
#include "kernels/cpu/table.h"
#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "kernels/linear.h"
#include "kernels/ops.h"

namespace ibid::bench {
namespace {

// The kernels of the selected set.
const AnyLinears* linears = nullptr;
const AnyOps* any_ops = nullptr;

std::vector<float> numbers(int64_t n, float size = 1.0f) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TensorView view(std::vector<float>& x, int64_t rows) {
  return TensorView(x.data(), DType::kF32, {rows, static_cast<int64_t>(x.size()) / rows});
}

// Random weights with small, finite scales, in each measured format.
std::vector<std::byte> weight_bytes(DType dtype, int64_t n, int64_t k) {
  std::vector<std::byte> raw(static_cast<size_t>(n * row_bytes(dtype, k)));
  std::mt19937 random(2);
  if (dtype == DType::kF32) {
    std::normal_distribution<float> normal(0.0f, 0.05f);
    for (int64_t i = 0; i < n * k; ++i) {
      const float x = normal(random);
      std::memcpy(raw.data() + 4 * i, &x, 4);
    }
    return raw;
  }
  for (std::byte& b : raw) b = static_cast<std::byte>(random());
  const int64_t block = traits(dtype).block_bytes;
  const int n_halves = dtype == DType::kQ4_1 || dtype == DType::kQ4_K ? 2 : 1;  // at a block's start
  for (int64_t i = 0; i < static_cast<int64_t>(raw.size()) / block; ++i) {
    for (int h = 0; h < n_halves; ++h) {
      // F16 of 2^-7 and a fraction, BF16 of the like: sign, and a small exponent.
      const uint32_t bits = random();
      const uint16_t half =
          static_cast<uint16_t>(dtype == DType::kBF16 ? 0x3c00 | (bits & 0x80ff) : 0x2000 | (bits & 0x83ff));
      std::memcpy(raw.data() + i * block + 2 * h, &half, 2);
    }
  }
  return raw;
}

// A weight as often as the caches do not hold it, and the forms of its inputs.
void linear_rows(Prices& prices, Stream& s, DType dtype, int64_t n_outputs, int64_t n_inputs, bool in_pieces,
                 int64_t n_rows) {
  const std::vector<std::byte> raw = weight_bytes(dtype, n_outputs, n_inputs);
  const TensorView raw_view(const_cast<std::byte*>(raw.data()), dtype, {n_outputs, n_inputs});
  const KPieces pieces = in_pieces ? pieces_of(dtype, n_inputs) : one_piece(n_inputs);
  std::vector<Weight> weights;
  const int64_t bytes = prepared_bytes(s, raw_view);
  for (int64_t held = 0; held < (n_rows <= 8 ? int64_t{96} << 20 : int64_t{4} << 20); held += bytes) {
    weights.push_back(prepare_weight(s, raw_view, pieces));
  }
  std::vector<float> x = numbers(n_rows * n_inputs), out(static_cast<size_t>(n_rows * n_outputs)), any_out(out.size());
  const TensorView x_view = view(x, n_rows), out_view = view(out, n_rows);
  CHECK(s.reserve_workspace(ops::linear_workspace_bytes(n_rows, n_inputs)).ok());

  std::vector<cpu::XGroup> groups(static_cast<size_t>(n_rows * (n_inputs / 32)));
  std::vector<uint16_t> x_bf16(static_cast<size_t>(n_rows * n_inputs));
  cpu::LinearTask task;
  task.dtype = dtype;
  task.tile_bytes = packed_tile_bytes(dtype, n_inputs);
  task.n_outputs = n_outputs;
  task.n_inputs = n_inputs;
  task.n_pieces = pieces.n;
  task.edges = pieces.edges.data();
  task.fetches_into_second = cpu::core().fetches_into_second;
  task.has_dot_a_cycle = cpu::core().has_dot_a_cycle;
  task.x = x.data();
  task.x_stride = n_inputs;
  task.x_bf16 = x_bf16.data();
  task.x_int8.n_rows = n_rows;
  task.x_int8.n_groups = n_inputs / 32;
  task.x_int8.groups = groups.data();
  task.out = any_out.data();
  task.out_stride = n_outputs;
  const auto convert = [&] {
    const cpu::LinearTable& table = linears->ibids;
    s.team().parallel_for(n_rows <= 8 ? 1 : s.team().n_threads(), [&](int64_t part, int) {
      const int64_t n = n_rows <= 8 ? 1 : s.team().n_threads();
      if (is_quantised(dtype)) {
        table.quantise_rows(task.x_int8, x.data(), n_inputs, n_rows * part / n, n_rows * (part + 1) / n);
      } else if (dtype == DType::kBF16) {
        table.round_rows(x_bf16.data(), n_inputs, x.data(), n_inputs, n_rows * part / n, n_rows * (part + 1) / n);
      }
    });
  };

  size_t next = 0;  // weights in turn, for both alike
  const auto ours = [&] {
    const Weight* weight = &weights[next++ % weights.size()];
    ops::linear(s, {&out_view, 1}, x_view, {&weight, 1});
  };
  const int64_t n_tiles = (n_outputs + cpu::kTileOutputs - 1) / cpu::kTileOutputs;
  std::vector<float> parts(static_cast<size_t>(s.team().n_threads()) * any_out.size());
  std::vector<Variant> variants;
  for (const AnyLinear& variant : linears->of(dtype)) {
    if (n_rows % variant.rows != 0 || (variant.rows == 1 && n_rows > 1)) continue;
    for (const bool split_k : {false, true}) {
      if (split_k && (s.team().n_threads() == 1 || n_rows > 8 || n_inputs % (256 * s.team().n_threads()) != 0))
        continue;
      variants.push_back({std::string(variant.name) + (split_k ? ", K over threads" : ""), [&, variant, split_k] {
                            cpu::LinearTask t = task;
                            t.packed = weights[next++ % weights.size()].packed;
                            convert();
                            const int64_t n_threads = s.team().n_threads();
                            if (split_k) {
                              s.team().parallel_for(n_threads, [&](int64_t i, int) {
                                cpu::LinearTask own = t;
                                own.out = parts.data() + i * static_cast<int64_t>(any_out.size());
                                variant.product(own, 0, n_rows, 0, n_tiles, n_inputs * i / n_threads,
                                                n_inputs * (i + 1) / n_threads);
                              });
                              for (size_t i = 0; i < any_out.size(); ++i) {
                                float sum = parts[i];
                                for (size_t j = 1; j < static_cast<size_t>(n_threads); ++j) {
                                  sum += parts[j * any_out.size() + i];
                                }
                                any_out[i] = sum;
                              }
                              return;
                            }
                            const int64_t n_tasks = n_threads == 1 ? 1 : std::min<int64_t>(4 * n_threads, n_tiles / 6);
                            s.team().parallel_for(n_tasks, [&](int64_t i, int) {
                              const int64_t begin = n_tiles * i / n_tasks / 6 * 6;
                              const int64_t end = i + 1 == n_tasks ? n_tiles : n_tiles * (i + 1) / n_tasks / 6 * 6;
                              for (int64_t row = 0; row < n_rows; row += 96) {
                                variant.product(t, row, std::min(n_rows, row + 96), begin, end, 0, n_inputs);
                              }
                            });
                          }});
    }
  }
  if (s.team().n_threads() == 1) {
    variants.push_back({"ibid's, fast-math", [&] {
                          cpu::LinearTask t = task;
                          t.packed = weights[next++ % weights.size()].packed;
                          convert();
                          for (int64_t row = 0; row < n_rows; row += 96) {
                            linears->ibids.product(t, row, std::min(n_rows, row + 96), 0, n_tiles);
                          }
                        }});
  }
  prices.row(std::string(traits(dtype).name) + " " + std::to_string(n_inputs) + " x " + std::to_string(n_outputs) +
                 (pieces.n > 1 ? " in 8 pieces, " : ", ") + std::to_string(n_rows) + (n_rows == 1 ? " row" : " rows"),
             ours, variants, out, any_out);
}

void attention(Prices& prices, Stream& s, int32_t begin, int32_t n) {
  constexpr int32_t kHeads = 9, kKvHeads = 3, kHeadLen = 64, kBlockLen = 16, kWidth = kHeads * kHeadLen;
  const int32_t len = begin + n;
  PagedKv kv;
  kv.dtype = KvType::kF16;
  kv.block_len = kBlockLen;
  kv.n_kv_heads = kKvHeads;
  kv.key_len = kv.value_len = kHeadLen;
  kv.n_blocks = (len + kBlockLen - 1) / kBlockLen;
  const KvGeometry geometry = {.n_kv_heads = kKvHeads, .key_len = kHeadLen, .value_len = kHeadLen};
  kv.block_bytes = KvLayout{geometry, kv.dtype, kBlockLen}.block_bytes();
  std::vector<uint16_t> cells(static_cast<size_t>(kv.n_blocks * kv.block_bytes / 2) + 32);
  std::mt19937 random(3);
  for (uint16_t& cell : cells) cell = static_cast<uint16_t>(0x3000 | (random() & 0x8bff));
  kv.blocks = reinterpret_cast<std::byte*>(cells.data());
  kv.blocks += (64 - reinterpret_cast<uintptr_t>(kv.blocks) % 64) % 64;
  std::vector<BlockId> table;
  for (int32_t b = 0; b < kv.n_blocks; ++b) table.push_back(BlockId{b});
  std::shuffle(table.begin(), table.end(), random);
  std::vector<float> q = numbers(int64_t{n} * kWidth), out(q.size()), any_out(q.size());
  const TensorView q_view = view(q, n), out_view = view(out, n);
  std::vector<int32_t> positions;
  for (int32_t p = begin; p < len; ++p) positions.push_back(p);
  const int32_t query_start[] = {0, n}, block_start[] = {0, kv.n_blocks};
  ForwardBatch batch;
  batch.n_tokens = n;
  batch.n_sequences = 1;
  batch.block_len = kBlockLen;
  batch.positions = positions.data();
  batch.query_start = query_start;
  batch.kv_len = &len;
  batch.block_start = block_start;
  batch.block_table = table.data();
  CHECK(s.reserve_workspace(ops::paged_attention_workspace_bytes(n, kHeads, kHeadLen, len)).ok());
  const ops::AttentionParams params = {1.0f / std::sqrt(static_cast<float>(kHeadLen))};

  std::vector<Variant> variants;
  for (const AnyAttention& variant : any_ops->attentions) {
    for (const int32_t queries : {8, 16, 32}) {
      if (n < queries && queries > 8) continue;
      variants.push_back({variant.name + (", tasks of " + std::to_string(queries)), [&, variant, queries] {
                            const int32_t n_tiles = (n + queries - 1) / queries;
                            s.team().parallel_for(int64_t{n_tiles} * kKvHeads, [&](int64_t i, int) {
                              const auto head = static_cast<int32_t>(i % kKvHeads);
                              const int32_t first = (n_tiles - 1 - static_cast<int32_t>(i / kKvHeads)) * queries;
                              cpu::AttentionTask t = {};
                              t.q = q.data() + int64_t{first} * kWidth + head * (kHeads / kKvHeads) * kHeadLen;
                              t.out = any_out.data() + (t.q - q.data());
                              t.q_stride = t.out_stride = kWidth;
                              t.positions = positions.data() + first;
                              t.n_queries = std::min(queries, n - first);
                              t.n_heads = kHeads / kKvHeads;
                              t.key_len = t.value_len = kHeadLen;
                              t.keys = kv.blocks + kv_element_offset(kv, KvPart::kKey, 0, head, 0);
                              t.values = kv.blocks + kv_element_offset(kv, KvPart::kValue, 0, head, 0);
                              t.block_bytes = kv.block_bytes;
                              t.blocks = reinterpret_cast<const int32_t*>(table.data());
                              t.block_len = kBlockLen;
                              t.key_format = t.value_format = cpu::KvFormat::kF16;
                              t.scale = params.scale;
                              variant.run(t);
                            });
                          }});
    }
  }
  prices.row(
      "attention, " + std::to_string(n) + (n == 1 ? " row" : " rows") + " after " + std::to_string(begin),
      [&] { ops::paged_attention(s, out_view, q_view, kv, batch, params); }, variants, out, any_out);
}

void rows_ops(Prices& prices, Stream& s) {
  constexpr int64_t kRows = 64;
  const auto each = [&](auto body) {
    s.team().parallel_for(s.team().n_threads() == 1 ? 1 : 4 * s.team().n_threads(), [&](int64_t part, int) {
      const int64_t n = s.team().n_threads() == 1 ? 1 : 4 * s.team().n_threads();
      for (int64_t i = kRows * part / n; i < kRows * (part + 1) / n; ++i) body(i);
    });
  };
  for (const int64_t width : {576, 2048}) {
    std::vector<float> x = numbers(kRows * width), weight = numbers(width), out(x.size()), any_out(x.size());
    const TensorView weight_view(weight.data(), DType::kF32, {width});
    prices.row(
        "rms_norm of " + std::to_string(width) + ", 64 rows",
        [&] { ops::rms_norm(s, view(out, kRows), view(x, kRows), weight_view, 1e-5f); },
        {{"fast-math",
          [&] {
            each([&](int64_t i) {
              any_ops->rms_norm(any_out.data() + i * width, x.data() + i * width, weight.data(), width, 1e-5f);
            });
          }}},
        out, any_out);
  }
  {
    constexpr int64_t kWidth = 49152;
    std::vector<float> x = numbers(8 * kWidth), out(x.size()), any_out(x.size());
    prices.row(
        "log_softmax of 49152, 8 rows", [&] { ops::log_softmax(s, view(out, 8), view(x, 8)); },
        {{"shorter exp, four sums",
          [&] {
            s.team().parallel_for(8, [&](int64_t i, int) {
              any_ops->log_softmax(any_out.data() + i * kWidth, x.data() + i * kWidth, kWidth);
            });
          }}},
        out, any_out);
  }
  {
    constexpr int64_t kWidth = 1536;
    std::vector<float> gate = numbers(kRows * kWidth, 2.0f), up = numbers(kRows * kWidth), out(gate.size()),
                       any_out(gate.size());
    prices.row(
        "silu_mul of 1536, 64 rows", [&] { ops::silu_mul(s, view(out, kRows), view(gate, kRows), view(up, kRows)); },
        {{"shorter exp, reciprocal",
          [&] {
            each([&](int64_t i) {
              any_ops->silu_mul(any_out.data() + i * kWidth, gate.data() + i * kWidth, up.data() + i * kWidth, kWidth);
            });
          }}},
        out, any_out);
  }
}

int run(int argc, char** argv) {
  const int n_threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  const int n_rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 21;
  if (const char* name = std::getenv("IBID_CPU_ISA")) {
    const auto isa = isa_from_name(name);
    if (!isa || !select_isa(*isa).ok()) {
      std::fprintf(stderr, "exactness_bench: no kernels for IBID_CPU_ISA=%s here\n", name);
      return 1;
    }
  }
  const bool has_bf16 = selected_isa() == Isa::kAvx512Bf16;
  const bool is_avx2 = selected_isa() == Isa::kAvx2;
  if (!has_bf16 && !is_avx2 && selected_isa() != Isa::kAvx512Vnni) {
    std::fprintf(stderr,
                 "exactness_bench: the variants are for AVX-512 with VNNI and for AVX2, and the kernels are %s\n",
                 isa_name(selected_isa()).data());
    return 1;
  }
  linears = is_avx2 ? &kLinearsAvx2 : &kLinearsAvx512;
  any_ops = is_avx2 ? &kOpsAvx2 : &kOpsAvx512;
  ThreadTeam team(n_threads);
  Stream s(team);
  std::printf("%s, %d %s, of %d rounds the %s\n", isa_name(selected_isa()).data(), n_threads,
              n_threads == 1 ? "thread" : "threads", n_rounds,
              n_threads == 1 ? "medians, by processor time" : "least, by the clock");
  if (!has_bf16 && !is_avx2) std::printf("BF16 is left out: its variants use a unit that these kernels do without.\n");
  std::printf("\n");
  Prices prices(n_threads > 1, n_rounds, argc > 3 ? argv[3] : "");
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_1, DType::kQ4_K, DType::kQ8_0, DType::kF16, DType::kBF16, DType::kF32}) {
    if (dtype == DType::kBF16 && !has_bf16 && !is_avx2) continue;
    for (const int64_t n_rows : {1, 4, 8, 96}) linear_rows(prices, s, dtype, 2048, 2048, true, n_rows);
  }
  for (const int64_t n_rows : {1, 8, 96}) linear_rows(prices, s, DType::kQ4_1, 1536, 576, false, n_rows);
  attention(prices, s, 1023, 1);
  attention(prices, s, 4095, 1);
  attention(prices, s, 1024, 8);
  for (const int32_t n : {256, 512, 2048}) attention(prices, s, 0, n);
  rows_ops(prices, s);
  return 0;
}

}  // namespace
}  // namespace ibid::bench

int main(int argc, char** argv) { return ibid::bench::run(argc, argv); }
