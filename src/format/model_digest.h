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
// The same without looking into `cache`, for whoever doubts it: all bytes are read.
ModelDigest read_model_digest(const ModelFile& file);

// Of one file alone.
ModelDigest file_digest(const MappedFile& file, const std::string& cache);
ModelDigest read_digest(const MappedFile& file);

// What `cache` has under a file's identity, and another entry of that kind: of any checksum that stands for its bytes.
std::optional<ModelDigest> known_digest(const MappedFile& file, const std::string& cache);
void keep_digest(const MappedFile& file, const ModelDigest& digest, const std::string& cache);
// By whoever has just written all of an open file and has not waited for the disk: the file is made to look settled
// (modified some seconds ago), and the entry is believed until the system starts again. A wish.
void keep_written_digest(int descriptor, const ModelDigest& digest, const std::string& cache);

}  // namespace ibid
