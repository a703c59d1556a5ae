// The expected checksum of a fetched file: for a packaged model that of the registry, else the one recorded when the
// file was fetched, after it was compared with the server's.
//
//   PATH.sha256     64 digits, the file's name, and a comment with its XXH3-128: `sha256sum -c` reads it
//
// A file may change afterwards, by a writer or by its disk. `ibid verify` and `ibid pull` read all of it and compare; a
// start compares the digest that it has anyway (format/model_digest.h), which is computed again whenever the file's
// time or size differs: only `ibid verify` finds changes that leave both as they were.
#pragma once

#include <string>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

// Records the checksums of a file that was just fetched. Failing to write them is no error: the file then counts as
// unknown.
void keep_sums(const std::string& path, const MappedFile& content, const std::string& sha256);

// Reads a model's file, or the files in its folder, that have a recorded checksum. kInvalid: one of them differs or is
// gone. `n_known`: files that were compared.
Status check_sums(const std::string& path, const std::string& cache, int& n_known);

// The same for the weights, by cached digests: a file whose size and time are unchanged is not read.
Status check_digests(const ModelFile& file, const std::string& cache);

}  // namespace ibid
