// GgufWriter: GGUF version 3 files, for tests and for requantised models. What it writes, open_gguf reads back equal.
//
// Integers are written as uint32 where they fit, else as int64; numbers as float32 where that is exact, else as float64
// (arrays alike, integers as int32): the types that readers of the field expect.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/model_file.h"

namespace ibid {

class GgufWriter {
 public:
  // Keys keep their order; setting one again replaces its value.
  void set(std::string key, MetaValue value);
  void set(std::string key, int value) { set(std::move(key), MetaValue(int64_t{value})); }
  void set(std::string key, const char* value) { set(std::move(key), MetaValue(std::string(value))); }

  // Dimensions outermost first; `data` is contiguous, has exactly the tensor's bytes, and stays valid until the file is
  // written. Names are unique and dtypes have a ggml number: CHECKed.
  void add_tensor(std::string name, DType dtype, std::span<const int64_t> dims, std::span<const std::byte> data);
  void add_tensor(std::string name, DType dtype, std::initializer_list<int64_t> dims, std::span<const std::byte> data) {
    add_tensor(std::move(name), dtype, std::span<const int64_t>(dims.begin(), dims.size()), data);
  }
  void add_tensor(std::string name, const TensorView& view);
  // A tensor whose bytes are made when the file is written: `fill` is called once and passes all of them to `put` in
  // order. write() returns an error of either. Not for bytes().
  using Put = std::function<Status(std::span<const std::byte>)>;
  using Fill = std::function<Status(const Put& put)>;
  void add_tensor(std::string name, DType dtype, std::span<const int64_t> dims, Fill fill);

  // The file's bytes; for small files.
  std::string bytes() const;
  // Writes beside `path` and renames at the end, so that `path` never holds half a file.
  Status write(const std::string& path) const;
  // The same as several files, PREFIX-00001-of-0000N.gguf, as llama.cpp's gguf-split names and marks them. Shard i
  // holds the tensors [first[i], first[i + 1]), in the order they were added; first[0] is 0, and the first has all
  // keys. Files appear once all are complete.
  Status write_shards(const std::string& prefix, std::span<const size_t> first) const;
  // Where shards of at most `max_bytes` of tensors begin; a larger tensor is one of its own.
  std::vector<size_t> shards_of(uint64_t max_bytes) const;
  static std::string shard_path(const std::string& prefix, size_t i, size_t n);

 private:
  struct Entry;
  // All before the data, padded to the alignment. Of n shards: of shard i.
  std::string header(std::span<const Entry> entries, size_t i, size_t n) const;
  Status write_file(const std::string& partial, const std::string& path, std::span<const Entry> entries, size_t i,
                    size_t n) const;

  struct Entry {
    std::string name;
    DType dtype;
    std::vector<int64_t> dims;
    std::span<const std::byte> data;
    size_t n_bytes;
    Fill fill;  // null: `data`
  };
  void add(Entry entry);
  std::vector<std::pair<std::string, MetaValue>> metadata_;
  std::unordered_map<std::string, size_t> key_at_;  // in metadata_
  std::vector<Entry> tensors_;
  std::unordered_set<std::string> tensor_names_;
};

}  // namespace ibid
