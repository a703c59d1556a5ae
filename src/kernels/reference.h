// Whether the ops of kernels/ops.h run on the reference (kernels/reference/, every op in double precision) instead of
// the CPU tables: slow, and how our numbers are compared with other engines. Set it while no op runs.
#pragma once

namespace ibid::reference {

void select(bool on);
bool selected();

}  // namespace ibid::reference
