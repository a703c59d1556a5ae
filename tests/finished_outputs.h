#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace ibid::testing {

// Steps until there is nothing to do; the last output of each request that has ended.
inline std::map<RequestId, Output> finished_outputs(Engine& engine) {
  std::map<RequestId, Output> last;
  std::vector<Output> out;
  while (engine.step(out)) {
  }
  for (Output& o : out) {
    if (o.finished) last[o.request] = std::move(o);
  }
  return last;
}

}  // namespace ibid::testing
