// Fetching models, and listing those that have a name here.
#include <fmt/format.h>

#include <cstdio>

#include "base/cache_folder.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "format/registry.h"

namespace ibid::cli {

int pull(const PullOptions& options) {
  auto path = resolve(options.model);
  if (!path) return fail(path.error());
  std::printf("%s\n", path->c_str());
  return kOk;
}

int list_models() {
  for (const ListedModel& m : ibid::list_models(cache_folder())) {
    std::printf("%-24s %10s  %-8s %s\n", m.name.c_str(), bytes_text(static_cast<uint64_t>(m.size_bytes)).c_str(),
                m.present ? "here" : "to fetch", m.description.c_str());
  }
  return kOk;
}

}  // namespace ibid::cli
