// What this machine can do at most, measured: the bounds that ops are held against.
#pragma once

#include "base/thread_team.h"
#include "kernels/isa.h"

namespace ibid::cli {

struct MachineLimits {
  double read_bytes_per_s = 0;  // from memory, all threads, by the best of several ways to read
  // Multiply-adds by the instructions that a table's kernels use; 0: not measured (baseline has none of its own).
  double int8_macs_per_s = 0;
  double bf16_macs_per_s = 0;
  double fp32_macs_per_s = 0;
};

MachineLimits measure_limits(ThreadTeam& team, Isa isa = selected_isa());
// Its parts: bytes a second, and multiply-adds alone. A round takes some 10 ms for each unit.
double measure_read_rate(ThreadTeam& team);
MachineLimits measure_peaks(ThreadTeam& team, Isa isa, int n_rounds = 12);

}  // namespace ibid::cli
