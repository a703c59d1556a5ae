#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace ibid {
namespace {

constexpr int kMaxNodes = 1024;
constexpr int kBits = 8 * sizeof(unsigned long);

std::vector<int> list_in(const std::string& file) {
  std::string text;
  if (!std::getline(std::ifstream(file), text)) return {};
  Result<std::vector<int>> out = read_number_list(text);
  return out ? *std::move(out) : std::vector<int>();
}

Status set_policy(int mode, const std::vector<int>& nodes) {
  std::array<unsigned long, kMaxNodes / kBits> mask = {};
  for (const int node : nodes) {
    if (node < kMaxNodes) mask[static_cast<size_t>(node / kBits)] |= 1UL << (node % kBits);
  }
  if (syscall(SYS_set_mempolicy, mode, mask.data(), static_cast<unsigned long>(kMaxNodes)) == 0) return {};
  return unavailable(std::string("The system does not let --numa place memory: ") + std::strerror(errno) +
                         " (in a container, the capability CAP_SYS_NICE may be missing).",
                     "numa");
}

}  // namespace

Result<NumaPolicy> numa_policy_from(std::string_view text) {
  using Kind = NumaPolicy::Kind;
  if (text == "system") return NumaPolicy();
  if (text == "spread") return NumaPolicy{.kind = Kind::kSpread};
  int node = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (error != std::errc() || end != text.data() + text.size() || node < 0 || node >= kMaxNodes)
    return invalid("unknown value '" + std::string(text) + "'; expected system, spread or the number of a node",
                   "numa");
  return NumaPolicy{.kind = Kind::kNode, .node = node};
}

Result<std::vector<int>> read_number_list(std::string_view text) {
  std::vector<int> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& n) {
    const auto [following, error] = std::from_chars(at, end, n);
    at = following;
    return error == std::errc() && n >= 0 && n < 1 << 16;
  };
  for (bool is_first = true; at != end; is_first = false) {
    int first = 0;
    if (!is_first && *at++ != ',') return invalid("a list of numbers has no comma between two");
    if (!number(first)) return invalid("a list has something that is no number");
    int last = first;
    if (at != end && *at == '-' && (++at, !number(last) || last < first))
      return invalid("a list has a range that is none");
    for (int n = first; n <= last; ++n) out.push_back(n);
  }
  return out;
}

std::vector<int> numa_nodes() { return list_in("/sys/devices/system/node/has_memory"); }

Status place_memory(const NumaPolicy& policy) {
  if (policy.kind == NumaPolicy::Kind::kSystem) return {};
  const std::vector<int> nodes = numa_nodes();
  if (nodes.empty())
    return unavailable("The system does not report its memory nodes, so --numa has no effect.", "numa");
  if (policy.kind == NumaPolicy::Kind::kSpread) return set_policy(MPOL_INTERLEAVE, nodes);
  const std::string name = std::to_string(policy.node);
  if (std::ranges::find(nodes, policy.node) == nodes.end()) {
    std::string known;
    for (const int node : nodes) known += (known.empty() ? "" : ", ") + std::to_string(node);
    return not_found("There is no node " + name + " with memory here; there are: " + known + ".", "numa");
  }
  cpu_set_t mine, its;
  CPU_ZERO(&its);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0)
    return unavailable("The system does not report which cores this process may use.", "numa");
  for (const int core : list_in("/sys/devices/system/node/node" + name + "/cpulist")) {
    if (core < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(core), &mine)) CPU_SET(static_cast<size_t>(core), &its);
  }
  if (CPU_COUNT(&its) == 0) return unavailable("This process may use none of the cores of node " + name + ".", "numa");
  TRY(set_policy(MPOL_BIND, {policy.node}));
  if (sched_setaffinity(0, sizeof its, &its) != 0)
    return unavailable(std::string("The system does not let --numa choose cores: ") + std::strerror(errno) + ".",
                       "numa");
  return {};
}

}  // namespace ibid
