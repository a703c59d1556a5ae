// The digest of a model: which bytes an answer was computed from. Keys of shared cache blocks and traces carry it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

struct ModelDigest {
  uint64_t high = 0;
  uint64_t low = 0;
  std::string hex() const;  // 32 digits
  auto operator<=>(const ModelDigest&) const = default;
};

// XXH3-128 over all bytes of the file, header and tensors (GGUF); of a folder, XXH3-128 over the digests of its files
// in their order (weights, then configuration). About 10 GB/s from memory.
//
// The digest of each file is kept in `cache`/digests, under the file's identity (device, inode, size, modification
// time), so that a second start reads a few bytes only. A file modified within the last two seconds is not kept: its
// content might still change under the same identity. A cache that cannot be read or written is no error.
ModelDigest model_digest(const ModelFile& file, const std::string& cache);
ModelDigest model_digest(const ModelFile& file);  // with the user's cache folder
// The same without `cache`: reads all bytes.
ModelDigest read_model_digest(const ModelFile& file);

// The digest of one file.
ModelDigest file_digest(const MappedFile& file, const std::string& cache);
ModelDigest read_digest(const MappedFile& file);

// The entry of `cache` under a file's identity, and a way to store one: any checksum that stands for the file's bytes.
std::optional<ModelDigest> known_digest(const MappedFile& file, const std::string& cache);
void keep_digest(const MappedFile& file, const ModelDigest& digest, const std::string& cache);
// For a caller that has just written all of an open file and has not waited for the disk: the file is dated back by
// some seconds so that it counts as settled, and the entry is valid until the system starts again. Best effort.
void keep_written_digest(int descriptor, const ModelDigest& digest, const std::string& cache);

}  // namespace ibid
