// SafetensorsWriter: the weights of a folder, whose bytes come one tensor at a time and in any order.
//
// One file, model.safetensors, or several of at most so many bytes of tensors each, model-00001-of-0000N.safetensors
// with model.safetensors.index.json beside them. In each file tensors lie by the size of their elements, largest first,
// then as they were added, so that all are aligned; the same tensors give the same bytes in whatever order they come.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace ibid {

class SafetensorsWriter {
 public:
  // Before open(). Names are unique, `dtype` is F32, F16, BF16, F64, I16, I32 or I64; dimensions outermost first.
  void add(std::string name, DType dtype, std::vector<int64_t> dims);
  // Creates the files in a folder that is there. `max_bytes` 0: one file. Errors of the disk are sentences.
  Status open(const std::string& folder, uint64_t max_bytes);
  // All bytes of one tensor, once.
  Status put(const std::string& name, std::span<const std::byte> bytes);
  // After all tensors: writes the index and closes. CHECKs that each has come.
  Status finish();

  uint64_t tensor_bytes() const;

 private:
  struct Entry {
    std::string name;
    DType dtype = DType::kF32;
    std::vector<int64_t> dims;
    uint64_t n_bytes = 0;
    size_t file = 0;
    uint64_t offset = 0;  // in the file
    bool has_come = false;
  };
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct File {
    std::string name, path;
    std::unique_ptr<std::FILE, Close> file;
  };
  Status failed(const std::string& path) const;

  std::vector<Entry> entries_;
  std::vector<File> files_;
  std::string folder_;
};

}  // namespace ibid
