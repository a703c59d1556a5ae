// Whether a model's bytes, and those of its packed weights, are still what they were.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/cache_folder.h"
#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "format/fetched_file.h"
#include "format/file_lock.h"
#include "format/model_digest.h"
#include "host/loading.h"
#include "model/packed_file.h"

namespace ibid::cli {

int verify(const PullOptions& options) {
  auto path = host::resolve(options.model, false, terminal_progress());
  if (!path) return fail(path.error());
  const std::string cache = cache_folder();
  int n_known = 0;
  if (const Status sound = check_sums(*path, cache, n_known); !sound) {
    return fail(host::with_cure(sound.error(), options.model));
  }
  const auto file = ModelFile::open(*path);
  if (!file) return fail(file.error());
  const ModelDigest kept = model_digest(*file, cache), found = read_model_digest(*file);
  std::printf("%s  %s  %s\n", path->c_str(), bytes_text(file->file_bytes()).c_str(), found.hex().c_str());
  if (n_known > 0) {
    std::printf("%s: %d file%s as fetched (SHA-256)\n", path->c_str(), n_known, n_known == 1 ? "" : "s");
  } else {
    std::printf("%s: nothing is known here of what it should be; the digest above is to be compared by hand\n",
                path->c_str());
  }
  if (kept != found) {
    return fail(invalid(*path + " was " + kept.hex() +
                        " when it was read first, and there is no sign that it was written "
                        "since: what it lies on is failing. Fetch it again."));
  }
  ThreadTeam team(usable_cores());
  Stream stream(team);
  const auto packed = PackedFile::open(cache, found, stream, /*reads_all=*/true);
  const std::string of_packed = PackedFile::path_in(cache, found);
  if (packed.ok()) {
    std::printf("%s  %s  sound\n", of_packed.c_str(), bytes_text(static_cast<uint64_t>(packed->n_bytes())).c_str());
    return kOk;
  }
  if (packed.error().kind == ErrorKind::kNotFound) return kOk;
  // Under the lock, and if it still is the broken one: a server may just have made it again.
  const auto lock = FileLock::acquire(PackedFile::lock_in(cache), [] { return false; });
  if (!lock) return fail(packed.error());
  if (PackedFile::open(cache, found, stream, /*reads_all=*/true).ok()) return kOk;
  std::error_code ignored;
  std::filesystem::remove(of_packed, ignored);
  return fail(invalid(packed.error().message + " It was removed; the next start with --keep-packed makes it again."));
}

}  // namespace ibid::cli
