// What the program knows of the bytes of a file that it fetched: of a packaged model what the registry says, else what
// was written down when the file came, after its checksum was compared with the server's.
//
//   PATH.sha256     64 digits, the file's name, and a comment with its XXH3-128: `sha256sum -c` reads it
//
// A file may change afterwards, by whoever writes into it or by what it lies on. `ibid verify` and `ibid pull` read all
// of it and compare; a start compares the digest that it has anyway (format/model_digest.h), which is computed again
// whenever the file's time or size is another: what changes without changing those is for `ibid verify` to find.
#pragma once

#include <string>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

// Writes down what has just come. A file that cannot be written is no error: then less is known.
void keep_sums(const std::string& path, const MappedFile& content, const std::string& sha256);

// Reads all of a model's file, or of those in its folder, of which anything is known. kInvalid: one is not what it was,
// or is gone. `n_known`: files that were compared.
Status check_sums(const std::string& path, const std::string& cache, int& n_known);

// The same of the weights, by digests that are known without reading all where the file looks as it did.
Status check_digests(const ModelFile& file, const std::string& cache);

}  // namespace ibid
