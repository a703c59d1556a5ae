// ops::linear on the shapes of the default model, beside the machine's own limits measured in the same run.
//
//   linear_bench [THREADS] [DTYPE ...]        e.g. linear_bench 2 Q4_1 Q8_0 F16; IBID_CPU_ISA=avx2 chooses the kernels
//
// A row of the table is one dtype: the share of the read bandwidth for 1 row, and the share of the compute bound (int8,
// fp32 or bf16 multiply-adds, whatever the dtype's kernel uses) for more. Weights are cycled through more memory than
// the caches hold, as a model's layers are.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "cli/measure/machine_limits.h"
#include "kernels/isa.h"
#include "kernels/ops.h"

namespace ibid {
namespace {

constexpr int64_t kN = 1536, kK = 576;  // the model's gate and up; its other matrices are of this size too
constexpr int64_t kWeightsBytes = int64_t{192} << 20;

struct Measured {
  double seconds;  // of one call, median
  int64_t bytes;   // of one packed weight
};

Measured measure(Stream& s, DType dtype, int64_t T) {
  std::vector<std::byte> raw(static_cast<size_t>(kN * row_bytes(dtype, kK)), std::byte{0x11});
  const TensorView view(raw.data(), dtype, {kN, kK});
  const int64_t bytes = prepare_weight(s, view).packed_bytes;
  std::vector<Weight> weights(static_cast<size_t>(T <= 8 ? std::max<int64_t>(1, kWeightsBytes / bytes) : 8));
  for (Weight& w : weights) w = prepare_weight(s, view);
  std::vector<float> x(static_cast<size_t>(T * kK)), out(static_cast<size_t>(T * kN));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
  CHECK(s.reserve_workspace(ops::linear_workspace_bytes(T, kK)).ok());
  const TensorView x_view(x.data(), DType::kF32, {T, kK}), out_view(out.data(), DType::kF32, {T, kN});
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (const Weight& w : weights) {
      const Weight* pointer = &w;
      ops::linear(s, {&out_view, 1}, x_view, {&pointer, 1});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    rounds.push_back(took.count() / static_cast<double>(weights.size()));
  }
  std::sort(rounds.begin(), rounds.end());
  return {rounds[rounds.size() / 2], bytes};
}

int run(int argc, char** argv) {
  if (const char* name = std::getenv("IBID_CPU_ISA")) {
    const auto isa = isa_from_name(name);
    if (!isa || !select_isa(*isa).ok()) {
      std::fprintf(stderr, "linear_bench: no kernels for IBID_CPU_ISA=%s here\n", name);
      return 1;
    }
  }
  ThreadTeam team(argc > 1 ? std::max(1, std::atoi(argv[1])) : usable_cores());
  Stream s(team);
  const cli::MachineLimits limits = cli::measure_limits(team);
  std::printf("%d threads, %s kernels; limits: read %.1f GB/s, int8 %.0f, bf16 %.0f, fp32 %.0f G multiply-adds/s\n",
              team.n_threads(), std::string(isa_name(selected_isa())).c_str(), limits.read_bytes_per_s * 1e-9,
              limits.int8_macs_per_s * 1e-9, limits.bf16_macs_per_s * 1e-9, limits.fp32_macs_per_s * 1e-9);
  std::printf("%-8s %10s %8s", "dtype", "1 row us", "of read");
  for (int T : {2, 4, 8, 32, 512}) std::printf("  %4d: us  of peak", T);
  std::printf("\n");
  std::vector<DType> dtypes;
  for (int i = 2; i < argc; ++i) {
    if (const auto dtype = dtype_from_name(argv[i])) dtypes.push_back(*dtype);
  }
  if (dtypes.empty()) dtypes = {DType::kQ4_1, DType::kQ4_0, DType::kQ8_0, DType::kF16, DType::kBF16, DType::kF32};
  for (DType dtype : dtypes) {
    if (kK % traits(dtype).block_len != 0) continue;
    const Measured one = measure(s, dtype, 1);
    std::printf("%-8s %10.1f %7.0f%%", std::string(traits(dtype).name).c_str(), one.seconds * 1e6,
                100.0 * static_cast<double>(one.bytes) / one.seconds / limits.read_bytes_per_s);
    const double bound = is_quantised(dtype)     ? limits.int8_macs_per_s
                         : dtype == DType::kBF16 ? limits.bf16_macs_per_s
                                                 : limits.fp32_macs_per_s;
    for (int T : {2, 4, 8, 32, 512}) {
      const Measured m = measure(s, dtype, T);
      const double macs = static_cast<double>(kN * kK * T) / m.seconds;
      std::printf("  %8.1f %7.0f%%", m.seconds * 1e6, bound > 0 ? 100.0 * macs / bound : 0.0);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ibid

int main(int argc, char** argv) { return ibid::run(argc, argv); }
