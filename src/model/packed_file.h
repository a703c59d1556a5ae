// PackedFile: a model's weights as kernels read them (kernels/linear.h), kept in a file that a later start maps instead
// of packing them again: CACHE/packed/<digest of the model>.packed. Numbers as this machine has them (little-endian):
//
//      0  "ibidpack"
//      8  u32 version of the layout (kPackedVersion), u32 sections
//     16  XXH3-128 of the model (format/model_digest.h): u64 high, low
//     32  u64 bytes of the file, u64 zero
//     48  XXH3-128 of the header with these 16 bytes as zero: u64 high, low
//     64  of each section, 64 bytes: u32 tensor (its number in the model's file), u32 dtype, i64 N, K, u64 at, bytes,
//         XXH3-128 of its bytes (high, low), u64 zero
//         zeros up to a multiple of 4,096, where the header ends; the sections, each at a multiple of 4,096
//
// The layout is the same for all instruction sets, so the key is the model and the version. The header holds its
// sections' checksums: a process that has written all of them, or read all of them under a file's identity (device,
// inode, size, time) and found them right, keeps its checksum under it, as model_digest does; the next start reads the
// header alone. A file just written is flushed later: there this holds until a restart.
// What is torn, flipped, foreign or another user's is not used, and made again. Checksums find what broke, not what
// somebody made: the folder is its owner's alone (0700), and so is the file (0600).
//
// Threads: one at a time; spans may be read from any.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/model_digest.h"
#include "kernels/weight.h"
#include "tensor/stream.h"

namespace ibid {

class PackedFile {
 public:
  // Where it is for a model, there or not.
  static std::string path_in(const std::string& cache, const ModelDigest& model);
  // Of who writes there, or removes.
  static std::string lock_in(const std::string& cache) { return cache + "/packed/.lock"; }
  // Maps what is there. kNotFound: nothing. Any other error is a sentence about why it cannot be used. `reads_all`: its
  // sections are checked, on the stream's team, whatever was found before.
  static Result<PackedFile> open(const std::string& cache, const ModelDigest& model, Stream& s, bool reads_all = false);

  // Of a tensor of the model's file; empty where it has none of such a shape, type and length. `raw` outlives this: a
  // file that is cut short while it is mapped only saves time, and what it lost is packed again from there when it is
  // read.
  std::span<const std::byte> find(int64_t tensor, const TensorView& raw, int64_t bytes) const;
  int64_t n_bytes() const { return static_cast<int64_t>(file_.bytes().size()); }

 private:
  friend class PackedFileWriter;
  struct Section;
  struct Mender;
  PackedFile() = default;
  std::span<const Section> sections() const;

  std::shared_ptr<Mender> mender_;  // outlives the mapping
  MappedFile file_;
};

// Gathers what a load packed, to be kept.
class PackedFileWriter {
 public:
  void add(int64_t tensor, const Weight& weight) { weights_.push_back({tensor, weight}); }
  bool empty() const { return weights_.empty(); }
  // Writes beside the place and renames, so that a reader finds all or nothing. One process at a time writes; one that
  // finds another writing leaves it to that one. progress(share in [0, 1]).
  Status write(const std::string& cache, const ModelDigest& model, Stream& s,
               const std::function<void(double)>& progress) const;

 private:
  struct Packed {
    int64_t tensor;
    Weight weight;
  };
  std::vector<Packed> weights_;
};

}  // namespace ibid
