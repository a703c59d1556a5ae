// Fetching models, removing them, and listing those that have a name here.
#include <fmt/format.h>

#include <cstdio>

#include "base/cache_folder.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "format/fetched_file.h"
#include "format/registry.h"
#include "format/source.h"
#include "host/loading.h"

namespace ibid::cli {

int pull(const PullOptions& options) {
  const std::string cache = cache_folder();
  int n_known = 0;
  const auto there = locate_model(options.model, cache);
  const Status sound = there ? check_sums(*there, cache, n_known) : Status();
  if (!sound) std::fprintf(stderr, "warning: %s It is fetched again.\n", sound.error().message.c_str());
  auto path = host::resolve(options.model, /*checks=*/!sound, terminal_progress());
  if (!path) return fail(path.error());
  if (const Status now = sound ? sound : check_sums(*path, cache, n_known); !now)
    return fail(host::with_cure(now.error(), options.model));
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

int remove_model(const PullOptions& options) {
  const Result<int64_t> removed = ibid::remove_model(options.model);
  if (!removed) return fail(removed.error());
  std::printf("%s is removed; %s are free.\n", options.model.c_str(),
              bytes_text(static_cast<uint64_t>(*removed)).c_str());
  return kOk;
}

}  // namespace ibid::cli
