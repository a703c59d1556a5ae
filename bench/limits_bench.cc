// What this machine can do at most, at 1 to N threads, as JSON: read bandwidth, and multiply-adds in int8, bf16 and
// fp32 (0: no such unit that the kernels use). bench/compare.py holds engines against it.
//   limits_bench [THREADS]
#include <cstdio>
#include <cstdlib>

#include "cli/machine_limits.h"

int main(int argc, char** argv) {
  using namespace ibid;
  const int most = argc > 1 ? std::max(1, std::atoi(argv[1])) : usable_cores();
  std::printf("[");
  for (int n = 1; n <= most; ++n) {
    ThreadTeam team(n);
    const cli::MachineLimits limits = cli::measure_limits(team);
    std::printf("%s{\"threads\": %d, \"read\": %.4g, \"int8\": %.4g, \"bf16\": %.4g, \"fp32\": %.4g}",
                n > 1 ? ",\n " : "", n, limits.read_bytes_per_s, limits.int8_macs_per_s, limits.bf16_macs_per_s,
                limits.fp32_macs_per_s);
  }
  std::printf("]\n");
  return 0;
}
