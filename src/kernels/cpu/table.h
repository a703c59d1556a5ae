// The seam between ops and CPU kernels: one table of function pointers per instruction set. The bodies are written once
// (cpu/*.inl over the vector type of cpu/simd.h) or per set where instructions differ; every file that is compiled with
// an instruction set's flags keeps all it defines in that set's namespace and uses no std:: template (a symbol shared
// with other files would let the linker pick the wrong code).
#pragma once

namespace ibid::cpu {

struct LinearTable;     // cpu/linear_table.h
struct RowTable;        // cpu/row_table.h: norms, activations, rope, softmax, conversions
struct AttentionTable;  // cpu/attention_table.h
struct NoiseTable;      // cpu/noise_table.h
struct RecurrentTable;  // cpu/recurrent_table.h

struct Table {
  const LinearTable* linear;
  const RowTable* row;
  const AttentionTable* attention;
  const NoiseTable* noise;
  const RecurrentTable* recurrent;
};

// The table of the selected ISA.
const Table& table();

// What differs between cores of one instruction set. It decides on speed alone.
struct Core {
  bool fetches_into_second;  // what is fetched ahead is better brought into the second-level cache than into the first
  bool has_dot_a_cycle;      // vectors of 512 bits go through units of 256, which begin one integer dot a cycle
};
const Core& core();
void assume_core(const Core& core);  // for tests; not while ops run

}  // namespace ibid::cpu
