// The time that a step of the 135M shape spends outside matrix products and attention: time per op at 1, 32 and 512
// tokens, and nanoseconds per element.
//   rows_bench [THREADS [ISA]]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/best_seconds.h"
#include "kernels/isa.h"
#include "kernels/kv_layout.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace ibid::bench {
namespace {

struct Floats {
  std::vector<float> cells;
  TensorView view;
  Floats(int64_t rows, int64_t columns)
      : cells(static_cast<size_t>(rows * columns)), view(cells.data(), DType::kF32, {rows, columns}) {
    for (size_t i = 0; i < cells.size(); ++i) cells[i] = static_cast<float>(i * 7919 % 2048) / 512.0f - 2.0f;
  }
};

void report(const char* name, int64_t rows, int64_t columns, const std::function<void()>& op) {
  const int repeats = rows == 1 ? 200 : 20;
  const double time = best_seconds(20,
                                   [&] {
                                     for (int i = 0; i < repeats; ++i) op();
                                   }) /
                      repeats;
  std::printf("  %-24s %4lld x %-6lld %10.2f us %8.3f ns/element\n", name, static_cast<long long>(rows),
              static_cast<long long>(columns), time * 1e6, time * 1e9 / static_cast<double>(rows * columns));
}

void run(Stream& s, int64_t n) {
  Floats x(n, 576), y(n, 576), out(n, 576), gate(n, 1536), up(n, 1536), gated(n, 1536), k(n, 192), v(n, 192),
      weight(1, 576);
  const TensorView w(weight.cells.data(), DType::kF32, {576});
  report("rms_norm", n, 576, [&] { ops::rms_norm(s, out.view, x.view, w, 1e-5f); });
  report("add_rms_norm", n, 576, [&] { ops::add_rms_norm(s, out.view, x.view, y.view, w, 1e-5f); });
  report("add", n, 576, [&] { ops::add(s, x.view, y.view); });
  // Not in place: what is multiplied over and over ends among the subnormals, which cost ten times as much.
  report("silu_mul", n, 1536, [&] { ops::silu_mul(s, gated.view, gate.view, up.view); });
  std::vector<double> frequency;
  for (int i = 0; i < 32; ++i) frequency.push_back(math::pow(10000.0, -i / 32.0));
  std::vector<int32_t> positions, slots;
  for (int32_t t = 0; t < n; ++t) {
    positions.push_back(1000 + t);
    slots.push_back(t);
  }
  Floats angles(n, 64);
  for (bool interleaved : {false, true}) {
    const ops::Rope rope = {interleaved, 32, 1.0f, frequency.data()};
    if (!interleaved) report("rope_angles", n, 64, [&] { ops::rope_angles(s, angles.view, rope, positions); });
    report(interleaved ? "rope q, neighbours" : "rope q, halves", n, 576,
           [&] { ops::rope(s, x.view, 64, rope, angles.view); });
  }
  for (DType dtype : {DType::kF16, DType::kF32}) {
    const KvLayout layer = {{.n_kv_heads = 3, .key_len = 64, .value_len = 64}, dtype, 16};
    const auto n_blocks = static_cast<int32_t>((n + 15) / 16);
    std::vector<std::byte> blocks(static_cast<size_t>(kv_pool_bytes({&layer, 1}, n_blocks)) + 64);
    const size_t gap = (64 - reinterpret_cast<uintptr_t>(blocks.data()) % 64) % 64;
    const PagedKv kv = kv_pool({&layer, 1}, n_blocks, blocks.data() + gap).front();
    ForwardBatch batch;
    batch.n_tokens = static_cast<int32_t>(n);
    batch.block_len = 16;
    batch.slots = slots.data();
    report(dtype == DType::kF16 ? "store_kv F16" : "store_kv F32", n, 384,
           [&] { ops::store_kv(s, kv, k.view, v.view, batch); });
  }
  if (n <= 32) {
    Floats logits(n, 49152), result(n, 49152);
    report("log_softmax", n, 49152, [&] { ops::log_softmax(s, result.view, logits.view); });
  }
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
  std::printf("%d threads, %s\n", team.n_threads(), std::string(isa_name(selected_isa())).c_str());
  for (int64_t n : {1, 32, 512}) run(s, n);
  float sum = 0.0f;
  report("math::exp, one by one", 1, 1000, [&] {
    for (int i = 0; i < 1000; ++i) sum += math::exp(-0.001f * static_cast<float>(i));
  });
  double log_sum = 0.0;
  report("math::log1p (F64)", 1, 1000, [&] {
    for (int i = 0; i < 1000; ++i) log_sum += math::log1p(-0.0009 * i);
  });
  std::printf("  (sums %g %g)\n", static_cast<double>(sum), log_sum);
  return 0;
}
