// A model file in other types: every matrix dequantised and quantised again, norms, biases and metadata as they are.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "format/gguf_writer.h"
#include "format/importance.h"
#include "format/model_file.h"
#include "format/row_terms.h"
#include "format/type_rules.h"

namespace ibid {

// One file, or several (GgufWriter::write_shards) whose names begin with the target's less its ".gguf".
struct Shards {
  uint64_t max_bytes = 0;  // of tensors in a file; 0: one file
  bool keep = false;       // as many files as the source has, each with the same tensors
};

struct RequantiseOptions {
  TypeRules types;
  // From the file's metadata, read by code that knows the architecture (model/).
  std::string architecture;  // the prefix of its keys: "llama"
  int64_t n_layers = 0;
  int64_t n_heads = 0, n_kv_heads = 0, head_len = 0;  // H, K, D
  // G: the K heads of keys, and of values, are averaged in G groups of neighbours (Ainslie et al., 2023, section 2.1):
  // of each element the mean in double, rounded once to float, before it is quantised. Divides K; 0: K.
  int64_t kv_groups = 0;
  bool requantises = false;  // allows other types for what is quantised already, of which more is lost
  bool dry_run = false;      // writes nothing
  Shards shards = {};
  const Importance* importance = nullptr;  // not owned; null: errors count by the weights' own size
  const RowTerms* terms = nullptr;         // not owned; null: nothing is added. Not beside kv_groups
};

struct Requantised {
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;  // outermost first
    DType from, to;
    uint64_t bytes_from, bytes;
  };
  std::vector<Tensor> tensors;  // in the file's order
  uint64_t bytes = 0;           // of the file's tensors
  int64_t n_parameters = 0;
  bool was_quantised = false;  // some source matrix was quantised already
  std::map<DType, int64_t> matrices;
  // Matrices whose rows are not a whole number of blocks of the type that the mixture names for them.
  struct Instead {
    DType wished, got;
    int64_t row_len;
    auto operator<=>(const Instead&) const = default;
  };
  std::map<Instead, int64_t> instead;
  int64_t n_weighted = 0;  // matrices whose errors counted by the importance
};

// `writer` to `to`, in the files that `shards` asks for; `first`: where those of the source begin.
Status write_gguf(const GgufWriter& writer, const std::string& to, const Shards& shards, std::span<const size_t> first);

// Writes `to`, a GGUF file that appears only once it is complete. A matrix that already has the target type keeps its
// bytes, unless something is added to it. Holds some 16 MiB and the mapped pages of one tensor, regardless of the
// model's size. Errors are sentences about the file (a container without GGUF's metadata, a matrix that is quantised
// already, a number that is not finite) or the disk; an error leaves no file. progress(done, all) in bytes that were
// read, on the caller's thread.
Result<Requantised> requantise(const ModelFile& from, const std::string& to, const RequantiseOptions& options,
                               ThreadTeam& team, const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace ibid
