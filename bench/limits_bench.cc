// The machine's limits at 1 to N threads, as JSON: read bandwidth, and multiply-adds in int8, bf16 and fp32 by the
// instructions of a table of kernels (0: not measured). bench/compare.py compares engines with them.
//   limits_bench [THREADS [ISA]]        ISA as `ibid --cpu-isa` has it
#include <cstdio>
#include <cstdlib>

#include "cli/measure/machine_limits.h"

int main(int argc, char** argv) {
  using namespace ibid;
  const int most = argc > 1 ? std::max(1, std::atoi(argv[1])) : usable_cores();
  if (argc > 2) {
    const auto isa = isa_from_name(argv[2]);
    const Status selected = isa ? select_isa(*isa) : invalid(std::string("there are no kernels \"") + argv[2] + "\"");
    if (!selected) {
      std::fprintf(stderr, "limits_bench: %s\n", selected.error().message.c_str());
      return 2;
    }
  }
  std::printf("[");
  for (int n = 1; n <= most; ++n) {
    ThreadTeam team(n);
    const cli::MachineLimits limits = cli::measure_limits(team);
    std::printf("%s{\"threads\": %d, \"isa\": \"%s\", \"read\": %.4g, \"int8\": %.4g, \"bf16\": %.4g, \"fp32\": %.4g}",
                n > 1 ? ",\n " : "", n, isa_name(selected_isa()).data(), limits.read_bytes_per_s,
                limits.int8_macs_per_s, limits.bf16_macs_per_s, limits.fp32_macs_per_s);
  }
  std::printf("]\n");
  return 0;
}
