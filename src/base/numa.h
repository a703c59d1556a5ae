// Where the memory of a machine with several nodes (NUMA) is taken: a policy of the calling thread and of all that it
// starts, for pages that they write first, files' pages among them (set_mempolicy(2)). Linux.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ibid {

struct NumaPolicy {
  enum class Kind { kSystem, kSpread, kNode };  // as the system has it; page by page over all nodes; of one node alone
  Kind kind = Kind::kSystem;
  int node = 0;
  bool operator==(const NumaPolicy&) const = default;
};

// "system", "spread" or a node's number.
Result<NumaPolicy> numa_policy_from(std::string_view text);

// Numbers as the system lists them, "0-3,8"; ascending. Errors: kInvalid for anything else.
Result<std::vector<int>> read_number_list(std::string_view text);

// Nodes with memory; empty where the system does not report them.
std::vector<int> numa_nodes();

// Spread: over all of them. One node: its memory alone, and its cores, as far as the thread may use them. Call it
// before starting the threads that it should affect. Errors: a node that does not exist, a node without a core that
// this process may use, a system that refuses.
Status place_memory(const NumaPolicy& policy);

}  // namespace ibid
